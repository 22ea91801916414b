// Dot products of position vectors by their distance.

export interface OffsetCurve {
  offset: number;
  mean: number;
}

/** For each distance, the mean dot product of two positions that far apart. */
export function dotsByOffset(values: ArrayLike<number>, positions: number, width: number, most: number): OffsetCurve[] {
  const out: OffsetCurve[] = [];
  for (let offset = -Math.min(most, positions - 1); offset <= Math.min(most, positions - 1); offset++) {
    const gap = Math.abs(offset);
    let total = 0;
    for (let at = 0; at + gap < positions; at++)
      for (let i = 0; i < width; i++) total += values[at * width + i] * values[(at + gap) * width + i];
    out.push({ offset, mean: total / (positions - gap) });
  }
  return out;
}
