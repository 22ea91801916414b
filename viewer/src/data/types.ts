// The shapes of the answers of the server: see docs of `regard look`.

export type ViewName =
  | "heads"
  | "alignment"
  | "steps"
  | "beam"
  | "compare"
  | "language"
  | "recurrent"
  | "local"
  | "ponder"
  | "convolution"
  | "positions"
  | "vectors"
  | "training"
  | "evaluation"
  | "pooling";

export interface Model {
  id: string;
  name: string;
  architecture: string;
  does: string;
  parameters: number;
  settings: Record<string, unknown>;
  sentence: string;
  views: Partial<Record<ViewName, true | string>>;
  /** Some frequent words that have vectors. */
  words?: string[] | null;
  /** Three words that have vectors, as man, king, woman. */
  analogy?: string[] | null;
  languages?: { source?: string; target?: string } | null;
  /** Whether a word's vector changes with its neighbours. */
  contextual?: boolean;
}

export interface Text {
  text: string;
  tokens: string[];
  words: [number, number][];
  log_probs: number[] | null;
  special: boolean[];
}

/** "input" is what a decoder reads: the target one place later. */
export type Side = "source" | "target" | "input";

export interface Part {
  name: string;
  title: string;
  rows: Side;
  columns: Side;
  layers: number;
  heads: number;
  causal: boolean;
  shape: [number, number];
}

export interface HeadStatistics {
  entropy: number;
  diagonal: number;
  first: number;
}

export interface Trace {
  id: string;
  model: string;
  source: Text;
  target: Text | null;
  input?: Text | null;
  parts: Part[];
  alignment: boolean;
  finished: boolean;
  score: number | null;
  log_prob: number | null;
  /** What the model answers: a translation, labels, tags. */
  answer?: string | null;
  statistics: Record<string, HeadStatistics[][]>;
  heads_say?: Record<string, (string | null)[][]> | null;
  /** Of each relation, how often one fixed distance is right. */
  heads_baseline?: Record<string, number> | null;
}

/** Numbers with their header; every framed answer becomes one of these. */
export interface Frame {
  header: FrameHeader;
  /** u8 answers are divided by 255 only when read through `at`. */
  numbers: Float32Array | Uint8Array;
}

export interface FrameHeader {
  type: "f32" | "u8";
  shape?: number[];
  [name: string]: unknown;
}

export interface StepTensor {
  name: string;
  shape: number[];
  offset: number;
  labels?: string | string[] | null;
  /** The names of the numbers where `labels` is "tokens". */
  tokens?: string[] | null;
}

export interface Step {
  name: string;
  title: string;
  formula: string;
  about: string;
  tensors: StepTensor[];
  tokens?: string[];
  chosen?: string | number | null;
  /** The likeliest word. */
  argmax?: string | null;
}

export interface StepsHeader extends FrameHeader {
  row: number;
  key_labels: string[];
  steps: Step[];
}

export interface BeamNode {
  id: number | string;
  parent: number | string | null;
  step: number;
  token: string;
  log_prob: number;
  total: number;
  /** What log P is divided by, and what that adds to the score. */
  divisor: number;
  length: number;
  /** The penalty for source words that were not looked at; null where the search has none. */
  coverage: number | null;
  /** total + length + coverage */
  score: number | null;
  rank: number | null;
  state: "kept" | "pruned" | "finished";
  best: boolean;
}

export interface Beam {
  width: number;
  nodes: BeamNode[];
  reference: (number | string)[] | null;
  formula: string;
  settings: Record<string, unknown>;
}

export interface Hypothesis {
  text: string;
  tokens: string[];
  score: number;
  log_prob: number;
}

export interface Guess {
  token?: string;
  word?: string;
  probability: number;
}

export interface Problem {
  where: string;
  what: string;
  todo: string;
}
