// A vector or a matrix as small coloured cells: the exact number on hover, all numbers on demand.
import { useMemo, useState } from "preact/hooks";
import { aroundZero, type Scale } from "../colours";
import type { Surface } from "../draw/surface";
import { clamp, cut, extent, show } from "../math";
import { Num, Token, useWidth } from "./basic";
import { PictureCanvas } from "./picture";

const MOST_IN_TABLE = 4096;

interface CellsLayout {
  rows: number;
  columns: number;
  left: number;
  wide: number;
  high: number;
}

/** A vector wraps into lines; a matrix keeps its rows. */
export function cellsLayout(shape: number[], room: number, labels: string[] | null): CellsLayout {
  if (shape.length === 1) {
    const wide = clamp(Math.floor(room / shape[0]), 9, 18);
    const columns = Math.max(1, Math.min(shape[0], Math.floor(room / wide)));
    return { rows: Math.ceil(shape[0] / columns), columns, left: 0, wide, high: 18 };
  }
  const [rows, columns] = shape;
  const tall = rows > 40;
  const left = labels && !tall ? Math.min(96, 12 + 7 * labels.reduce((most, label) => Math.max(most, cut(label, 12).length), 1)) : 0;
  return { rows, columns, left, wide: clamp((room - left) / columns, 1, 18), high: tall ? clamp(400 / rows, 1, 12) : 17 };
}

export function Cells(props: { name: string; shape: number[]; values: Float32Array; labels: string[] | null; scale?: Scale }) {
  const { shape, values, labels, name } = props;
  const [box, room] = useWidth();
  const [at, setAt] = useState<number | null>(null);
  const [low, high] = useMemo(() => extent(values), [values]);
  const scale = props.scale ?? aroundZero(low, high);
  const layout = useMemo(() => cellsLayout(shape, Math.max(room, 100), labels), [shape, room, labels]);
  const { rows, columns, left, wide, high: tall } = layout;
  const chosen = at !== null && at < values.length ? at : null;
  const paint = (surface: Surface) => {
    const full = shape.length === 1 ? Math.floor(values.length / columns) : rows;
    const rest = values.length - full * columns;
    if (full) surface.cells(left, 0, wide * columns, tall * full, full, columns, whole(values, full * columns), scale);
    if (rest > 0) surface.cells(left, tall * full, wide * rest, tall, 1, rest, values.slice(full * columns), scale);
    if (left) labels!.forEach((label, row) => surface.text(left - 5, tall * (row + 0.5), cut(label, 12), { anchor: "end", size: 12 }));
    if (wide >= 8 && tall >= 8 && values.length <= 2048) {
      for (let row = 0; row <= full; row++)
        surface.line(left, tall * row, left + wide * columns, tall * row, { stroke: surface.paper.back, line: 1 });
      for (let column = 1; column < columns; column++)
        surface.line(left + wide * column, 0, left + wide * column, tall * rows, { stroke: surface.paper.back, line: 1 });
    }
    if (chosen !== null)
      surface.box(left + wide * (chosen % columns), tall * Math.floor(chosen / columns), wide, tall, {
        stroke: surface.paper.mark,
        line: 2,
      });
  };
  const find = (x: number, y: number) => {
    const row = Math.floor(y / tall);
    const column = Math.floor((x - left) / wide);
    const index = row * columns + column;
    return row >= 0 && column >= 0 && column < columns && index < values.length ? index : null;
  };
  const onKey = (key: string) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -values.length, End: values.length }[key];
    if (step === undefined) return false;
    setAt(clamp((chosen ?? -1) + step, 0, values.length - 1));
    return true;
  };
  return (
    <div class={shape.length === 1 || shape[1] > 64 ? "cells wide" : "cells"} ref={box}>
      <p class="cells-head">
        <b>{name}</b> <span class="shape">{shape.join(" × ")}</span>
        {chosen === null ? (
          <span class="range">
            from <Num value={low} /> to <Num value={high} />
          </span>
        ) : (
          <span class="range" role="status">
            {place(chosen, shape, labels)} ={" "}
            <b>
              <Num value={values[chosen]} digits={6} />
            </b>
          </span>
        )}
      </p>
      {room > 0 ? (
        <PictureCanvas
          width={left + wide * columns}
          height={tall * rows}
          paint={paint}
          label={`${name}, ${values.length} numbers. Arrow keys read them.`}
          onPoint={(x, y) => setAt(find(x, y))}
          onLeave={() => setAt(null)}
          onKey={onKey}
        />
      ) : null}
      <NumberTable {...props} />
    </div>
  );
}

const copies = new WeakMap<Float32Array, Float32Array>();

/** The array itself, or one kept copy of its beginning, so that its picture is drawn once. */
function whole(values: Float32Array, length: number): Float32Array {
  if (length === values.length) return values;
  const known = copies.get(values);
  if (known?.length === length) return known;
  const made = values.slice(0, length);
  copies.set(values, made);
  return made;
}

function place(index: number, shape: number[], labels: string[] | null) {
  if (shape.length === 1) return `[${index}]`;
  const row = Math.floor(index / shape[1]);
  return (
    <>
      {labels ? <Token text={labels[row] ?? String(row)} length={12} /> : `[${row}]`} [{index % shape[1]}]
    </>
  );
}

export function NumberTable(props: { name: string; shape: number[]; values: Float32Array; labels: string[] | null }) {
  const [open, setOpen] = useState(false);
  const { shape, values, labels } = props;
  const columns = shape.length === 1 ? 8 : shape[1];
  const shown = Math.min(values.length, MOST_IN_TABLE);
  const rows = Math.ceil(shown / columns);
  return (
    <details class="numbers" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>All numbers of {props.name}</summary>
      {open ? (
        <div class="scroll" tabIndex={0} role="region" aria-label={`All numbers of ${props.name}`}>
          <table class="table small" data-tensor={props.name} data-shape={shape.join(",")}>
            <tbody>
              {Array.from({ length: rows }, (_, row) => (
                <tr key={row}>
                  <th scope="row">
                    {shape.length > 1 && labels ? (
                      <Token text={labels[row] ?? String(row)} length={14} />
                    ) : (
                      row * (shape.length === 1 ? columns : 1)
                    )}
                  </th>
                  {Array.from({ length: Math.min(columns, shown - row * columns) }, (_, column) => {
                    const value = values[row * columns + column];
                    return (
                      <td key={column} class="right num" data-value={String(value)} title={String(value)}>
                        {show(value, 4)}
                      </td>
                    );
                  })}
                </tr>
              ))}
            </tbody>
          </table>
          {shown < values.length ? (
            <p class="hint">
              The first {shown} of {values.length} numbers. The JSON file holds all.
            </p>
          ) : null}
        </div>
      ) : null}
    </details>
  );
}
