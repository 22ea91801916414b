// Seeded random numbers and a small real attention, so that every number on the page fits the others.

export function seedOf(text) {
  let hash = 2166136261;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 16777619);
  return hash >>> 0;
}

export function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

export function normals(name, count, size = 1) {
  const next = random(seedOf(name));
  return Float32Array.from({ length: count }, () => size * Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next()));
}

export function times(x, matrix, columns) {
  const out = new Float32Array(columns);
  for (let i = 0; i < x.length; i++) for (let j = 0; j < columns; j++) out[j] += x[i] * matrix[i * columns + j];
  return out;
}

export const D = 32;
export const DH = 8;

const vectors = new Map();
export function vectorOf(token, place, name) {
  const key = `${name} ${place} ${token.slice(0, 40)}`;
  if (!vectors.has(key)) {
    const base = normals(`token ${token}`, D);
    const shift = normals(`place ${place} ${name}`, D, 0.4);
    vectors.set(
      key,
      base.map((value, i) => value + shift[i]),
    );
    if (vectors.size > 20000) vectors.clear();
  }
  return vectors.get(key);
}

/** What a made-up head likes: near, before, first, aligned, or only content. */
function bias(kind, row, column, rows, columns) {
  const gap = column - row * (columns / rows);
  if (kind === 0) return -0.5 * gap * gap;
  if (kind === 1) return column === row - 1 ? 4 : 0;
  if (kind === 2) return column === 0 ? 4 : 0;
  if (kind === 3) return -0.15 * Math.abs(gap);
  return 0;
}

/** One head: q, k, v, scores, relative term and weights. */
export function head(part, layer, index, rowTokens, columnTokens) {
  const name = `${part.name} ${layer} ${index}`;
  const wq = normals(`${name} q`, D * DH, 0.3);
  const wk = normals(`${name} k`, D * DH, 0.3);
  const wv = normals(`${name} v`, D * DH, 0.3);
  const rows = rowTokens.length;
  const columns = columnTokens.length;
  const kind = part.name.includes("cross") ? [0, 3, 0, 4][index % 4] : (layer * 3 + index) % 5;
  const q = rowTokens.map((token, at) => times(vectorOf(token, at, part.rows), wq, DH));
  const k = columnTokens.map((token, at) => times(vectorOf(token, at, part.columns), wk, DH));
  const v = columnTokens.map((token, at) => times(vectorOf(token, at, part.columns), wv, DH));
  const weights = new Float32Array(rows * columns);
  const scores = new Float32Array(columns);
  const rowParts = (row) => {
    const dots = new Float32Array(columns);
    const scaled = new Float32Array(columns);
    const relative = new Float32Array(columns);
    for (let c = 0; c < columns; c++) {
      let dot = 0;
      for (let i = 0; i < DH; i++) dot += q[row][i] * k[c][i];
      dots[c] = dot;
      relative[c] = bias(kind, row, c, rows, columns);
      scaled[c] = dot / Math.sqrt(DH) + relative[c];
    }
    return { dots, scaled, relative };
  };
  for (let row = 0; row < rows; row++) {
    let most = -Infinity;
    const last = part.causal ? row + 1 : columns;
    for (let c = 0; c < last; c++) {
      let dot = 0;
      for (let i = 0; i < DH; i++) dot += q[row][i] * k[c][i];
      scores[c] = dot / Math.sqrt(DH) + bias(kind, row, c, rows, columns);
      if (scores[c] > most) most = scores[c];
    }
    let sum = 0;
    for (let c = 0; c < last; c++) sum += scores[c] = Math.exp(scores[c] - most);
    for (let c = 0; c < last; c++) weights[row * columns + c] = scores[c] / sum;
  }
  return { q, k, v, weights, rowParts };
}

export function statistics(weights, rows, columns) {
  let entropy = 0;
  let diagonal = 0;
  let first = 0;
  for (let r = 0; r < rows; r++) {
    first += weights[r * columns];
    for (let c = 0; c < columns; c++) {
      const w = weights[r * columns + c];
      if (w > 0) entropy -= w * Math.log2(w);
      if (Math.abs(c - (r * columns) / rows) <= 1) diagonal += w;
    }
  }
  return { entropy: entropy / rows, diagonal: diagonal / rows, first: first / rows };
}

/** The frame of the contract. */
export function framed(header, numbers) {
  let json = Buffer.from(JSON.stringify(header), "utf8");
  const pad = (4 - ((4 + json.length) % 4)) % 4;
  const length = Buffer.alloc(4);
  length.writeUInt32LE(json.length);
  return Buffer.concat([length, json, Buffer.alloc(pad), Buffer.from(numbers.buffer, numbers.byteOffset, numbers.byteLength)]);
}

export const toBytes = (values) => Uint8Array.from(values, (value) => Math.round(255 * value));
