// One made-up trace: tokens, weights, overview, alignment, beam.
import { partsOf, textOf, translationOf } from "./models.mjs";
import { framed, head, normals, random, seedOf, statistics, toBytes } from "./numbers.mjs";

/** Weights times a bell inside the window, zero outside; rows sum to 1. */
function narrow(values, rows, columns, { centres, window, sigma }) {
  for (let r = 0; r < rows; r++) {
    let sum = 0;
    for (let c = 0; c < columns; c++) {
      const gap = c - centres[r];
      values[r * columns + c] =
        Math.abs(gap) > window ? 0 : (values[r * columns + c] + 0.05) * Math.exp((-gap * gap) / (2 * sigma * sigma));
      sum += values[r * columns + c];
    }
    for (let c = 0; c < columns; c++) values[r * columns + c] /= sum;
  }
}

/** A score and its parts. */
function scored(total, step, uncovered) {
  const divisor = ((5 + step) / 6) ** 0.6;
  const [length, coverage] = [total / divisor - total, -0.2 * uncovered];
  return { total, divisor, length, coverage, score: total + length + coverage };
}

export class MockTrace {
  made = new Map();

  constructor(id, model, text, target) {
    this.id = id;
    this.model = model;
    this.source = textOf(text);
    this.given = target !== null && target !== undefined;
    this.target = model.does === "translates" ? textOf(target ?? translationOf(text)) : null;
    if (this.target) this.target.log_probs = [...normals(`log ${text}`, this.target.tokens.length)].map((value) => -Math.abs(value));
    this.parts = partsOf(model, this.source, this.target);
    this.log_prob = (this.target?.log_probs ?? []).reduce((a, b) => a + b, 0);
  }

  tokens(which) {
    return (which === "source" ? this.source : this.target).tokens;
  }

  part(name) {
    return this.parts.find((part) => part.name === name);
  }

  head(part, layer, index) {
    const key = `${part.name} ${layer} ${index}`;
    if (!this.made.has(key)) this.made.set(key, head(part, layer, index, this.tokens(part.rows), this.tokens(part.columns)));
    return this.made.get(key);
  }

  header() {
    // Made once, with the overview, so that the tests time the page and not the mock.
    if (!this.headerMade) {
      this.headerMade = this.makeHeader();
      for (const part of this.parts) this.overview(part, 48);
    }
    return this.headerMade;
  }

  makeHeader() {
    const over = (make) =>
      Object.fromEntries(
        this.parts.map((part) => [
          part.name,
          Array.from({ length: part.layers }, (_, l) => Array.from({ length: part.heads }, (_, h) => make(part, l, h))),
        ]),
      );
    const relations = ["nsubj", "obj", "iobj", null, null, null];
    return {
      id: this.id,
      model: this.model.id,
      source: this.source,
      target: this.target,
      parts: this.parts,
      alignment: this.target !== null,
      finished: true,
      score: this.log_prob / (this.target?.tokens.length || 1),
      log_prob: this.log_prob,
      statistics: over((part, l, h) => statistics(this.head(part, l, h).weights, ...part.shape)),
      heads_baseline: { nsubj: 0.42, obj: 0.35, iobj: 0.51 },
      heads_say: over((part, l, h) => {
        const next = random(seedOf(`${part.name} ${l} ${h}`));
        const relation = relations[Math.floor(next() * relations.length)];
        return relation ? `${relation} ${Math.floor(20 + 60 * next())}%` : null;
      }),
    };
  }

  overview(part, size) {
    const key = `overview ${part.name} ${size}`;
    if (!this.made.has(key)) this.made.set(key, this.makeOverview(part, size));
    return this.made.get(key);
  }

  makeOverview(part, size) {
    const [rows, columns] = part.shape;
    const h = Math.min(rows, size);
    const w = Math.min(columns, size);
    const all = new Uint8Array(part.layers * part.heads * h * w);
    for (let l = 0; l < part.layers; l++)
      for (let k = 0; k < part.heads; k++) {
        const { weights } = this.head(part, l, k);
        const base = (l * part.heads + k) * h * w;
        for (let r = 0; r < rows; r++)
          for (let c = 0; c < columns; c++) {
            const at = base + Math.floor((r * h) / rows) * w + Math.floor((c * w) / columns);
            const value = Math.round(255 * weights[r * columns + c]);
            if (value > all[at]) all[at] = value;
          }
      }
    return framed({ type: "u8", shape: [part.layers, part.heads, h, w] }, all);
  }

  alignment(type, merge) {
    const part = this.part("decoder.cross");
    const [rows, columns] = part.shape;
    let values = new Float32Array(rows * columns);
    for (let h = 0; h < part.heads; h++)
      this.head(part, part.layers - 1, h).weights.forEach((value, i) => (values[i] += value / part.heads));
    if (this.model.architecture === "luong") narrow(values, rows, columns, this.local());
    let rowNames = this.target.tokens;
    let columnNames = this.source.tokens;
    if (merge === "words") {
      const merged = new Float32Array(this.target.words.length * this.source.words.length);
      this.target.words.forEach(([rb, re], r) =>
        this.source.words.forEach(([cb, ce], c) => {
          let total = 0;
          for (let i = rb; i < re; i++) for (let j = cb; j < ce; j++) total += values[i * columns + j];
          merged[r * this.source.words.length + c] = total / (re - rb);
        }),
      );
      values = merged;
      const join = (text) => text.words.map(([b, e]) => text.tokens.slice(b, e).join("").replaceAll("##", ""));
      rowNames = join(this.target);
      columnNames = join(this.source);
    }
    return framed(
      { type, shape: [rowNames.length, columnNames.length], rows: rowNames, columns: columnNames },
      type === "u8" ? toBytes(values) : values,
    );
  }

  local() {
    const [rows, wide] = this.part("decoder.cross").shape;
    return {
      centres: [...normals("centre", rows, 0.6)].map((value, i) => Math.min(Math.max((i * wide) / rows + value, 0), wide - 1)),
      window: 2,
      sigma: 1,
    };
  }

  beam() {
    const wanted = this.source.text.startsWith("many nodes") ? 1000 : 120;
    const words = ["Das", "Ein", "Tier", "Vieh", "es", "sie", "war", "ist", "müde", "weil", "nicht", "Straße", "Weg", "zu", ","];
    const next = random(seedOf(this.source.text));
    const steps = Math.ceil(wanted / 12) + 2;
    const start = { log_prob: 0, total: 0, divisor: 1, length: 0, coverage: null, score: null };
    const nodes = [{ id: 0, parent: null, step: 0, token: "<s>", ...start, rank: 0, state: "kept", best: true }];
    let kept = [nodes[0]];
    for (let step = 1; step <= steps && nodes.length < wanted; step++) {
      const made = [];
      for (const parent of kept)
        for (let i = 0; i < 3 && nodes.length < wanted; i++) {
          const log_prob = -0.05 - 2 * next() * (i + 0.4);
          const node = {
            id: nodes.length,
            parent: parent.id,
            step,
            token: words[Math.floor(next() * words.length)],
            log_prob,
            ...scored(parent.total + log_prob, step, next()),
            rank: 0,
            state: "pruned",
            best: false,
          };
          nodes.push(node);
          made.push(node);
        }
      made.sort((a, b) => b.total - a.total).forEach((node, rank) => (node.rank = rank));
      kept = made.slice(0, 4);
      kept.forEach((node) => (node.state = "kept"));
      if (step > steps / 2 && made[4]) {
        made[4].state = "finished";
        made[4].token = "</s>";
      }
    }
    let best = nodes.filter((node) => node.state === "finished").sort((a, b) => b.score - a.score)[0] ?? kept[0];
    const reference = nodes.filter((node) => node.state === "pruned" && node.step >= 3)[0];
    const path = (node) => (node ? [...path(nodes.find((other) => other.id === node.parent)), node] : []);
    path(best).forEach((node) => (node.best = true));
    return {
      width: 4,
      nodes,
      reference: this.given ? path(reference).map((node) => node.id) : null,
      formula: "log P / ((5 + n) / 6)^α + β Σᵢ log min(Σⱼ aⱼᵢ, 1)",
      settings: { alpha: 0.6, coverage: 0.2, beam: 4 },
    };
  }
}
