// Attention pooling in one dimension: keys and values are points, the query moves along the keys.

export interface Pair {
  key: number;
  value: number;
}

export type Score = "gaussian" | "epanechnikov" | "triangular" | "boxcar" | "dot";

export const SCORES: readonly (readonly [Score, string, string])[] = [
  ["gaussian", "Gaussian kernel", "a_j = softmax( −(q − k_j)² ÷ 2h² )"],
  ["epanechnikov", "Epanechnikov kernel", "a_j ∝ max(0, 1 − ((q − k_j) ÷ h)²)"],
  ["triangular", "Triangular kernel", "a_j ∝ max(0, 1 − |q − k_j| ÷ h)"],
  ["boxcar", "Boxcar kernel", "a_j ∝ 1 if |q − k_j| < h, else 0"],
  ["dot", "Dot product", "a_j = softmax( q · k_j ÷ h )"],
];

/** Weights of all pairs for one query; all zero where a kernel sees no key. */
export function poolingWeights(query: number, pairs: Pair[], score: Score, width: number): number[] {
  if (score === "gaussian" || score === "dot") {
    const scores = pairs.map(({ key }) => (score === "dot" ? (query * key) / width : -((query - key) ** 2) / (2 * width * width)));
    const most = Math.max(...scores);
    const parts = scores.map((value) => Math.exp(value - most));
    const total = parts.reduce((a, b) => a + b, 0);
    return parts.map((part) => part / total);
  }
  const parts = pairs.map(({ key }) => {
    const gap = Math.abs(query - key) / width;
    if (score === "boxcar") return gap < 1 ? 1 : 0;
    return Math.max(0, score === "triangular" ? 1 - gap : 1 - gap * gap);
  });
  const total = parts.reduce((a, b) => a + b, 0);
  return total > 0 ? parts.map((part) => part / total) : parts;
}

/** The weighted mean of the values, or null where no key is seen. */
export function pooled(weights: number[], pairs: Pair[]): number | null {
  const total = weights.reduce((a, b) => a + b, 0);
  return total > 0 ? weights.reduce((sum, weight, index) => sum + weight * pairs[index].value, 0) : null;
}

/** "-1.5,0.2;1,2" -> pairs, at most 40, kept within the picture. */
export function readPairs(text: string | undefined): Pair[] | null {
  if (!text) return null;
  const pairs = text
    .split(";")
    .slice(0, 40)
    .map((item) => item.split(",").map(Number));
  if (!pairs.length || pairs.some((pair) => pair.length !== 2 || !pair.every(Number.isFinite))) return null;
  return pairs.map(([key, value]) => ({ key: bound(key), value: bound(value) }));
}

export const writePairs = (pairs: Pair[]) => pairs.map(({ key, value }) => `${round(key)},${round(value)}`).join(";");
export const bound = (value: number) => Math.min(Math.max(value, -3), 3);
export const round = (value: number) => Math.round(value * 100) / 100;

/** Twelve points around a sine. */
export const FIRST_PAIRS: Pair[] = [-2.7, -2.2, -1.7, -1.2, -0.8, -0.3, 0.3, 0.7, 1.2, 1.7, 2.2, 2.7].map((key, index) => ({
  key,
  value: round(1.8 * Math.sin(1.6 * key) + [0.3, -0.2, 0.1, 0.4, -0.3, 0.2][index % 6]),
}));
