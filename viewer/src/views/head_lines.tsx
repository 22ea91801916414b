// Two columns of tokens with a line for each weight; only what is in sight is drawn.
import type { ComponentChildren } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import { headColour } from "../colours";
import type { Surface } from "../draw/surface";
import { cut } from "../math";
import { Exports } from "../ui/exports";
import { PictureCanvas } from "../ui/picture";
import { useWidth } from "../ui/basic";
import type { Part } from "../data/types";
import { strongEdges, type Edge } from "./head_edges";

const TALL = 22;
const TOP = 26;
const MOST_HEIGHT = 560;

interface LinesProps {
  part: Part;
  layer: number;
  heads: number[];
  weights: Float32Array[];
  rows: string[];
  columns: string[];
  threshold: number;
  row: number;
  onPick: (row: number) => void;
}

export function Lines(props: LinesProps) {
  const { rows, columns, weights, heads, threshold } = props;
  const [box, width] = useWidth();
  const scroller = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [hover, setHover] = useState<number | null>(null);
  const edges = useMemo(() => strongEdges(weights, heads, columns.length, threshold), [weights, heads, columns, threshold]);
  const total = TOP + TALL * Math.max(rows.length, columns.length) + 6;
  const height = Math.min(total, MOST_HEIGHT);
  const pinned = hover ?? props.row;
  const paint = (offset: number, visible: number) => (surface: Surface) =>
    paintLines(surface, { ...props, edges, width, offset, visible, pinned, hover });
  const rowAt = (x: number, y: number) => {
    const index = Math.floor((y + top - TOP) / TALL);
    return x < width / 2 && index >= 0 && index < rows.length ? index : null;
  };
  const onKey = (key: string) => {
    const step = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10, Home: -rows.length, End: rows.length }[key];
    if (!step) return false;
    const next = Math.min(Math.max(props.row + step, 0), rows.length - 1);
    props.onPick(next);
    const place = TOP + TALL * next;
    if (scroller.current && (place < top || place > top + height - 2 * TALL)) scroller.current.scrollTop = place - height / 2;
    return true;
  };
  return (
    <div ref={box}>
      <div class="lines" ref={scroller} onScroll={(event) => setTop(event.currentTarget.scrollTop)}>
        {width > 0 ? (
          <Stage total={total}>
            <PictureCanvas
              class="sticky"
              width={width - 2}
              height={height}
              paint={paint(top, height)}
              label="Lines from each word to the words it looks at. Up and down choose a word."
              onPoint={(x, y) => setHover(rowAt(x, y))}
              onLeave={() => setHover(null)}
              onClick={(x, y) => {
                const index = rowAt(x, y);
                if (index !== null) props.onPick(index);
              }}
              onKey={onKey}
            />
          </Stage>
        ) : null}
      </div>
      <Exports
        name={`heads-${props.part.name}-${props.layer + 1}`}
        picture={() => ({ width, height: total, paint: paint(0, total) })}
        csv={() => [
          ["head", "from", "from token", "to", "to token", "weight"],
          ...edges.map((e) => [e.head + 1, e.row, rows[e.row], e.column, columns[e.column], e.weight]),
        ]}
        json={() => ({ part: props.part.name, layer: props.layer, heads, rows, columns, weights })}
      />
    </div>
  );
}

function Stage({ total, children }: { total: number; children: ComponentChildren }) {
  const set = (element: HTMLDivElement | null) => {
    if (element) element.style.height = `${total}px`;
  };
  return <div ref={set}>{children}</div>;
}

interface LinesPainting extends LinesProps {
  edges: Edge[];
  width: number;
  offset: number;
  visible: number;
  pinned: number;
  hover: number | null;
}

function paintLines(surface: Surface, at: LinesPainting): void {
  const { paper } = surface;
  const side = Math.min(130, at.width * 0.3);
  const left = side + 6;
  const right = at.width - side - 6;
  const y = (index: number) => TOP + TALL * (index + 0.5) - at.offset;
  const outside = (place: number) => place < -TALL || place > at.visible + TALL;
  const reached = new Map<number, number>();
  const draw = (edge: Edge, strong: boolean) => {
    const from = y(edge.row);
    const to = y(edge.column);
    if (Math.max(from, to) < 0 || Math.min(from, to) > at.visible) return;
    const stroke = headColour(edge.head, surface.dark);
    if (strong) surface.curve(left, from, right, to, { stroke, line: 1 + 4 * edge.weight, alpha: 0.35 + 0.65 * edge.weight });
    else surface.curve(left, from, right, to, { stroke, line: 0.5 + 1.5 * edge.weight, alpha: 0.06 + 0.3 * edge.weight });
  };
  for (const edge of at.edges) if (edge.row !== at.pinned) draw(edge, false);
  for (const edge of at.edges)
    if (edge.row === at.pinned) {
      draw(edge, true);
      reached.set(edge.column, Math.max(reached.get(edge.column) ?? 0, edge.weight));
    }
  at.rows.forEach((token, index) => {
    if (outside(y(index))) return;
    const chosen = index === at.pinned;
    if (chosen) surface.box(2, y(index) - TALL / 2 + 1, side + 2, TALL - 2, { fill: paper.line, round: 4 });
    surface.text(side, y(index), cut(token, 15), { anchor: "end", size: 13, bold: chosen, colour: chosen ? paper.mark : paper.ink });
  });
  at.columns.forEach((token, index) => {
    if (outside(y(index))) return;
    const strong = reached.has(index);
    surface.text(at.width - side, y(index), cut(token, 15), { size: 13, bold: strong, colour: strong ? paper.ink : paper.soft });
  });
  surface.box(0, -at.offset, at.width, TOP - 4, { fill: paper.back });
  surface.text(side, TOP / 2 - 2 - at.offset, "looks from", { anchor: "end", size: 11, colour: paper.soft });
  surface.text(at.width - side, TOP / 2 - 2 - at.offset, "to", { size: 11, colour: paper.soft });
}
