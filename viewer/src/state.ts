// What the page shows: the link, the models, and the trace of the sentence.
import { computed, effect, signal } from "@preact/signals";
import { api, forgetFrames, source } from "./data/api";
import { problemOf } from "./data/source";
import type { Model, Problem, Trace, ViewName } from "./data/types";
import { attempt, onTryAgain } from "./retry";
import { changed, readLink, writeLink, type Link } from "./link";

export const link = signal<Link>(readLink(location.hash || source.start || ""));
export const models = signal<Model[] | null>(null);
export const modelsProblem = signal<Problem | null>(null);
export const trace = signal<Trace | null>(null);
export const traceProblem = signal<Problem | null>(null);
export const tracing = signal(false);
/** A short text that screen readers speak. */
export const spoken = signal("");

addEventListener("hashchange", () => (link.value = readLink(location.hash)));

/** Changes the link. `page` makes a step for the back button. */
export function go(change: Record<string, string | number | null>, page = false): void {
  const next = changed(link.value, change);
  const hash = writeLink(next);
  if (hash === writeLink(link.value)) return;
  try {
    if (page) history.pushState(null, "", hash);
    else history.replaceState(null, "", hash);
  } catch {
    // A page inside a notebook has no address of its own.
  }
  link.value = next;
}

export const model = computed<Model | null>(() => {
  const list = models.value;
  if (!list?.length) return null;
  return list.find((item) => item.id === link.value.model) ?? list[0];
});
export const view = computed(() => (link.value.view ?? defaultView(model.value)) as ViewName);
/** A saved page has one sentence, whatever a link says. */
export const text = computed(() => (source.live ? link.value.text : undefined) ?? model.value?.sentence ?? "");

/** Before the models are known, most likely attention. */
function defaultView(of: Model | null): ViewName {
  if (!of) return "heads";
  const order: ViewName[] = ["heads", "alignment", "language", "convolution", "vectors", "recurrent", "training"];
  return order.find((name) => of.views[name] === true) ?? "pooling";
}

/** What one trace depends on, as a key. */
const wanted = computed(() => {
  if (!model.value || !needsTrace(view.value)) return null;
  const beam = /^\d+$/.test(link.value.beam ?? "") ? Number(link.value.beam) : null;
  return JSON.stringify({ model: model.value.id, text: text.value, target: link.value.target ?? null, beam, attempt: attempt.value });
});

export function needsTrace(name: ViewName): boolean {
  return !["pooling", "training", "evaluation", "positions", "vectors", "language"].includes(name);
}

/** Asks the server for a trace; "empty" is answered here. */
export async function askTrace(id: string, sentence: string, target: string | null, beam: number | null): Promise<Trace> {
  const key = JSON.stringify({ model: id, text: sentence, target, beam });
  const known = traces.get(key);
  if (known) return known;
  const asked = api.trace({ model: id, text: sentence, target, beam }).then((answer) => {
    const before = owners.get(answer.id);
    if (before !== undefined && before !== key && source.live) {
      forgetFrames();
      owners.clear();
      attempt.value++;
    }
    owners.set(answer.id, key);
    return answer;
  });
  traces.set(key, asked);
  asked.catch(() => traces.delete(key));
  while (traces.size > 8) traces.delete(traces.keys().next().value as string);
  return asked;
}
const traces = new Map<string, Promise<Trace>>();
/** Which question each trace answered. */
const owners = new Map<string, string>();
onTryAgain(() => {
  traces.clear();
  owners.clear();
  forgetFrames();
});

const EMPTY: Problem = { where: "the sentence", what: "it is empty", todo: "Type a sentence above and press Enter." };

export function start(): void {
  effect(() => {
    if (attempt.value > 0 && models.peek()) return;
    api.models().then(
      (answer) => {
        models.value = answer.models;
        modelsProblem.value = null;
      },
      (error) => (modelsProblem.value = problemOf(error)),
    );
  });
  effect(() => {
    const key = wanted.value;
    if (key === null) return;
    const { model: id, text: sentence, target, beam } = JSON.parse(key);
    if (sentence.trim() === "") {
      trace.value = null;
      traceProblem.value = EMPTY;
      tracing.value = false;
      return;
    }
    tracing.value = true;
    askTrace(id, sentence, target, beam).then(
      (answer) => key === wanted.value && settle(answer, null),
      (error) => key === wanted.value && settle(null, problemOf(error)),
    );
  });
}

function settle(answer: Trace | null, problem: Problem | null): void {
  trace.value = answer;
  traceProblem.value = problem;
  tracing.value = false;
  spoken.value = problem ? `${problem.where} ${problem.what}` : "The sentence is ready.";
}
