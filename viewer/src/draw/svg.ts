// Drawing into an SVG file. Text is escaped: tokens are never markup.
import { colourOf, PAPER, type Scale } from "../colours";
import { cellPicture } from "./canvas";
import { FONT, type Surface, type TextStyle } from "./surface";

const MOST_RECTANGLES = 10_000;

export class SvgSurface implements Surface {
  readonly paper;
  private readonly parts: string[] = [];

  constructor(readonly dark: boolean) {
    this.paper = PAPER[dark ? "dark" : "light"];
  }

  file(width: number, height: number): string {
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" width="${n(width)}" height="${n(height)}" viewBox="0 0 ${n(width)} ${n(height)}" font-family='${FONT}'>` +
      `<rect width="100%" height="100%" fill="${this.paper.back}"/>${this.parts.join("\n")}</svg>\n`
    );
  }

  box(x: number, y: number, width: number, height: number, style: { fill?: string; stroke?: string; line?: number; round?: number }): void {
    this.parts.push(
      `<rect x="${n(x)}" y="${n(y)}" width="${n(width)}" height="${n(height)}"${style.round ? ` rx="${n(style.round)}"` : ""}${look(style)}/>`,
    );
  }

  line(x1: number, y1: number, x2: number, y2: number, style: { stroke: string; line?: number; alpha?: number; dash?: boolean }): void {
    const dash = style.dash ? ' stroke-dasharray="4 4"' : "";
    this.parts.push(`<line x1="${n(x1)}" y1="${n(y1)}" x2="${n(x2)}" y2="${n(y2)}"${look(style)}${dash}/>`);
  }

  curve(x1: number, y1: number, x2: number, y2: number, style: { stroke: string; line?: number; alpha?: number }): void {
    const m = n((x1 + x2) / 2);
    this.parts.push(`<path d="M${n(x1)} ${n(y1)}C${m} ${n(y1)} ${m} ${n(y2)} ${n(x2)} ${n(y2)}"${look(style)}/>`);
  }

  dot(x: number, y: number, radius: number, style: { fill?: string; stroke?: string; line?: number }): void {
    this.parts.push(`<circle cx="${n(x)}" cy="${n(y)}" r="${n(radius)}"${look(style)}/>`);
  }

  text(x: number, y: number, text: string, style: TextStyle = {}): void {
    const turn = style.upwards ? ` transform="rotate(-90 ${n(x)} ${n(y)})"` : "";
    const anchor = style.anchor && style.anchor !== "start" ? ` text-anchor="${style.anchor}"` : "";
    const bold = style.bold ? ' font-weight="600"' : "";
    this.parts.push(
      `<text x="${n(x)}" y="${n(y)}" dominant-baseline="central" font-size="${n(style.size ?? 12)}" fill="${style.colour ?? this.paper.ink}"${anchor}${bold}${turn}>${escaped(text)}</text>`,
    );
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
    if (rows * columns > MOST_RECTANGLES) {
      const data = cellPicture(rows, columns, values, scale, this.dark).toDataURL("image/png");
      this.parts.push(
        `<image x="${n(x)}" y="${n(y)}" width="${n(width)}" height="${n(height)}" preserveAspectRatio="none" style="image-rendering:pixelated" href="${data}"/>`,
      );
      return;
    }
    const w = width / columns;
    const h = height / rows;
    for (let row = 0; row < rows; row++)
      for (let column = 0; column < columns; column++)
        this.parts.push(
          `<rect x="${n(x + column * w)}" y="${n(y + row * h)}" width="${n(w)}" height="${n(h)}" fill="${colourOf(scale, values[row * columns + column], this.dark)}"/>`,
        );
  }
}

function look(style: { fill?: string; stroke?: string; line?: number; alpha?: number }): string {
  return (
    ` fill="${style.fill ?? "none"}"` +
    (style.stroke ? ` stroke="${style.stroke}" stroke-width="${n(style.line ?? 1)}"` : "") +
    (style.alpha !== undefined && style.alpha < 1 ? ` opacity="${n(style.alpha)}"` : "")
  );
}

const n = (value: number) => String(Number(value.toFixed(2)));

export function escaped(text: string): string {
  return text
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "�")
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;");
}
