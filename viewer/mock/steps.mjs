// The steps of one row of one head, in the order of the contract.
import { D, DH, framed, normals, times, vectorOf } from "./numbers.mjs";

class Collector {
  numbers = [];
  length = 0;
  steps = [];
  step(name, title, formula, about, tensors, extra = {}) {
    this.steps.push({
      name,
      title,
      formula,
      about,
      ...extra,
      tensors: tensors.map(([label, shape, values, labels]) => {
        const tensor = { name: label, shape, offset: this.length, labels: labels ?? null };
        this.numbers.push(values);
        this.length += values.length;
        return tensor;
      }),
    });
  }
  frame(header) {
    const all = new Float32Array(this.length);
    let at = 0;
    for (const values of this.numbers) {
      all.set(values, at);
      at += values.length;
    }
    return framed({ type: "f32", ...header, steps: this.steps }, all);
  }
}

const flat = (vectors) => Float32Array.from(vectors.flatMap((vector) => [...vector]));
function norm(x) {
  const mean = x.reduce((a, b) => a + b, 0) / x.length;
  const variance = x.reduce((a, b) => a + (b - mean) ** 2, 0) / x.length;
  return x.map((value) => (value - mean) / Math.sqrt(variance + 1e-6));
}
const add = (a, b) => a.map((value, i) => value + b[i]);

export function stepsFrame(trace, part, layer, index, row) {
  const made = trace.head(part, layer, index);
  const keys = trace.tokens(part.columns);
  const token = trace.tokens(part.rows)[row];
  const x = vectorOf(token, row, part.rows);
  const { dots, scaled, relative } = made.rowParts(row);
  const columns = keys.length;
  const weights = made.weights.slice(row * columns, (row + 1) * columns);
  const c = new Collector();
  const recurrent = ["bahdanau", "luong"].includes(trace.model.architecture);
  if (recurrent) {
    c.step("query", "1 Take the query", "s = state of the decoder", "The state of the decoder asks.", [["s", [DH], made.q[row]]]);
    c.step("keys", "2 Take the keys", "h_j = states of the encoder", "One state for each source word.", [
      ["h", [columns, DH], flat(made.k), "keys"],
    ]);
    c.step("score", "3 Score each key", "e_j = vᵀ tanh(W s + U h_j)", "Additive score: a small network compares query and key.", [
      ["e", [columns], scaled, "keys"],
    ]);
  } else {
    c.step(
      "project",
      "1 Make q, k, v",
      "q = x W_Q + b_Q   k_j = x_j W_K + b_K   v_j = x_j W_V + b_V",
      "Three views of each word: what it asks, what it offers, what it gives.",
      [
        ["x", [D], x],
        ["q", [DH], made.q[row]],
        ["k", [columns, DH], flat(made.k), "keys"],
        ["v", [columns, DH], flat(made.v), "keys"],
      ],
    );
    c.step("score", "2 Score", "s_j = q · k_j", "How well does each key answer the query?", [["s", [columns], dots, "keys"]]);
    c.step("scale", "3 Divide by √d", "s_j ÷ √8 + r_j", "Keeps the scores small whatever the width.", [
      ["relative term r", [columns], relative, "keys"],
      ["scaled", [columns], scaled, "keys"],
    ]);
    if (part.causal) {
      const allowed = Float32Array.from({ length: columns }, (_, j) => (j <= row ? 1 : 0));
      c.step("mask", "Mask", "s_j = −∞ where j is in the future", "Minus infinity before the softmax is zero after it.", [
        ["allowed", [columns], allowed, "keys"],
        ["masked", [columns], scaled.map((value, j) => (j <= row ? value : -Infinity)), "keys"],
      ]);
    }
  }
  const value = recurrent ? made.k : made.v;
  c.step("softmax", "4 Softmax", "a_j = exp(s_j) ÷ Σ exp(s_i)", "Scores become weights that sum to 1.", [
    ["a", [columns], weights, "keys"],
  ]);
  const products = value.map((vector, j) => vector.map((entry) => entry * weights[j]));
  c.step("multiply", "5 Multiply", "a_j v_j", "Each value counts as much as its weight.", [["a v", [columns, DH], flat(products), "keys"]]);
  const summed = new Float32Array(DH);
  for (const product of products) for (let i = 0; i < DH; i++) summed[i] += product[i];
  c.step("sum", "6 Sum", "z = Σ a_j v_j", "The answer of this head.", [["z", [DH], summed]]);
  const joined = Float32Array.from({ length: D }, (_, i) => summed[i % DH] * (i < DH ? 1 : 0.5));
  const mixed = times(joined, normals("out", D * D, 0.2), D);
  if (recurrent) {
    c.step("attentional", "7 Attentional state", "s̃ = tanh(W [z; s])", "What was found joins the state.", [
      ["s̃", [D], mixed.map(Math.tanh)],
    ]);
    return c.frame({ row, key_labels: keys });
  }
  c.step("join", "Join the heads", "[z₁ … z_h] W_O + b_O", "All heads side by side, then mixed.", [
    ["heads", [D], joined],
    ["mixed", [D], mixed],
  ]);
  const residual = add(x, mixed);
  c.step("residual", "Add the input", "x + attention", "The word keeps itself.", [["x + attention", [D], residual]]);
  const normal = norm(residual);
  c.step("norm", "Normalise", "(x − mean) ÷ deviation", "Mean 0, variance 1.", [["norm", [D], normal]]);
  const inner = times(normal, normals("inner", D * 4 * D, 0.2), 4 * D).map((entry) => Math.max(0, entry));
  const out = times(inner, normals("outer", 4 * D * D, 0.1), D);
  c.step("feedforward", "Feed forward", "max(0, x W₁ + b₁) W₂ + b₂", "Each word on its own through two layers.", [
    ["inner", [4 * D], inner],
    ["out", [D], out],
    ["residual", [D], add(normal, out)],
    ["norm", [D], norm(add(normal, out))],
  ]);
  if (part.name !== "encoder.self" && layer === part.layers - 1) {
    const tokens = ["Tier", "Das", "müde", "es", "weil", "Straße", "</s>", "nicht", "war", "zu"];
    const logits = normals(`logits ${token}`, 10, 2).sort().reverse();
    const total = Math.log(logits.reduce((a, b) => a + Math.exp(b), 0) + 3);
    c.step(
      "vocabulary",
      "Choose a word",
      "log softmax(x Eᵀ)",
      "A score for every word; the ten best are shown.",
      [
        ["logits", [10], logits, "tokens"],
        ["log-probabilities", [10], logits.map((entry) => entry - total), "tokens"],
      ],
      { tokens, chosen: tokens[0] },
    );
  }
  return c.frame({ row, key_labels: keys });
}
