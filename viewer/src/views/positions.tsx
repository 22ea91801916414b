// View 7: how the model knows the order of words.
import { useMemo } from "preact/hooks";
import { api } from "../data/api";
import { asFloats } from "../data/frame";
import { useResource } from "../data/resource";
import { aroundZero } from "../colours";
import type { Surface } from "../draw/surface";
import { extent, show, ticks } from "../math";
import { go, link } from "../state";
import { Choice, Loaded, Title, useWidth } from "../ui/basic";
import { Exports } from "../ui/exports";
import { Matrix } from "../ui/matrix";
import { PictureCanvas } from "../ui/picture";
import type { ViewProps } from "../views";
import { dotsByOffset, type OffsetCurve } from "./positions_math";

export function PositionsView({ model }: ViewProps) {
  const list = useResource(model.id, () => api.positions(model.id));
  return (
    <>
      <Title name="Positions">Each row is the vector of one place in the sentence.</Title>
      <Loaded from={list}>
        {(value) => (value.tables.length ? <Tables id={model.id} tables={value.tables} /> : <p>This model has no table of positions.</p>)}
      </Loaded>
    </>
  );
}

function Tables({ id, tables }: { id: string; tables: { name: string; title: string; shape: number[] }[] }) {
  const chosen = tables.find((table) => table.name === link.value.table) ?? tables[0];
  const data = useResource(`${id} ${chosen.name}`, async () => {
    const frame = await api.positionTable(id, chosen.name);
    const values = asFloats(frame);
    const shape = frame.header.shape ?? chosen.shape;
    const columns = shape[shape.length - 1] || 1;
    return { name: chosen.name, values, rows: values.length / columns, columns };
  });
  return (
    <>
      <div class="controls">
        <Choice
          label="Table"
          value={chosen.name}
          options={tables.map((table) => [table.name, `${table.title} (${table.shape.join(" × ")})`] as const)}
          onChange={(name) => go({ table: name, row: null, col: null })}
        />
      </div>
      <Loaded from={data}>{(value) => <Table {...value} />}</Loaded>
    </>
  );
}

interface Kind {
  title: string;
  row: string;
  column: string;
  /** The number of the first row. */
  first: number;
  /** Rows are places in a sentence. */
  places: boolean;
  about?: string;
}

const FARTHEST = 32;
const KINDS: Record<string, Kind> = {
  dots: { title: "Dot product of each position with each", row: "positions", column: "and", first: 0, places: false },
  added: {
    title: "Distance (down) by head (across)",
    row: "distance",
    column: "head",
    first: -FARTHEST,
    places: false,
    about: "What each head adds to the score of a word at this distance; before it distances are negative.",
  },
  turned: {
    title: "Position (down) by dimension (across)",
    row: "position",
    column: "dimension",
    first: 0,
    places: true,
    about: "Queries and keys are turned by an angle that grows with their position; here, a vector of ones.",
  },
  relative: { title: "What was learnt of distances", row: "row", column: "column", first: 0, places: false },
  table: { title: "Position (down) by dimension (across)", row: "position", column: "dimension", first: 0, places: true },
};

function kindOf(name: string): Kind {
  const last = name.split(".").pop() ?? "";
  return KINDS[last in KINDS ? last : name.includes("relative") ? "relative" : "table"];
}

function Table({ name, values, rows, columns }: { name: string; values: Float32Array; rows: number; columns: number }) {
  const kind = kindOf(name);
  const look = useMemo(() => {
    const [low, high] = extent(values);
    return {
      rows: Array.from({ length: rows }, (_, i) => String(i + kind.first)),
      columns: Array.from({ length: columns }, (_, i) => String(i)),
      values,
      scale: aroundZero(low, high),
    };
  }, [values, rows, columns, kind]);
  const curve = useMemo(
    () => (rows > 1 && kind.places ? dotsByOffset(values, rows, columns, 64) : []),
    [values, rows, columns, kind],
  );
  return (
    <div class="split even">
      <section aria-label="Table">
        <h3>{kind.title}</h3>
        <Matrix
          flat
          look={look}
          name={`positions-${name}`}
          label={`Table ${name}`}
          named={(row, column) => `${kind.row} ${row}, ${kind.column} ${column}`}
        />
        {kind.about ? <p class="hint">{kind.about}</p> : null}
      </section>
      {curve.length ? <OffsetPicture curve={curve} name={name} /> : null}
    </div>
  );
}

function OffsetPicture({ curve, name }: { curve: OffsetCurve[]; name: string }) {
  const [box, room] = useWidth();
  const width = Math.max(240, Math.min(room, 560));
  const paint = (surface: Surface) => paintOffsets(surface, curve, width);
  return (
    <section aria-label="Dot products by distance" ref={box}>
      <h3>Dot product of two positions, by their distance</h3>
      {room > 0 ? (
        <PictureCanvas
          width={width}
          height={280}
          paint={paint}
          label={`Mean dot product by distance: ${show(curve[(curve.length - 1) / 2]?.mean)} at distance 0`}
        />
      ) : null}
      <Exports
        name={`offsets-${name}`}
        picture={() => ({ width, height: 280, paint })}
        csv={() => [["distance", "mean dot product"], ...curve.map((point) => [point.offset, point.mean])]}
        json={() => curve}
      />
      <p class="hint">A peak at 0 that falls to both sides means: the model can see which words are near.</p>
    </section>
  );
}

function paintOffsets(surface: Surface, curve: OffsetCurve[], width: number): void {
  const [left, right, top, bottom] = [52, width - 12, 12, 246];
  const [x0, x1] = [curve[0].offset, curve[curve.length - 1].offset];
  const [low, high] = extent(curve.map((point) => point.mean));
  const [y0, y1] = [Math.min(low, 0), high];
  const x = (value: number) => left + ((value - x0) / (x1 - x0 || 1)) * (right - left);
  const y = (value: number) => bottom - ((value - y0) / (y1 - y0 || 1)) * (bottom - top);
  for (const tick of ticks(y0, y1, 5)) {
    surface.line(left, y(tick), right, y(tick), { stroke: surface.paper.line });
    surface.text(left - 6, y(tick), show(tick, 2), { anchor: "end", colour: surface.paper.soft });
  }
  for (const tick of ticks(x0, x1, 6)) surface.text(x(tick), bottom + 14, show(tick), { anchor: "middle", colour: surface.paper.soft });
  surface.text((left + right) / 2, bottom + 29, "distance", { anchor: "middle", colour: surface.paper.soft });
  for (let i = 1; i < curve.length; i++)
    surface.line(x(curve[i - 1].offset), y(curve[i - 1].mean), x(curve[i].offset), y(curve[i].mean), {
      stroke: surface.paper.accent,
      line: 2,
    });
}
