// Colours of the pictures: one sequential map (lightness rises or falls all the way, so it reads
// without colour vision), one map around zero (blue and orange), and one colour per head.

type Rgb = [number, number, number];

export interface Paper {
  back: string;
  ink: string;
  soft: string;
  line: string;
  accent: string;
  mark: string;
  masked: Rgb;
}

export const PAPER: { light: Paper; dark: Paper } = {
  light: { back: "#ffffff", ink: "#1b2130", soft: "#5a6375", line: "#d7dce5", accent: "#3949ab", mark: "#c43d00", masked: [222, 222, 222] },
  dark: { back: "#171b24", ink: "#e8ebf2", soft: "#a3adc0", line: "#343b4a", accent: "#9fa8ff", mark: "#ffab6b", masked: [58, 58, 58] },
};

const SEQUENTIAL = {
  light: ["#f4f7fc", "#d0e1f2", "#94c4df", "#4a98c9", "#1764ab", "#08306b"],
  dark: ["#1d2431", "#17406f", "#1f6bab", "#4a9bd4", "#9dd0f0", "#f3fbff"],
};
const AROUND_ZERO = {
  light: ["#9a3d00", "#e08214", "#fbd3a4", "#f4f4f6", "#b5cfe8", "#4a90c8", "#084594"],
  dark: ["#ffb870", "#d9771c", "#6e3d12", "#262b36", "#17406f", "#3f8fcf", "#a9d8ff"],
};
const HEADS = {
  light: ["#0072b2", "#c44e00", "#00805d", "#a8508a", "#8a6d00", "#6a4fc0", "#1f8fb8", "#5c5c5c"],
  dark: ["#56a8e8", "#ff9a52", "#3ecf9f", "#ee9fcb", "#f0c940", "#b6a0ff", "#7fd8f2", "#c4c4c4"],
};

export type MapName = "weights" | "signed";

const tables = new Map<string, Uint8Array>();

/** 256 colours, three bytes each. */
export function colourTable(name: MapName, dark: boolean): Uint8Array {
  const key = `${name}${dark}`;
  const known = tables.get(key);
  if (known) return known;
  const anchors = (name === "weights" ? SEQUENTIAL : AROUND_ZERO)[dark ? "dark" : "light"].map(rgb);
  const table = new Uint8Array(256 * 3);
  for (let i = 0; i < 256; i++) {
    const place = (i / 255) * (anchors.length - 1);
    const left = Math.min(Math.floor(place), anchors.length - 2);
    for (let c = 0; c < 3; c++)
      table[3 * i + c] = Math.round(anchors[left][c] + (place - left) * (anchors[left + 1][c] - anchors[left][c]));
  }
  tables.set(key, table);
  return table;
}

export function headColour(head: number, dark: boolean): string {
  const list = HEADS[dark ? "dark" : "light"];
  return list[head % list.length];
}

function rgb(hex: string): Rgb {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)) as Rgb;
}

/** A scale from numbers to one of the 256 colours. */
export interface Scale {
  map: MapName;
  low: number;
  high: number;
  /** Below 1 lifts faint values; 1 is linear. */
  power: number;
}

export function colourIndex(scale: Scale, value: number): number {
  if (!(scale.high > scale.low)) return scale.map === "signed" ? 128 : 0;
  const part = Math.min(Math.max((value - scale.low) / (scale.high - scale.low), 0), 1);
  return Math.round(255 * (scale.power === 1 ? part : part ** scale.power));
}

export function colourOf(scale: Scale, value: number, dark: boolean): string {
  if (!Number.isFinite(value)) return `rgb(${PAPER[dark ? "dark" : "light"].masked.join(",")})`;
  const at = 3 * colourIndex(scale, value);
  const table = colourTable(scale.map, dark);
  return `rgb(${table[at]},${table[at + 1]},${table[at + 2]})`;
}

/** Black or white: what reads on this colour. */
export function inkOn(scale: Scale, value: number, dark: boolean): string {
  const table = colourTable(scale.map, dark);
  const at = 3 * colourIndex(scale, Number.isFinite(value) ? value : scale.low);
  const [r, g, b] = [0, 1, 2].map((c) => {
    const part = table[at + c] / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  // The luminance at which black and white have the same contrast.
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}

/** A scale around zero, as wide as the largest size. */
export function aroundZero(low: number, high: number): Scale {
  const size = Math.max(Math.abs(low), Math.abs(high)) || 1;
  return { map: "signed", low: -size, high: size, power: 1 };
}
