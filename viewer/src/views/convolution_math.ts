// What a place sees through a stack of convolutions, and how often each word is in a winning piece.

export interface ConvolutionLayer {
  kernel: number;
  dilation: number;
}

export interface Winner {
  filter: number;
  begin: number;
  end: number;
  score: number;
}

/** For each level from the words (0) to the top: the places that one place at the top depends on. */
export function reachOf(layers: ConvolutionLayer[], place: number, length: number): number[][] {
  const levels: number[][] = [[place]];
  for (let layer = layers.length - 1; layer >= 0; layer--) {
    const { kernel, dilation } = layers[layer];
    const below = new Set<number>();
    for (const at of levels[0])
      for (let k = 0; k < kernel; k++) {
        const seen = at + (k - Math.floor(kernel / 2)) * (dilation || 1);
        if (seen >= 0 && seen < length) below.add(seen);
      }
    levels.unshift([...below].sort((a, b) => a - b));
  }
  return levels;
}

export function winsOfTokens(winners: Winner[], length: number): number[] {
  const wins = new Array<number>(length).fill(0);
  for (const { begin, end } of winners) for (let at = Math.max(0, begin); at < Math.min(end, length); at++) wins[at]++;
  return wins;
}
