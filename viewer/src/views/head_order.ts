// The order of the heads in the overview, and the best head for each relation.
import type { HeadStatistics } from "../data/types";

export type Order = "layers" | "entropy" | "diagonal" | "first";

export interface HeadPlace {
  layer: number;
  head: number;
}

/** Low entropy first (sharp heads), high diagonal and first-token mass first. */
export function orderedHeads(layers: number, heads: number, order: Order, statistics: HeadStatistics[][] | undefined): HeadPlace[] {
  const places: HeadPlace[] = [];
  for (let layer = 0; layer < layers; layer++) for (let head = 0; head < heads; head++) places.push({ layer, head });
  if (order === "layers" || !statistics) return places;
  const sign = order === "entropy" ? 1 : -1;
  const value = (place: HeadPlace) => statistics[place.layer]?.[place.head]?.[order] ?? 0;
  return places.sort((a, b) => sign * (value(a) - value(b)));
}

/** Who did what to whom. */
const ASKED = ["nsubj", "obj", "iobj"];

export interface Relation extends HeadPlace {
  relation: string;
  percent: number;
}

/** "obj 61%" for each head -> the best head of each relation. */
export function bestByRelation(says: (string | null)[][] | undefined | null): Relation[] {
  const best = new Map<string, Relation>();
  says?.forEach((row, layer) =>
    row.forEach((text, head) => {
      for (const part of (text ?? "").split(",")) {
        const found = /^\s*(\S+)\s+([\d.]+)\s*%/.exec(part);
        if (!found) continue;
        const percent = Number(found[2]);
        if (percent > (best.get(found[1])?.percent ?? -1)) best.set(found[1], { relation: found[1], percent, layer, head });
      }
    }),
  );
  const place = ({ relation }: Relation) => (ASKED.includes(relation) ? ASKED.indexOf(relation) : ASKED.length);
  return [...best.values()].sort((a, b) => place(a) - place(b) || b.percent - a.percent);
}
