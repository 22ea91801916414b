// Names beside dots, so that none covers another; a name for which there is no room is left out.

export interface Dot {
  x: number;
  y: number;
  text: string;
}

export interface Name {
  at: number;
  text: string;
  x: number;
  y: number;
  anchor: "start" | "end" | "middle";
}

const LETTER = 7.6;
const HALF = 8;

/** To the right of its dot if there is room, else to the left, above or below. */
export function namesBeside(dots: Dot[], width: number): Name[] {
  const taken = dots.map(({ x, y }) => [x - 5, y - 5, x + 5, y + 5]);
  const names: Name[] = [];
  dots.forEach(({ x, y, text }, at) => {
    const wide = LETTER * Array.from(text).length;
    const places: [Name["anchor"], number, number, number][] = [
      ["start", x + 7, y, x + 7],
      ["end", x - 7, y, x - 7 - wide],
      ["middle", x, y - 13, x - wide / 2],
      ["middle", x, y + 13, x - wide / 2],
    ];
    for (const [anchor, tx, ty, left] of places) {
      const box = [left, ty - HALF, left + wide, ty + HALF];
      const free = (other: number[], of: number) =>
        of === at || box[0] >= other[2] || box[2] <= other[0] || box[1] >= other[3] || box[3] <= other[1];
      if (box[0] < 2 || box[2] > width - 2 || !taken.every(free)) continue;
      taken.push(box);
      names.push({ at, text, x: tx, y: ty, anchor });
      return;
    }
  });
  return names;
}
