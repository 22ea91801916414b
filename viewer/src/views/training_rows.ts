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

/** Where the run was taken up again, and where a step was skipped. */
export function marksOf(rows: CurveRow[]): Mark[] {
  const marks: Mark[] = [];
  const skipped = new Set<number>();
  for (const row of rows) {
    const event = String(row.event ?? "");
    if (event.startsWith("resume") || row.resumed === true) marks.push({ step: row.step, what: "resumed" });
    const bad = typeof row.last_skipped_step === "number" ? row.last_skipped_step : event.startsWith("skip") ? row.step : null;
    if (bad !== null && !skipped.has(bad)) {
      skipped.add(bad);
      marks.push({ step: bad, what: "skipped" });
    }
  }
  return marks;
}
