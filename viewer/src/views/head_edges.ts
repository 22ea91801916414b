// The weights that deserve a line.

export interface Edge {
  head: number;
  row: number;
  column: number;
  weight: number;
}

const MOST_LINES = 12_000;

/** All weights from the threshold on, the weakest first; at most 12,000, the strongest of each. */
export function strongEdges(weights: Float32Array[], heads: number[], columns: number, threshold: number): Edge[] {
  const least = Math.max(threshold, 1e-4);
  const edges: Edge[] = [];
  weights.forEach((values, index) => {
    for (let at = 0; at < values.length; at++)
      if (values[at] >= least) edges.push({ head: heads[index], row: Math.floor(at / columns), column: at % columns, weight: values[at] });
  });
  edges.sort((a, b) => a.weight - b.weight);
  return edges.length > MOST_LINES ? edges.slice(edges.length - MOST_LINES) : edges;
}
