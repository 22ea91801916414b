// From the rows of a training log to the curves of the page.
import type { CurveRow } from "../data/api";

export interface Curve {
  name: string;
  title: string;
  steps: number[];
  values: number[];
}

export interface Mark {
  step: number;
  what: "resumed" | "skipped";
  count: number;
}

const TITLES: Record<string, string> = {
  loss: "Loss",
  nll: "Negative log-likelihood",
  lr: "Learning rate",
  learning_rate: "Learning rate",
  gradient_norm: "Gradient norm",
  tokens_per_second: "Tokens per second",
  bleu: "BLEU",
  valid_loss: "Loss on held-out text",
  valid_nll: "Negative log-likelihood, held-out text",
  valid_bleu: "BLEU on held-out text",
  perplexity: "Perplexity",
};
const FIRST = ["loss", "valid_loss", "nll", "valid_nll", "bleu", "valid_bleu", "lr", "learning_rate", "gradient_norm", "tokens_per_second"];
const NO_CURVE = new Set(["step", "skipped", "last_skipped_step", "epoch", "seconds", "time", "split_batches", "best_step"]);

/** One curve for each number in the log, the best known first. */
export function curvesOf(rows: CurveRow[]): Curve[] {
  const curves = new Map<string, Curve>();
  const sorted = [...rows].sort((a, b) => a.step - b.step);
  for (const row of sorted)
    for (const [name, value] of Object.entries(row)) {
      if (NO_CURVE.has(name) || typeof value !== "number" || !Number.isFinite(value)) continue;
      let curve = curves.get(name);
      if (!curve) curves.set(name, (curve = { name, title: TITLES[name] ?? name.replaceAll("_", " "), steps: [], values: [] }));
      curve.steps.push(row.step);
      curve.values.push(value);
    }
  const place = (name: string) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  return [...curves.values()].sort((a, b) => place(a.name) - place(b.name) || a.name.localeCompare(b.name));
}

/** Where the run was taken up again, and where steps were skipped; of several in one row of the log, where the last was. */
export function marksOf(rows: CurveRow[]): Mark[] {
  const marks: Mark[] = [];
  const skipped = new Set<number>();
  let before = 0;
  for (const row of [...rows].sort((a, b) => a.step - b.step)) {
    const event = String(row.event ?? "");
    if (event.startsWith("resume") || row.resumed === true) marks.push({ step: row.step, what: "resumed", count: 1 });
    const bad = typeof row.last_skipped_step === "number" ? row.last_skipped_step : event.startsWith("skip") ? row.step : null;
    const total = typeof row.skipped === "number" ? row.skipped : before;
    if (bad !== null && !skipped.has(bad)) {
      skipped.add(bad);
      marks.push({ step: bad, what: "skipped", count: Math.max(1, total - before) });
    }
    before = total;
  }
  return marks.sort((a, b) => a.step - b.step);
}

/** Lines for names that stand side by side, so that none covers another: of each the place where it begins and how wide it is. */
export function linesOf(names: { x: number; wide: number }[]): number[] {
  const ends: number[] = [];
  return names.map(({ x, wide }) => {
    const free = ends.findIndex((end) => end <= x);
    const line = free < 0 ? ends.length : free;
    ends[line] = x + wide;
    return line;
  });
}

export const nameOf = (mark: Mark) => (mark.count > 1 ? `${mark.count} ${mark.what}` : mark.what);

/** The marks in words. */
export function saidOf(marks: Mark[]): string {
  const of = (what: Mark["what"]) => marks.filter((mark) => mark.what === what);
  const said = (what: Mark["what"], name: string) => {
    const found = of(what);
    const total = found.reduce((sum, mark) => sum + mark.count, 0);
    return found.length ? `${name} ${total} (${found.map((mark) => `step ${mark.step}`).join(", ")})` : "";
  };
  return [said("resumed", "resumed:"), said("skipped", "batches skipped, loss or gradient not finite:")].filter(Boolean).join("; ");
}
