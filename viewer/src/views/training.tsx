// View 12: how the model learned, live while it trains.
import uPlot from "uplot";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { api, source, type CurveRow } from "../data/api";
import { useResource } from "../data/resource";
import { headColour, PAPER } from "../colours";
import type { Surface } from "../draw/surface";
import type { Problem } from "../data/types";
import { extent, show, ticks } from "../math";
import { dark } from "../theme";
import { Loaded, Message, Num, Title, useWidth } from "../ui/basic";
import { Exports } from "../ui/exports";
import type { ViewProps } from "../views";
import { curvesOf, linesOf, marksOf, nameOf, saidOf, type Curve, type Mark } from "./training_rows";

export function TrainingView({ model }: ViewProps) {
  const data = useResource(model.id, () => api.curves(model.id));
  const live = useLive(model.id);
  const known = live.known ?? (data.value && { rows: data.value.rows, finished: data.value.finished });
  return (
    <>
      <Title name="Training">How the numbers moved while the model learned.</Title>
      {known ? (
        <>
          {live.problem ? <Message problem={live.problem} /> : null}
          <Charts key={model.id} rows={known.rows} finished={known.finished} paused={live.problem !== null} />
        </>
      ) : (
        <Loaded from={data}>{() => null}</Loaded>
      )}
    </>
  );
}

interface Known {
  rows: CurveRow[];
  finished: boolean;
}

/** What the server tells while the page is open: rows and marks, whether the run has ended, and whether its folder is there. */
function useLive(id: string): { known: Known | null; problem: Problem | null } {
  const [state, setState] = useState<{ known: Known | null; problem: Problem | null }>({ known: null, problem: null });
  useEffect(() => {
    if (!source.live) return;
    // A row may come twice: the step is its name. They are shown in bunches.
    const rows = new Map<number, CurveRow>();
    let finished = false;
    let timer = 0;
    let problem: Problem | null = null;
    const stop = api.followCurves(id, (name, data) => {
      if (name === "lost" || name === "gone") {
        problem = data as Problem;
        return setState((now) => ({ ...now, problem }));
      }
      if (name === "open" || name === "again") rows.clear();
      if (name === "open") return;
      problem = null;
      if (name === "state") finished = (data as Known).finished;
      if (name === "row") {
        const row = data as CurveRow;
        rows.set(row.step, { ...rows.get(row.step), ...row });
      }
      timer ||= window.setTimeout(() => {
        timer = 0;
        setState({ known: { rows: [...rows.values()], finished }, problem });
      }, 200);
    });
    return () => {
      stop();
      clearTimeout(timer);
      setState({ known: null, problem: null });
    };
  }, [id]);
  return state;
}

function Charts({ rows, finished, paused }: { rows: CurveRow[]; finished: boolean; paused: boolean }) {
  const live = !finished && source.live && !paused;
  const curves = useMemo(() => curvesOf(rows), [rows]);
  const marks = useMemo(() => marksOf(rows), [rows]);
  if (!curves.length)
    return <p role="status">{live ? "The run has begun; the first numbers come soon." : "The log of this run is empty."}</p>;
  return (
    <>
      <p class="facts" role="status">
        {live ? <b class="live">● live</b> : finished ? "Finished" : "Stopped"}, {rows.length} rows, last step{" "}
        <Num value={Math.max(...rows.map((row) => row.step))} />
        {marks.length ? `; ${saidOf(marks)}` : ""}.
      </p>
      <div class="charts">
        {curves.map((curve, index) => (
          <Chart key={curve.name} curve={curve} marks={marks} index={index} />
        ))}
      </div>
      <Exports
        name="training"
        csv={() => [
          ["step", "name", "value"],
          ...curves.flatMap((curve) => curve.steps.map((step, i) => [step, curve.name, curve.values[i]])),
        ]}
        json={() => rows}
      />
    </>
  );
}

function Chart({ curve, marks, index }: { curve: Curve; marks: Mark[]; index: number }) {
  const [box, width] = useWidth();
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const marksNow = useRef(marks);
  marksNow.current = marks;
  const isDark = dark.value;
  const colour = headColour(index, isDark);
  useEffect(() => {
    if (!width || !place.current) return;
    const paper = PAPER[isDark ? "dark" : "light"];
    const axis = { stroke: paper.soft, grid: { stroke: paper.line, width: 1 }, ticks: { stroke: paper.line } };
    const made = new uPlot(
      {
        width,
        height: 210,
        legend: { show: true, live: true },
        scales: { x: { time: false } },
        cursor: { sync: { key: "training" }, points: { size: 7 } },
        series: [
          { label: "step" },
          {
            label: curve.title,
            stroke: colour,
            width: 2,
            spanGaps: true,
            points: { show: curve.steps.length < 40 },
            value: (_u, value) => (value === null ? "–" : show(value, 4)),
          },
        ],
        axes: [axis, { ...axis, size: 62, values: (_u, values) => values.map((value) => axisNumber(value)) }],
        hooks: { draw: [(u) => paintMarks(u, marksNow.current, paper.soft, paper.mark)] },
      },
      [curve.steps, curve.values],
      place.current,
    );
    plot.current = made;
    return () => {
      made.destroy();
      plot.current = null;
    };
  }, [width, isDark, colour, curve.name]);
  useEffect(() => plot.current?.setData([curve.steps, curve.values]), [curve, marks]);
  const [low, high] = extent(curve.values);
  const last = curve.values[curve.values.length - 1];
  const digits = Math.abs(high) < 0.01 ? 6 : 3;
  return (
    <section class="chart" ref={box} aria-label={curve.title}>
      <h3>
        {curve.title}{" "}
        <span class="now">
          now <Num value={last} digits={digits} /> · lowest <Num value={low} digits={digits} /> · highest{" "}
          <Num value={high} digits={digits} />
        </span>
      </h3>
      <div ref={place} role="img" aria-label={`${curve.title} by step: first ${show(curve.values[0])}, last ${show(last)}`} />
      <Exports
        name={`curve-${curve.name}`}
        picture={() => ({ width: 640, height: 300, paint: (surface) => paintCurve(surface, curve, marks, colour) })}
      />
    </section>
  );
}

const axisNumber = (value: number) =>
  value !== 0 && Math.abs(value) < 0.01 ? value.toExponential(1).replaceAll("-", "−") : show(value, 2);

function paintMarks(u: uPlot, marks: Mark[], soft: string, red: string): void {
  const pen = u.ctx;
  pen.save();
  pen.textAlign = "left";
  pen.font = `${11 * devicePixelRatio}px system-ui`;
  const places = marks.map((mark) => ({ x: u.valToPos(mark.step, "x", true), wide: pen.measureText(nameOf(mark)).width + 10 }));
  const lines = linesOf(places);
  marks.forEach((mark, at) => {
    const { x } = places[at];
    if (x < u.bbox.left || x > u.bbox.left + u.bbox.width) return;
    pen.strokeStyle = mark.what === "skipped" ? red : soft;
    pen.fillStyle = pen.strokeStyle;
    pen.setLineDash(mark.what === "skipped" ? [2, 3] : [6, 4]);
    pen.beginPath();
    pen.moveTo(x, u.bbox.top);
    pen.lineTo(x, u.bbox.top + u.bbox.height);
    pen.stroke();
    pen.fillText(nameOf(mark), x + 4, u.bbox.top + (12 + 13 * lines[at]) * devicePixelRatio);
  });
  pen.restore();
}

function paintCurve(surface: Surface, curve: Curve, marks: Mark[], colour: string): void {
  const [left, right, top, bottom] = [64, 624, 34, 262];
  const [x0, x1] = extent(curve.steps);
  const [y0, y1] = extent(curve.values);
  const x = (step: number) => left + ((step - x0) / (x1 - x0 || 1)) * (right - left);
  const y = (value: number) => bottom - ((value - y0) / (y1 - y0 || 1)) * (bottom - top);
  surface.text(left, 16, curve.title, { bold: true, size: 14 });
  for (const tick of ticks(x0, x1, 6)) surface.text(x(tick), bottom + 16, show(tick), { anchor: "middle", colour: surface.paper.soft });
  for (const tick of ticks(y0, y1, 5)) {
    surface.line(left, y(tick), right, y(tick), { stroke: surface.paper.line });
    surface.text(left - 6, y(tick), show(tick, 4), { anchor: "end", colour: surface.paper.soft });
  }
  const lines = linesOf(marks.map((mark) => ({ x: x(mark.step), wide: 6 * nameOf(mark).length + 8 })));
  marks.forEach((mark, at) => {
    surface.line(x(mark.step), top, x(mark.step), bottom, {
      stroke: mark.what === "skipped" ? surface.paper.mark : surface.paper.soft,
      dash: true,
    });
    surface.text(x(mark.step) + 3, top + 6 + 12 * lines[at], nameOf(mark), { size: 10, colour: surface.paper.soft });
  });
  for (let i = 1; i < curve.steps.length; i++)
    surface.line(x(curve.steps[i - 1]), y(curve.values[i - 1]), x(curve.steps[i]), y(curve.values[i]), { stroke: colour, line: 2 });
  surface.text((left + right) / 2, bottom + 32, "step", { anchor: "middle", colour: surface.paper.soft });
}
