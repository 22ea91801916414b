// All layers and heads at a glance: one canvas behind a grid of buttons.
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { api } from "../data/api";
import { useResource } from "../data/resource";
import type { Frame, Part, Trace } from "../data/types";
import { paintCells } from "../draw/canvas";
import { PAPER, type Scale } from "../colours";
import type { Surface } from "../draw/surface";
import { show } from "../math";
import { go, link } from "../state";
import { dark } from "../theme";
import { Loaded, Num, Choice, useWidth } from "../ui/basic";
import { Exports } from "../ui/exports";
import { bestByRelation, orderedHeads, type HeadPlace, type Order } from "./head_order";

const SCALE: Scale = { map: "weights", low: 0, high: 255, power: 0.5 };
const CAPTION = 16;
const MEANS: Record<string, string> = { nsubj: "who", obj: "did what", iobj: "to whom" };
const ORDERS = [
  ["layers", "by layer"],
  ["entropy", "sharpest first"],
  ["diagonal", "most diagonal"],
  ["first", "most on the first token"],
] as const;

export function Overview({ trace, part, layer, heads }: { trace: Trace; part: Part; layer: number; heads: number[] }) {
  const order = (ORDERS.some(([name]) => name === link.value.order) ? link.value.order : "layers") as Order;
  const data = useResource(`${trace.id} ${part.name}`, async () => ({ frame: await api.overview(trace.id, part.name), part }));
  const baseline = trace.heads_baseline;
  const relations = bestByRelation(trace.heads_say?.[part.name]);
  return (
    <section aria-label="All heads">
      <h3>All layers and heads</h3>
      <div class="controls">
        <Choice label="Order" value={order} options={ORDERS} onChange={(value) => go({ order: value === "layers" ? null : value })} />
      </div>
      <Loaded from={data}>
        {(value) => <Grid trace={trace} part={value.part} frame={value.frame} order={order} layer={layer} heads={heads} />}
      </Loaded>
      {relations.length ? (
        <>
          <h4>Which heads follow grammar, counted on parsed sentences</h4>
          <ul class="relations">
            {relations.map((item) => (
              <li key={item.relation}>
                <button type="button" class="plain" onClick={() => go({ layer: item.layer, head: item.head })}>
                  <b>{MEANS[item.relation] ?? item.relation}</b>
                  {MEANS[item.relation] ? ` (${item.relation})` : ""}: best head {item.layer + 1}·{item.head + 1}, right{" "}
                  <Num value={item.percent} unit="%" /> of the time
                  {baseline?.[item.relation] === undefined ? null : (
                    <>
                      {" "}
                      (always one distance away: <Num value={Math.round(100 * baseline[item.relation])} unit="%" />)
                    </>
                  )}
                </button>
              </li>
            ))}
          </ul>
        </>
      ) : null}
    </section>
  );
}

function Grid(props: { trace: Trace; part: Part; frame: Frame; order: Order; layer: number; heads: number[] }) {
  const { trace, part, frame, order } = props;
  const [box, width] = useWidth();
  const canvas = useRef<HTMLCanvasElement>(null);
  const grid = useRef<HTMLDivElement>(null);
  const statistics = trace.statistics?.[part.name];
  const places = useMemo(() => orderedHeads(part.layers, part.heads, order, statistics), [part, order, statistics]);
  const columns = part.heads;
  const cell = Math.max(24, Math.min(104, Math.floor(width / columns)));
  const picture = cell - 6;
  const lines = Math.ceil(places.length / columns);
  const tall = picture + CAPTION + 6;
  const isDark = dark.value;
  useLayoutEffect(() => {
    if (!canvas.current || !width) return;
    paintThumbnails(canvas.current, frame, places, columns, cell, tall, picture, isDark);
    canvas.current.dataset.painted = String(Math.round(performance.now()));
  }, [frame, places, width, isDark]);
  useEffect(() => {
    grid.current?.style.setProperty("--cell", `${cell}px`);
    grid.current?.style.setProperty("--tall", `${tall}px`);
    grid.current?.style.setProperty("--columns", String(columns));
  });
  const measure = (place: HeadPlace) => {
    const known = statistics?.[place.layer]?.[place.head];
    return order === "layers" || !known ? null : known[order];
  };
  const open = (place: HeadPlace) => {
    // Asked for before the page changes, to win time.
    api.weights(trace.id, part.name, place.layer, place.head).catch(() => undefined);
    go({ layer: place.layer, head: place.head });
  };
  const move = (event: KeyboardEvent, index: number) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
    if (!step) return;
    event.preventDefault();
    grid.current?.querySelectorAll<HTMLElement>("button")[index + step]?.focus();
  };
  const paint = (surface: Surface) => paintForExport(surface, frame, places, columns, cell, tall, picture);
  const chosenIndex = places.findIndex((place) => place.layer === props.layer && place.head === props.heads[0]);
  return (
    <div ref={box} class="overview">
      <div class="overview-stage">
        <canvas ref={canvas} aria-hidden="true" />
        <div class="overview-grid" ref={grid} role="group" aria-label="Heads; arrow keys move, Enter opens one">
          {places.map((place, index) => {
            const chosen = place.layer === props.layer && props.heads.includes(place.head);
            const known = statistics?.[place.layer]?.[place.head];
            const says = trace.heads_say?.[part.name]?.[place.layer]?.[place.head];
            const value = measure(place);
            const caption = value === null || value === undefined ? `${place.layer + 1}·${place.head + 1}` : show(value, 2);
            const about =
              `${caption}: layer ${place.layer + 1}, head ${place.head + 1}` +
              (known ? `; entropy ${show(known.entropy)} bits, diagonal ${show(known.diagonal)}, first token ${show(known.first)}` : "") +
              (says ? `; ${says}` : "");
            return (
              <button
                key={`${place.layer}.${place.head}`}
                type="button"
                aria-pressed={chosen}
                aria-label={about}
                title={about}
                tabIndex={index === Math.max(chosenIndex, 0) ? 0 : -1}
                onClick={() => open(place)}
                onKeyDown={(event) => move(event, index)}
              >
                <span class="num" data-value={value ?? undefined}>
                  {caption}
                </span>
              </button>
            );
          })}
        </div>
      </div>
      <Exports
        name={`overview-${part.name}`}
        picture={() => ({ width: cell * columns, height: tall * lines, paint })}
        csv={() => [
          ["layer", "head", "entropy", "diagonal", "first", "does"],
          ...places.map(({ layer, head }) => {
            const known = statistics?.[layer]?.[head];
            return [
              layer + 1,
              head + 1,
              known?.entropy,
              known?.diagonal,
              known?.first,
              trace.heads_say?.[part.name]?.[layer]?.[head] ?? "",
            ];
          }),
        ]}
        json={() => ({ part: part.name, statistics, heads_say: trace.heads_say?.[part.name] ?? null })}
      />
    </div>
  );
}

/** All thumbnails go through one small canvas, each drawn once. */
function paintThumbnails(
  canvas: HTMLCanvasElement,
  frame: Frame,
  places: HeadPlace[],
  columns: number,
  cell: number,
  tall: number,
  picture: number,
  isDark: boolean,
): void {
  const [, heads, high, wide] = frame.header.shape as [number, number, number, number];
  const ratio = Math.min(devicePixelRatio || 1, 2);
  const lines = Math.ceil(places.length / columns);
  canvas.width = Math.round(columns * cell * ratio);
  canvas.height = Math.round(lines * tall * ratio);
  canvas.style.width = `${columns * cell}px`;
  canvas.style.height = `${lines * tall}px`;
  const pen = canvas.getContext("2d")!;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  const small = document.createElement("canvas");
  small.width = wide;
  small.height = high * places.length;
  const image = new ImageData(wide, high * places.length);
  places.forEach((place, index) =>
    paintCells(
      image.data,
      index * high * wide,
      wide,
      high,
      wide,
      frame.numbers,
      (place.layer * heads + place.head) * high * wide,
      SCALE,
      isDark,
    ),
  );
  small.getContext("2d")!.putImageData(image, 0, 0);
  pen.imageSmoothingEnabled = picture < wide;
  pen.strokeStyle = PAPER[isDark ? "dark" : "light"].line;
  places.forEach((_place, index) => {
    const x = (index % columns) * cell + 3;
    const y = Math.floor(index / columns) * tall + 3;
    pen.drawImage(small, 0, index * high, wide, high, x, y, picture, picture);
    pen.strokeRect(x - 0.5, y - 0.5, picture + 1, picture + 1);
  });
}

function paintForExport(
  surface: Surface,
  frame: Frame,
  places: HeadPlace[],
  columns: number,
  cell: number,
  tall: number,
  picture: number,
): void {
  const [, heads, high, wide] = frame.header.shape as [number, number, number, number];
  places.forEach((place, index) => {
    const at = (place.layer * heads + place.head) * high * wide;
    const x = (index % columns) * cell + 3;
    const y = Math.floor(index / columns) * tall + 3;
    surface.cells(x, y, picture, picture, high, wide, frame.numbers.subarray(at, at + high * wide) as Uint8Array, SCALE);
    surface.text(x + picture / 2, y + picture + 9, `${place.layer + 1}·${place.head + 1}`, { anchor: "middle", size: 10 });
  });
}
