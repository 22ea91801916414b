// Labelled bars as a picture that can be saved, one group below the other.
import type { Surface } from "../draw/surface";
import { cut, show } from "../math";
import type { Bar } from "./bars";
import type { Picture } from "./exports";

export const LABEL = 140;
const ROOM = 300;
const TALL = 20;
const TITLE = 28;

export interface BarGroup {
  title?: string;
  bars: Bar[];
  /** The value of a full bar; without, the largest of the group. */
  most?: number;
}

export const heightOf = ({ bars, title }: BarGroup) => TALL * bars.length + (title ? TITLE : 0) + 6;

/** Draws a group from `top` on. */
export function paintBars(surface: Surface, { bars, title, most }: BarGroup, top: number): void {
  const { paper } = surface;
  const size = (value: number) => (Number.isFinite(value) ? Math.abs(value) : 0);
  const full = most ?? (Math.max(...bars.map((bar) => size(bar.value))) || 1);
  const begin = top + (title ? TITLE : 0);
  if (title) surface.text(4, top + 16, title, { size: 13, bold: true });
  bars.forEach((bar, index) => {
    const y = begin + TALL * (index + 0.5);
    surface.text(LABEL - 8, y, cut(bar.label, 18), { anchor: "end", size: 13, bold: bar.marked });
    const wide = Math.min(1, size(bar.value) / full) * ROOM;
    surface.box(LABEL, y - 7, wide, 14, { fill: bar.value < 0 ? (surface.dark ? "#d98324" : "#b35806") : surface.dark ? "#4a9bd4" : "#2b77bd" });
    surface.text(LABEL + ROOM + 8, y, show(bar.value, 4), { size: 12, colour: paper.soft });
  });
}

export function barsPicture(groups: BarGroup[]): Picture {
  const height = groups.reduce((sum, group) => sum + heightOf(group), 0);
  return {
    width: LABEL + ROOM + 80,
    height,
    paint: (surface) => {
      let top = 0;
      for (const group of groups) {
        paintBars(surface, group, top);
        top += heightOf(group);
      }
    },
  };
}
