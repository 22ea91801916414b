// What a picture is drawn on: a canvas on the page, or an SVG file. One painter serves both.
import type { Paper, Scale } from "../colours";

export interface TextStyle {
  colour?: string;
  size?: number;
  anchor?: "start" | "middle" | "end";
  /** Quarter turn, reading upwards. */
  upwards?: boolean;
  bold?: boolean;
}

export interface Surface {
  readonly dark: boolean;
  readonly paper: Paper;
  box(x: number, y: number, width: number, height: number, style: { fill?: string; stroke?: string; line?: number; round?: number }): void;
  line(x1: number, y1: number, x2: number, y2: number, style: { stroke: string; line?: number; alpha?: number; dash?: boolean }): void;
  /** A smooth line that leaves and arrives sideways. */
  curve(x1: number, y1: number, x2: number, y2: number, style: { stroke: string; line?: number; alpha?: number }): void;
  dot(x: number, y: number, radius: number, style: { fill?: string; stroke?: string; line?: number }): void;
  text(x: number, y: number, text: string, style?: TextStyle): void;
  /** A matrix of coloured cells, row-major. */
  cells(
    x: number,
    y: number,
    width: number,
    height: number,
    rows: number,
    columns: number,
    values: Float32Array | Uint8Array,
    scale: Scale,
  ): void;
}

export type Painter = (surface: Surface) => void;
export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';
