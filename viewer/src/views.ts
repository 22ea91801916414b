// The list of views: name, title, the question each one answers, and its component.
import type { ComponentType } from "preact";
import type { Model, Trace, ViewName } from "./data/types";
import { AlignmentView } from "./views/alignment";
import { BeamView } from "./views/beam";
import { CompareView } from "./views/compare";
import { ConvolutionView } from "./views/convolution";
import { EvaluationView } from "./views/evaluation";
import { HeadsView } from "./views/heads";
import { LanguageView } from "./views/language";
import { LocalView } from "./views/local";
import { PonderView } from "./views/ponder";
import { PoolingView } from "./views/pooling";
import { PositionsView } from "./views/positions";
import { RecurrentView } from "./views/recurrent";
import { StepsView } from "./views/steps";
import { TrainingView } from "./views/training";
import { VectorsView } from "./views/vectors";

export interface ViewProps {
  model: Model;
  /** Present for the views that look at a sentence. */
  trace: Trace;
}

export interface View {
  name: ViewName;
  title: string;
  question: string;
  component: ComponentType<ViewProps>;
}

export const GROUPS: { title: string; views: View[] }[] = [
  {
    title: "This sentence",
    views: [
      { name: "heads", title: "Attention", question: "Which words does a word look at?", component: HeadsView },
      { name: "alignment", title: "Alignment", question: "Which source word made which target word?", component: AlignmentView },
      { name: "steps", title: "Step by step", question: "How is one output computed, number by number?", component: StepsView },
      { name: "beam", title: "Beam search", question: "Which translations were tried, kept and dropped?", component: BeamView },
      { name: "language", title: "Next word", question: "What does the model expect here?", component: LanguageView },
      { name: "recurrent", title: "States over time", question: "What do the gates do at each word?", component: RecurrentView },
      { name: "local", title: "Local attention", question: "Where is the window?", component: LocalView },
      { name: "ponder", title: "Pondering", question: "How long does each word take?", component: PonderView },
      { name: "convolution", title: "Convolutions", question: "Which pieces of text won?", component: ConvolutionView },
      { name: "compare", title: "Two models", question: "Where do two models differ?", component: CompareView },
    ],
  },
  {
    title: "This model",
    views: [
      { name: "positions", title: "Positions", question: "How does the model know the order?", component: PositionsView },
      { name: "vectors", title: "Word vectors", question: "Which words are alike?", component: VectorsView },
      { name: "training", title: "Training", question: "How did it learn?", component: TrainingView },
      { name: "evaluation", title: "Evaluation", question: "How good is it?", component: EvaluationView },
    ],
  },
  {
    title: "Play",
    views: [{ name: "pooling", title: "Attention by hand", question: "What is attention? Drag and see.", component: PoolingView }],
  },
];

export const VIEWS: View[] = GROUPS.flatMap((group) => group.views);

/** True, or the reason why this model has no such view. */
export function applies(model: Model | null, name: ViewName): true | string {
  if (name === "pooling") return true;
  if (!model) return "no model is loaded";
  return model.views[name] ?? `not applicable to ${model.architecture}`;
}
