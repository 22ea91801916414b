// Drawing on a canvas.
import { colourIndex, colourTable, PAPER, type Scale } from "../colours";
import { FONT, type Surface, type TextStyle } from "./surface";

export class CanvasSurface implements Surface {
  readonly paper;

  constructor(
    private readonly pen: CanvasRenderingContext2D,
    readonly dark: boolean,
  ) {
    this.paper = PAPER[dark ? "dark" : "light"];
  }

  box(x: number, y: number, width: number, height: number, style: { fill?: string; stroke?: string; line?: number; round?: number }): void {
    this.pen.beginPath();
    if (style.round) this.pen.roundRect(x, y, width, height, style.round);
    else this.pen.rect(x, y, width, height);
    this.finish(style);
  }

  line(x1: number, y1: number, x2: number, y2: number, style: { stroke: string; line?: number; alpha?: number; dash?: boolean }): void {
    this.pen.globalAlpha = style.alpha ?? 1;
    if (style.dash) this.pen.setLineDash([4, 4]);
    this.pen.beginPath();
    this.pen.moveTo(x1, y1);
    this.pen.lineTo(x2, y2);
    this.finish(style);
    this.pen.setLineDash([]);
    this.pen.globalAlpha = 1;
  }

  curve(x1: number, y1: number, x2: number, y2: number, style: { stroke: string; line?: number; alpha?: number }): void {
    const middle = (x1 + x2) / 2;
    this.pen.globalAlpha = style.alpha ?? 1;
    this.pen.beginPath();
    this.pen.moveTo(x1, y1);
    this.pen.bezierCurveTo(middle, y1, middle, y2, x2, y2);
    this.finish(style);
    this.pen.globalAlpha = 1;
  }

  dot(x: number, y: number, radius: number, style: { fill?: string; stroke?: string; line?: number }): void {
    this.pen.beginPath();
    this.pen.arc(x, y, radius, 0, 2 * Math.PI);
    this.finish(style);
  }

  text(x: number, y: number, text: string, style: TextStyle = {}): void {
    this.pen.font = `${style.bold ? "600 " : ""}${style.size ?? 12}px ${FONT}`;
    this.pen.fillStyle = style.colour ?? this.paper.ink;
    this.pen.textAlign = ({ start: "left", middle: "center", end: "right" } as const)[style.anchor ?? "start"];
    this.pen.textBaseline = "middle";
    if (!style.upwards) {
      this.pen.fillText(text, x, y);
      return;
    }
    this.pen.save();
    this.pen.translate(x, y);
    this.pen.rotate(-Math.PI / 2);
    this.pen.fillText(text, 0, 0);
    this.pen.restore();
  }

  cells(
    x: number,
    y: number,
    width: number,
    height: number,
    rows: number,
    columns: number,
    values: Float32Array | Uint8Array,
    scale: Scale,
  ): void {
    if (!rows || !columns) return;
    this.pen.imageSmoothingEnabled = width < columns;
    this.pen.drawImage(cellPicture(rows, columns, values, scale, this.dark), x, y, width, height);
  }

  private finish(style: { fill?: string; stroke?: string; line?: number }): void {
    if (style.fill) {
      this.pen.fillStyle = style.fill;
      this.pen.fill();
    }
    if (style.stroke) {
      this.pen.strokeStyle = style.stroke;
      this.pen.lineWidth = style.line ?? 1;
      this.pen.stroke();
    }
  }
}

// The last picture of each array is kept, so that moving the pointer costs nothing.
const pictures = new WeakMap<object, { key: string; picture: HTMLCanvasElement }>();

/** One pixel per cell. */
export function cellPicture(
  rows: number,
  columns: number,
  values: Float32Array | Uint8Array,
  scale: Scale,
  dark: boolean,
): HTMLCanvasElement {
  const key = [rows, columns, scale.map, scale.low, scale.high, scale.power, dark].join();
  const known = pictures.get(values);
  if (known?.key === key) return known.picture;
  const picture = document.createElement("canvas");
  picture.width = columns;
  picture.height = rows;
  const image = new ImageData(columns, rows);
  paintCells(image.data, 0, columns, rows, columns, values, 0, scale, dark);
  picture.getContext("2d")!.putImageData(image, 0, 0);
  pictures.set(values, { key, picture });
  return picture;
}

/** Writes a block of cells into the bytes of an image, from pixel `start` on. */
export function paintCells(
  bytes: Uint8ClampedArray,
  start: number,
  stride: number,
  rows: number,
  columns: number,
  values: Float32Array | Uint8Array,
  offset: number,
  scale: Scale,
  dark: boolean,
): void {
  const table = colourTable(scale.map, dark);
  const masked = PAPER[dark ? "dark" : "light"].masked;
  for (let row = 0; row < rows; row++) {
    let to = 4 * (start + row * stride);
    for (let column = 0; column < columns; column++, to += 4) {
      const value = values[offset + row * columns + column];
      if (Number.isFinite(value)) {
        const at = 3 * colourIndex(scale, value);
        bytes[to] = table[at];
        bytes[to + 1] = table[at + 1];
        bytes[to + 2] = table[at + 2];
      } else {
        bytes[to] = masked[0];
        bytes[to + 1] = masked[1];
        bytes[to + 2] = masked[2];
      }
      bytes[to + 3] = 255;
    }
  }
}
