// A heat map with labels: exact value, row sum and entropy under the pointer or the arrow keys.
import { useMemo, useState } from "preact/hooks";
import type { Scale } from "../colours";
import type { Surface } from "../draw/surface";
import { clamp, cut, entropy, extent, rowOf, sum } from "../math";
import { dark } from "../theme";
import { Num, Token, useWidth } from "./basic";
import { Exports } from "./exports";
import { matrixRows } from "../export";
import { PictureCanvas } from "./picture";

export interface MatrixLook {
  rows: string[];
  columns: string[];
  values: Float32Array;
  scale: Scale;
}

export interface MatrixLayout {
  left: number;
  top: number;
  wide: number;
  tall: number;
  width: number;
  height: number;
  labels: boolean;
}

/** Square cells as large as fit, labels where they can be read. `flat`: many numbers, cells need not be square. */
export function layoutOf(rows: string[], columns: string[], room: number, flat = false): MatrixLayout {
  const longest = (labels: string[]) => labels.reduce((most, label) => Math.max(most, cut(label, 14).length), 1);
  const wantedLeft = Math.min(110, 14 + 7.2 * longest(rows));
  const wantedTop = Math.min(110, 14 + 7.2 * longest(columns));
  const fits = (room - wantedLeft - 4) / Math.max(columns.length, 1);
  const labels = flat || fits >= 11 || columns.length <= 80;
  const left = labels ? wantedLeft : 4;
  const top = labels ? wantedTop : 4;
  const wide = flat ? clamp(fits, 1, 20) : labels ? clamp(fits, 13, 34) : Math.max((room - 8) / columns.length, 1);
  const tall = flat ? clamp(420 / rows.length, 2, 20) : wide;
  return { left, top, wide, tall, labels, width: left + wide * columns.length + 4, height: top + tall * rows.length + 4 };
}

export function paintMatrix(surface: Surface, look: MatrixLook, at: MatrixLayout, chosen: { row: number; column: number } | null): void {
  const { paper } = surface;
  const { left, top, wide, tall } = at;
  const width = wide * look.columns.length;
  surface.cells(left, top, width, tall * look.rows.length, look.rows.length, look.columns.length, look.values, look.scale);
  if (at.labels) {
    // Where cells are small, every second, third … label is drawn.
    const everyRow = Math.ceil(12 / tall);
    const everyColumn = Math.ceil(15 / wide);
    look.rows.forEach((label, row) => {
      if (row % everyRow && row !== chosen?.row) return;
      if (chosen && row !== chosen.row && Math.abs(row - chosen.row) < everyRow) return;
      surface.text(left - 6, top + tall * (row + 0.5), cut(label, 14), {
        anchor: "end",
        bold: row === chosen?.row,
        colour: row === chosen?.row ? paper.mark : paper.ink,
      });
    });
    look.columns.forEach((label, column) => {
      if (column % everyColumn && column !== chosen?.column) return;
      if (chosen && column !== chosen.column && Math.abs(column - chosen.column) < everyColumn) return;
      surface.text(left + wide * (column + 0.5), top - 6, cut(label, 14), {
        upwards: true,
        bold: column === chosen?.column,
        colour: column === chosen?.column ? paper.mark : paper.ink,
      });
    });
  }
  surface.box(left, top, width, tall * look.rows.length, { stroke: paper.line });
  if (!chosen) return;
  surface.box(left, top + tall * chosen.row, width, tall, { stroke: paper.mark, line: 1 });
  surface.box(left + wide * chosen.column, top + tall * chosen.row, wide, tall, { stroke: paper.mark, line: 2.5 });
}

export function Matrix(props: {
  look: MatrixLook;
  name: string;
  label: string;
  /** Weights have a row sum and an entropy. */
  weights?: boolean;
  flat?: boolean;
  /** How cells are called: "position 3, dimension 5". Without: row → column. */
  named?: (row: string, column: string) => string;
  chosen?: { row: number; column: number } | null;
  onChoose?: (row: number, column: number) => void;
  onOpen?: (row: number, column: number) => void;
}) {
  const { look } = props;
  const [box, room] = useWidth();
  const [hover, setHover] = useState<{ row: number; column: number } | null>(null);
  const [inner, setInner] = useState({ row: 0, column: 0 });
  const height = look.rows.length;
  const width = look.columns.length;
  const kept = props.chosen ?? inner;
  const focus = { row: clamp(kept.row, 0, height - 1), column: clamp(kept.column, 0, width - 1) };
  const at = useMemo(() => layoutOf(look.rows, look.columns, Math.max(room, 200), props.flat), [look.rows, look.columns, room, props.flat]);
  const chosen = hover && hover.row < height && hover.column < width ? hover : focus;
  const paint = (surface: Surface) => paintMatrix(surface, look, at, chosen);
  const place = (x: number, y: number) => {
    const row = Math.floor((y - at.top) / at.tall);
    const column = Math.floor((x - at.left) / at.wide);
    return row >= 0 && column >= 0 && row < height && column < width ? { row, column } : null;
  };
  const choose = (row: number, column: number) => {
    const next = { row: clamp(row, 0, height - 1), column: clamp(column, 0, width - 1) };
    setHover(null);
    setInner(next);
    props.onChoose?.(next.row, next.column);
  };
  const onKey = (key: string) => {
    const move = {
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
      PageUp: [-10, 0],
      PageDown: [10, 0],
      Home: [0, -width],
      End: [0, width],
    }[key];
    if (move) choose(chosen.row + move[0], chosen.column + move[1]);
    else if (key === "Enter" && props.onOpen) props.onOpen(chosen.row, chosen.column);
    else return false;
    return true;
  };
  if (!height || !width) return <p>There is nothing to show: the matrix is empty.</p>;
  return (
    <div class="matrix">
      <Readout look={look} row={chosen.row} column={chosen.column} weights={props.weights} named={props.named} />
      <div class="scroll" ref={box}>
        {room > 0 ? (
          <PictureCanvas
            width={at.width}
            height={at.height}
            paint={paint}
            label={`${props.label}. Arrow keys move between cells.`}
            onPoint={(x, y) => setHover(place(x, y))}
            onLeave={() => setHover(null)}
            onClick={(x, y) => {
              const found = place(x, y);
              if (found) choose(found.row, found.column);
            }}
            onKey={onKey}
          />
        ) : null}
      </div>
      <div class="under">
        <Legend scale={look.scale} />
        <Exports
          name={props.name}
          picture={() => ({ width: at.width, height: at.height, paint: (surface) => paintMatrix(surface, look, at, null) })}
          csv={() => matrixRows(look.rows, look.columns, look.values)}
          json={() => ({ rows: look.rows, columns: look.columns, shape: [height, width], values: look.values })}
        />
      </div>
    </div>
  );
}

function Readout(props: {
  look: MatrixLook;
  row: number;
  column: number;
  weights?: boolean;
  named?: (row: string, column: string) => string;
}) {
  const { look, row, column, weights, named } = props;
  const line = rowOf(look.values, look.columns.length, row);
  return (
    <p class="readout" role="status" data-row={row} data-column={column}>
      <span class="pair">
        {named ? (
          <Token text={named(cut(look.rows[row]), cut(look.columns[column]))} length={60} />
        ) : (
          <>
            <Token text={look.rows[row]} /> → <Token text={look.columns[column]} />
          </>
        )}
      </span>
      <span class="big">
        <Num value={line[column]} digits={4} />
      </span>
      {weights ? (
        <span class="also">
          row sum <Num value={sum(line)} digits={4} /> · entropy <Num value={entropy(line)} digits={3} unit="bits" />
        </span>
      ) : null}
    </p>
  );
}

export function Legend({ scale }: { scale: Scale }) {
  const values = useMemo(
    () => Float32Array.from({ length: 64 }, (_, i) => scale.low + (i / 63) * (scale.high - scale.low)),
    [scale.low, scale.high],
  );
  void dark.value;
  return (
    <div class="legend">
      <Num value={scale.low} digits={2} />
      <PictureCanvas width={96} height={10} label="Colours from low to high" paint={(s) => s.cells(0, 0, 96, 10, 1, 64, values, scale)} />
      <Num value={scale.high} digits={2} />
    </div>
  );
}

/** The scale of weights: 0 to 1, or to the largest. */
export function weightScale(values: ArrayLike<number>, toLargest: boolean): Scale {
  const high = toLargest ? extent(values)[1] || 1 : 1;
  return { map: "weights", low: 0, high, power: 1 };
}
