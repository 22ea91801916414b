// Files a person takes home: CSV, JSON, SVG, PNG; and the link.
import { SvgSurface } from "./draw/svg";
import type { Painter } from "./draw/surface";

export type Cell = string | number | null | undefined;

export function toCsv(rows: Cell[][]): string {
  return rows.map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";
}

function csvCell(cell: Cell): string {
  if (cell === null || cell === undefined) return "";
  if (typeof cell === "number") return String(cell);
  // A leading = + - @ would be a formula in a spreadsheet.
  const text = /^[=+\-@\t\r]/.test(cell) ? "'" + cell : cell;
  return /[",\r\n]/.test(text) || text !== text.trim() ? `"${text.replaceAll('"', '""')}"` : text;
}

/** A matrix with its labels as rows for CSV. */
export function matrixRows(rows: string[], columns: string[], values: ArrayLike<number>): Cell[][] {
  const out: Cell[][] = [["", ...columns]];
  rows.forEach((label, row) => {
    const line: Cell[] = [label];
    for (let column = 0; column < columns.length; column++) line.push(values[row * columns.length + column]);
    out.push(line);
  });
  return out;
}

/** JSON in which −∞, ∞ and NaN are strings. */
export function toJson(data: unknown): string {
  return (
    JSON.stringify(
      data,
      (_name, value) => {
        if (typeof value === "number" && !Number.isFinite(value)) return String(value);
        if (ArrayBuffer.isView(value))
          return Array.from(value as unknown as ArrayLike<number>, (v) => (Number.isFinite(v) ? v : String(v)));
        return value;
      },
      1,
    ) + "\n"
  );
}

export function toSvg(width: number, height: number, paint: Painter, dark: boolean): string {
  const surface = new SvgSurface(dark);
  paint(surface);
  return surface.file(width, height);
}

export function save(name: string, content: string | Blob, type: string): void {
  const blob = typeof content === "string" ? new Blob([content], { type: `${type};charset=utf-8` }) : content;
  const address = URL.createObjectURL(blob);
  const anchor = document.createElement("a");
  anchor.href = address;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
