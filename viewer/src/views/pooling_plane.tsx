// The plane of keys and values: points and query to drag, weights as bars, the result as a point and a curve.
import { useRef, useState } from "preact/hooks";
import { colourOf, PAPER, type Scale } from "../colours";
import type { Surface } from "../draw/surface";
import { clamp, show, ticks } from "../math";
import { bound, pooled, poolingWeights, round, type Pair, type Score } from "../pooling_math";
import { go } from "../state";
import { dark } from "../theme";
import { useWidth } from "../ui/basic";
import { Exports } from "../ui/exports";

const HEIGHT = 380;
const BARS = 90;
const EDGE = 34;
const TOP = 20;

interface PlaneProps {
  pairs: Pair[];
  score: Score;
  width: number;
  query: number;
  weights: number[];
  result: number | null;
  onPairs: (pairs: Pair[]) => void;
}

const WEIGHT_COLOUR: Scale = { map: "weights", low: -0.25, high: 0.5, power: 1 };

export function Plane(props: PlaneProps) {
  const [box, room] = useWidth();
  const svg = useRef<SVGSVGElement>(null);
  const [held, setHeld] = useState<number | "query" | null>(null);
  const paper = PAPER[dark.value ? "dark" : "light"];
  const width = Math.min(Math.max(room, 200), 980);
  const x = (key: number) => EDGE + ((key + 3) / 6) * (width - 2 * EDGE);
  const y = (value: number) => TOP + ((3 - value) / 6) * (HEIGHT - TOP - 12);
  const { pairs, weights, query, result } = props;
  const move = (event: PointerEvent) => {
    if (held === null || !svg.current) return;
    const bounds = svg.current.getBoundingClientRect();
    const key = round(bound(((event.clientX - bounds.left - EDGE) / (width - 2 * EDGE)) * 6 - 3));
    const value = round(bound(3 - ((event.clientY - bounds.top - TOP) / (HEIGHT - TOP - 12)) * 6));
    if (held === "query") go({ q: key });
    else props.onPairs(pairs.map((pair, index) => (index === held ? { key, value } : pair)));
  };
  const hold = (what: number | "query") => (event: PointerEvent) => {
    event.preventDefault();
    svg.current?.setPointerCapture(event.pointerId);
    setHeld(what);
  };
  const nudge = (event: KeyboardEvent, index: number) => {
    const step = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] }[event.key];
    if (step)
      props.onPairs(
        pairs.map((pair, at) =>
          at === index ? { key: round(bound(pair.key + step[0])), value: round(bound(pair.value + step[1])) } : pair,
        ),
      );
    else if (event.key === "Delete" && pairs.length > 1) props.onPairs(pairs.filter((_, at) => at !== index));
    else return;
    event.preventDefault();
  };
  const turn = (event: KeyboardEvent) => {
    const step = { ArrowLeft: -0.1, ArrowRight: 0.1, ArrowDown: -0.1, ArrowUp: 0.1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    go({ q: round(bound(query + step)) });
  };
  const base = HEIGHT + BARS;
  const most = Math.max(...weights, 1e-9);
  return (
    <div ref={box}>
      {room > 0 ? (
        <svg
          ref={svg}
          class="plane"
          width={width}
          height={base + 22}
          role="group"
          aria-label="Keys, values, query and result"
          onPointerMove={move}
          onPointerUp={() => setHeld(null)}
          onPointerCancel={() => setHeld(null)}
          onPointerDown={(event) => {
            if (event.target === svg.current) {
              hold("query")(event);
            }
          }}
        >
          {ticks(-3, 3, 6).map((tick) => (
            <g key={tick} aria-hidden="true" pointer-events="none">
              <line x1={x(tick)} x2={x(tick)} y1={TOP} y2={HEIGHT - 12} stroke={paper.line} />
              <line x1={x(-3)} x2={x(3)} y1={y(tick)} y2={y(tick)} stroke={paper.line} />
              <text x={x(tick)} y={base + 16} text-anchor="middle" font-size="12" fill={paper.soft}>
                {show(tick)}
              </text>
              <text x={x(-3) - 8} y={y(tick) + 4} text-anchor="end" font-size="12" fill={paper.soft}>
                {show(tick)}
              </text>
            </g>
          ))}
          <path d={curvePath(props, x, y)} fill="none" stroke={paper.accent} stroke-width="2.5" pointer-events="none" />
          {pairs.map((pair, index) => (
            <g key={index} pointer-events="none" aria-hidden="true">
              <line
                x1={x(query)}
                y1={y(result ?? 0)}
                x2={x(pair.key)}
                y2={y(pair.value)}
                stroke={paper.mark}
                stroke-width={1 + 3 * weights[index]}
                opacity={result === null ? 0 : Math.min(1, 1.5 * weights[index])}
              />
              <rect
                x={x(pair.key) - 7}
                width="14"
                y={base - (BARS - 22) * (weights[index] / most)}
                height={(BARS - 22) * (weights[index] / most)}
                fill={paper.mark}
                opacity="0.85"
              />
              {weights[index] >= 0.01 && width > 500 ? (
                <text
                  x={x(pair.key)}
                  y={base - (BARS - 22) * (weights[index] / most) - 4}
                  text-anchor="middle"
                  font-size="11"
                  fill={paper.ink}
                >
                  {weights[index].toFixed(2)}
                </text>
              ) : null}
            </g>
          ))}
          <line x1={x(-3)} x2={x(3)} y1={base} y2={base} stroke={paper.soft} pointer-events="none" />
          <g
            class="handle"
            tabIndex={0}
            role="slider"
            aria-label="Query"
            aria-valuemin={-3}
            aria-valuemax={3}
            aria-valuenow={query}
            onPointerDown={hold("query")}
            onKeyDown={turn}
          >
            <line x1={x(query)} x2={x(query)} y1={16} y2={base} stroke="transparent" stroke-width="18" />
            <line x1={x(query)} x2={x(query)} y1={16} y2={base} stroke={paper.mark} stroke-width="2" />
            <text x={clamp(x(query), 30, width - 30)} y={11} text-anchor="middle" font-size="13" font-weight="600" fill={paper.mark}>
              query
            </text>
          </g>
          {pairs.map((pair, index) => (
            <circle
              key={index}
              class="handle"
              cx={x(pair.key)}
              cy={y(pair.value)}
              r="9"
              tabIndex={0}
              role="slider"
              aria-label={`Pair ${index + 1}: key ${show(pair.key, 2)}, value ${show(pair.value, 2)}, weight ${show(weights[index])}. Arrows move it, Delete removes it.`}
              aria-valuemin={-3}
              aria-valuemax={3}
              aria-valuenow={pair.key}
              fill={colourOf(WEIGHT_COLOUR, weights[index], dark.value)}
              stroke={paper.ink}
              stroke-width="1.5"
              onPointerDown={hold(index)}
              onKeyDown={(event) => nudge(event, index)}
            />
          ))}
          {result === null ? null : (
            <g pointer-events="none" aria-hidden="true">
              <path d={`M${x(query)} ${y(result) - 10}l10 10l-10 10l-10 -10z`} fill={paper.mark} stroke={paper.back} stroke-width="2" />
            </g>
          )}
        </svg>
      ) : null}
      <Exports
        name="pooling"
        picture={() => ({ width, height: base + 22, paint: (surface) => paintPlane(surface, props, x, y, width, base) })}
        csv={() => [["key", "value", "weight"], ...pairs.map((pair, index) => [pair.key, pair.value, weights[index]])]}
        json={() => ({ query, score: props.score, h: props.width, pairs, weights, result })}
      />
    </div>
  );
}

function samples(props: PlaneProps): [number, number | null][] {
  return Array.from({ length: 241 }, (_, i) => {
    const key = -3 + i / 40;
    return [key, pooled(poolingWeights(key, props.pairs, props.score, props.width), props.pairs)];
  });
}

function curvePath(props: PlaneProps, x: (k: number) => number, y: (v: number) => number): string {
  let path = "";
  let pen = "M";
  for (const [key, value] of samples(props)) {
    if (value === null) pen = "M";
    else {
      path += `${pen}${x(key).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = "L";
    }
  }
  return path || "M0 0";
}

function paintPlane(
  surface: Surface,
  props: PlaneProps,
  x: (k: number) => number,
  y: (v: number) => number,
  width: number,
  base: number,
): void {
  const { paper } = surface;
  for (const tick of ticks(-3, 3, 6)) {
    surface.line(x(tick), TOP, x(tick), HEIGHT - 12, { stroke: paper.line });
    surface.line(EDGE, y(tick), width - EDGE, y(tick), { stroke: paper.line });
    surface.text(x(tick), base + 12, show(tick), { anchor: "middle", colour: paper.soft });
  }
  const line = samples(props);
  for (let i = 1; i < line.length; i++) {
    const [a, b] = [line[i - 1], line[i]];
    if (a[1] !== null && b[1] !== null) surface.line(x(a[0]), y(a[1]), x(b[0]), y(b[1]), { stroke: paper.accent, line: 2.5 });
  }
  const most = Math.max(...props.weights, 1e-9);
  props.pairs.forEach((pair, index) => {
    const tall = (BARS - 22) * (props.weights[index] / most);
    surface.box(x(pair.key) - 7, base - tall, 14, tall, { fill: paper.mark });
    surface.dot(x(pair.key), y(pair.value), 8, { fill: colourOf(WEIGHT_COLOUR, props.weights[index], surface.dark), stroke: paper.ink });
  });
  surface.line(x(props.query), 16, x(props.query), base, { stroke: paper.mark, line: 2 });
  if (props.result !== null) surface.dot(x(props.query), y(props.result), 9, { fill: paper.mark, stroke: paper.back, line: 2 });
}
