// The questions the page asks, each with its type; large answers are kept for a while.
import { embedded } from "./embedded";
import { readFrame } from "./frame";
import { ServerSource } from "./server";
import { withQuery, type Source } from "./source";
import type { Beam, Frame, FrameHeader, Guess, Hypothesis, Model, Side, StepsHeader, Trace } from "./types";

export const source: Source = embedded() ?? new ServerSource();

const KEEP_BYTES = 48 * 1024 * 1024;
const kept = new Map<string, Promise<Frame>>();
const sizes = new Map<string, number>();

/** A framed answer, from memory if it was asked for lately. */
export function frame(path: string): Promise<Frame> {
  const known = kept.get(path);
  if (known) {
    kept.delete(path);
    kept.set(path, known);
    return known;
  }
  const asked = source.bytes(path).then((buffer) => {
    sizes.set(path, buffer.byteLength);
    forgetOldest();
    return readFrame(buffer);
  });
  kept.set(path, asked);
  asked.catch(() => kept.delete(path));
  return asked;
}

/** A server that was started anew counts its traces from the start: what is known of them is then wrong. */
export function forgetFrames(): void {
  kept.clear();
  sizes.clear();
}

function forgetOldest(): void {
  let total = 0;
  for (const size of sizes.values()) total += size;
  for (const path of kept.keys()) {
    if (total <= KEEP_BYTES) return;
    total -= sizes.get(path) ?? 0;
    sizes.delete(path);
    kept.delete(path);
  }
}

export interface Point {
  word: string;
  x: number;
  y: number;
}

export interface CurveRow {
  step: number;
  [name: string]: number | string | boolean | null;
}

export interface EvaluationAnswer {
  /** How many sentences the whole text has. */
  of?: number;
  lengths: { label: string; bleu: number; low: number; high: number; sentences: number }[];
  sentences: { source: string; reference: string; written: string; chrf: number }[];
}

export interface NextAnswer {
  tokens: { token: string; surprisal: number | null }[];
  next: Guess[];
  layers: Guess[][];
}

export interface RecurrentLayer {
  name: string;
  gates: string[];
  tokens: Side;
  width: number;
}

/** The numbers are [3, tokens, steps]: the chance to halt, the sum of chances so far, the weight of the step. */
export interface PonderHeader extends FrameHeader {
  tokens: string[];
  steps: number[];
  remainder: number[];
  cost: number;
  epsilon: number;
  shape: number[];
}

const trace = (id: string) => `/api/traces/${encodeURIComponent(id)}`;
const model = (id: string) => `/api/models/${encodeURIComponent(id)}`;
const get = <T>(path: string) => source.get(path) as Promise<T>;
const post = <T>(path: string, body: unknown) => source.post(path, body) as Promise<T>;

export const api = {
  models: () => get<{ models: Model[] }>("/api/models"),
  trace: (body: { model: string; text: string; target: string | null; beam: number | null }) => post<Trace>("/api/traces", body),
  weights: (id: string, part: string, layer: number, head: number) =>
    frame(withQuery(`${trace(id)}/weights`, { part, layer, head, type: "f32" })),
  overview: (id: string, part: string) => frame(withQuery(`${trace(id)}/overview`, { part, size: 48 })),
  alignment: (id: string, merge: string) => frame(withQuery(`${trace(id)}/alignment`, { merge, type: "f32" })),
  steps: (id: string, part: string, layer: number, head: number, row: number) =>
    frame(withQuery(`${trace(id)}/steps`, { part, layer, head, row })) as Promise<Frame & { header: StepsHeader }>,
  beam: (id: string) => get<Beam>(`${trace(id)}/beam`),
  translations: (body: { model: string; text: string; prefix: string[] }) => post<{ hypotheses: Hypothesis[] }>("/api/translations", body),
  positions: (id: string) => get<{ tables: { name: string; title: string; shape: number[] }[] }>(`${model(id)}/positions`),
  positionTable: (id: string, name: string) => frame(`${model(id)}/positions/${encodeURIComponent(name)}`),
  curves: (id: string) => get<{ rows: CurveRow[]; finished: boolean }>(`${model(id)}/curves`),
  followCurves: (id: string, tell: (name: string, data: unknown) => void) =>
    source.follow(`${model(id)}/curves/live`, ["row", "again", "state", "gone"], tell),
  evaluation: (id: string) => get<EvaluationAnswer>(`${model(id)}/evaluation`),
  next: (id: string, text: string, top: number) => post<NextAnswer>("/api/next", { model: id, text, top }),
  fill: (id: string, text: string, top: number) => post<{ masks: Guess[][] }>("/api/fill", { model: id, text, top }),
  near: (id: string, word: string, top: number) =>
    post<{ near: { word: string; cosine: number }[] }>("/api/words/near", { model: id, word, top }),
  analogy: (id: string, a: string, b: string, c: string) =>
    post<{ near: { word: string; cosine: number }[] }>("/api/words/analogy", { model: id, a, b, c, top: 8 }),
  map: (id: string, words: string[]) => get<{ points: Point[] }>(withQuery("/api/words/map", { model: id, words: words.join(" ") })),
  context: (id: string, word: string, texts: [string, string]) =>
    post<{ cosines: number[]; layers?: string[]; static: number | null; near: unknown[] }>("/api/words/context", { model: id, word, texts }),
  recurrent: (id: string) => get<{ layers: RecurrentLayer[] }>(`${trace(id)}/recurrent`),
  gate: (id: string, of: string, name: string, gate: string) => frame(withQuery(`${trace(id)}/${of}/${encodeURIComponent(name)}`, { gate })),
  ponder: (id: string, side: string | undefined) =>
    frame(withQuery(`${trace(id)}/ponder`, { side })) as Promise<Frame & { header: PonderHeader }>,
  local: (id: string) => get<{ centres: number[]; window: number; sigma: number }>(`${trace(id)}/local`),
  convolution: (id: string) =>
    get<{
      layers: { kernel: number; dilation: number }[];
      winners: { filter: number; begin: number; end: number; score: number }[];
      /** What else is to be known of the winners. */
      note?: string;
      /** Gated linear units, of both sides. */
      gates?: RecurrentLayer[];
    }>(`${trace(id)}/convolution`),
};
