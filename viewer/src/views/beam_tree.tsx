// The picture of the search: only the columns in sight are drawn.
import { useRef, useState, useEffect } from "preact/hooks";
import type { Surface } from "../draw/surface";
import { cut, show } from "../math";
import { Num, Token, useWidth } from "../ui/basic";
import { PictureCanvas } from "../ui/picture";
import { neighbour, rankOf, type BeamLayout } from "./beam_layout";

const WIDE = 112;
const TALL = 42;
const BOX = 84;
const TOP = 24;

export function treeSize(layout: BeamLayout): { width: number; height: number } {
  return { width: layout.columns.length * WIDE + 10, height: TOP + layout.lines * TALL + 8 };
}

export function BeamTree(props: { layout: BeamLayout; reference: Set<number>; chosen: number; onChoose: (at: number) => void }) {
  const { layout, reference, chosen } = props;
  const [box, room] = useWidth();
  const scroller = useRef<HTMLDivElement>(null);
  const stage = useRef<HTMLDivElement>(null);
  const [left, setLeft] = useState(0);
  const [hover, setHover] = useState<number | null>(null);
  const size = treeSize(layout);
  const width = Math.min(size.width, Math.max(room - 2, 100));
  useEffect(() => {
    if (stage.current) stage.current.style.width = `${size.width}px`;
  });
  useEffect(() => {
    const place = layout.column[chosen] * WIDE;
    const view = scroller.current;
    if (view && room && (place < view.scrollLeft || place > view.scrollLeft + width - WIDE)) view.scrollLeft = place - width / 2;
  }, [chosen, room, layout]);
  const nodeAt = (x: number, y: number) => layout.columns[Math.floor((x + left) / WIDE)]?.[Math.floor((y - TOP) / TALL)] ?? null;
  const onKey = (key: string) => {
    if (!key.startsWith("Arrow")) return false;
    props.onChoose(neighbour(layout, chosen, key));
    return true;
  };
  const shown = hover ?? chosen;
  const node = layout.nodes[shown];
  return (
    <div ref={box}>
      <p class="readout" role="status">
        <span class="pair">
          <Token text={node.token} />
        </span>
        <span>
          log P{" "}
          <b class="big">
            <Num value={node.total} digits={4} />
          </b>
        </span>
        <span class="also">
          this token <Num value={node.log_prob} digits={4} /> · rank {rankOf(layout, shown) ?? "–"} ·{" "}
          {node.state === "pruned" ? "dropped" : node.state}
        </span>
      </p>
      <div class="tree" ref={scroller} onScroll={(event) => setLeft(event.currentTarget.scrollLeft)}>
        <div ref={stage}>
          {room > 0 ? (
            <PictureCanvas
              class="sticky-left"
              width={width}
              height={size.height}
              paint={(surface) => paintTree(surface, layout, reference, chosen, left, width)}
              label={`Beam search with ${layout.nodes.length} nodes. Arrow keys move: left to the parent, right to the best child.`}
              onPoint={(x, y) => setHover(nodeAt(x, y))}
              onLeave={() => setHover(null)}
              onClick={(x, y) => {
                const at = nodeAt(x, y);
                if (at !== null) props.onChoose(at);
              }}
              onKey={onKey}
            />
          ) : null}
        </div>
      </div>
    </div>
  );
}

export function paintTree(surface: Surface, layout: BeamLayout, reference: Set<number>, chosen: number, left: number, width: number): void {
  const { paper } = surface;
  const from = Math.max(0, Math.floor(left / WIDE) - 1);
  const to = Math.min(layout.columns.length - 1, Math.ceil((left + width) / WIDE));
  const x = (at: number) => layout.column[at] * WIDE + 4 - left;
  const y = (at: number) => TOP + layout.line[at] * TALL + TALL / 2;
  const edge = (at: number, stroke: string, line: number, alpha: number) => {
    const parent = layout.parent[at];
    if (parent >= 0) surface.curve(x(parent) + BOX, y(parent), x(at), y(at), { stroke, line, alpha });
  };
  const last = Math.min(to + 1, layout.columns.length - 1);
  for (const pass of ["plain", "reference", "best"] as const)
    for (let column = from; column <= last; column++)
      for (const at of layout.columns[column]) {
        const node = layout.nodes[at];
        if (pass === "plain" && !node.best) edge(at, paper.soft, node.state === "pruned" ? 0.7 : 1.4, node.state === "pruned" ? 0.45 : 0.9);
        if (pass === "reference" && reference.has(at)) edge(at, surface.dark ? "#ee9fcb" : "#a8508a", 3, 1);
        if (pass === "best" && node.best) edge(at, paper.mark, 3, 1);
      }
  for (let column = from; column <= to; column++) {
    const step = layout.nodes[layout.columns[column][0]]?.step;
    surface.text(column * WIDE + 4 + BOX / 2 - left, 10, step === 0 ? "start" : `step ${step}`, {
      anchor: "middle",
      size: 11,
      colour: paper.soft,
    });
    for (const at of layout.columns[column]) paintNode(surface, layout, at, x(at), y(at), at === chosen, reference.has(at));
  }
}

function paintNode(surface: Surface, layout: BeamLayout, at: number, x: number, y: number, chosen: boolean, referenced: boolean): void {
  const { paper } = surface;
  const node = layout.nodes[at];
  const kept = node.state !== "pruned";
  const fill = chosen ? (surface.dark ? "#4a2c12" : "#ffe9da") : kept ? (surface.dark ? "#23304a" : "#e3edf8") : paper.back;
  const stroke = chosen || node.best ? paper.mark : referenced ? (surface.dark ? "#ee9fcb" : "#a8508a") : kept ? paper.accent : paper.line;
  surface.box(x, y - 17, BOX, 34, { fill, stroke, line: chosen ? 3 : node.best || kept ? 1.6 : 1, round: 6 });
  if (node.state === "finished") surface.box(x + 3, y - 14, BOX - 6, 28, { stroke, line: 1, round: 4 });
  surface.text(x + BOX / 2, y - 6, cut(node.token, 11), {
    anchor: "middle",
    size: 13,
    bold: node.best,
    colour: kept ? paper.ink : paper.soft,
  });
  surface.text(x + BOX / 2, y + 9, show(node.total, 2), { anchor: "middle", size: 10.5, colour: paper.soft });
}
