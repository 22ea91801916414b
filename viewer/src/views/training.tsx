// View 12: how the model learned, live while it trains.
import uPlot from "uplot";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { api, source, type CurveRow } from "../data/api";
import { useResource } from "../data/resource";
import { headColour, PAPER } from "../colours";
import type { Surface } from "../draw/surface";
import { extent, show, ticks } from "../math";
import { dark } from "../theme";
import { Loaded, Num, Title, useWidth } from "../ui/basic";
import { Exports } from "../ui/exports";
import type { ViewProps } from "../views";
import { curvesOf, marksOf, type Curve, type Mark } from "./training_rows";

export function TrainingView({ model }: ViewProps) {
  const data = useResource(model.id, () => api.curves(model.id));
  return (
    <>
      <Title name="Training">How the numbers moved while the model learned.</Title>
      <Loaded from={data}>{(value) => <Charts key={model.id} id={model.id} first={value.rows} finished={value.finished} />}</Loaded>
    </>
  );
}

function Charts({ id, first, finished }: { id: string; first: CurveRow[]; finished: boolean }) {
  const [rows, setRows] = useState(first);
  const live = !finished && source.live;
  useEffect(() => {
    if (!live) return;
    // Rows may come twice: the step is their name. They are shown in bunches.
    let known = byStep(first);
    let timer = 0;
    const soon = () => {
      timer ||= window.setTimeout(() => {
        timer = 0;
        setRows([...known.values()]);
      }, 200);
    };
    const stop = api.followCurves(
      id,
      (row) => {
        known.set(row.step, { ...known.get(row.step), ...row });
        soon();
      },
      () => {
        known = new Map();
      },
    );
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [id, live]);
  const curves = useMemo(() => curvesOf(rows), [rows]);
  const marks = useMemo(() => marksOf(rows), [rows]);
  if (!curves.length)
    return <p role="status">{live ? "The run has begun; the first numbers come soon." : "The log of this run is empty."}</p>;
  return (
    <>
      <p class="facts" role="status">
        {live ? <b class="live">● live</b> : "Finished"}, {rows.length} rows, last step <Num value={rows[rows.length - 1].step} />
        {marks.length
          ? `; resumed: ${marks.filter((m) => m.what === "resumed").length}, skipped steps: ${marks.filter((m) => m.what === "skipped").length}`
          : ""}
        .
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

function byStep(rows: CurveRow[]): Map<number, CurveRow> {
  const known = new Map<number, CurveRow>();
  for (const row of rows) known.set(row.step, { ...known.get(row.step), ...row });
  return known;
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
  useEffect(() => plot.current?.setData([curve.steps, curve.values]), [curve]);
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
  for (const mark of marks) {
    const x = u.valToPos(mark.step, "x", true);
    if (x < u.bbox.left || x > u.bbox.left + u.bbox.width) continue;
    pen.strokeStyle = mark.what === "skipped" ? red : soft;
    pen.fillStyle = pen.strokeStyle;
    pen.setLineDash(mark.what === "skipped" ? [2, 3] : [6, 4]);
    pen.beginPath();
    pen.moveTo(x, u.bbox.top);
    pen.lineTo(x, u.bbox.top + u.bbox.height);
    pen.stroke();
    pen.font = `${11 * devicePixelRatio}px system-ui`;
    pen.fillText(mark.what, x + 4, u.bbox.top + 12 * devicePixelRatio);
  }
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
  for (const mark of marks) {
    surface.line(x(mark.step), top, x(mark.step), bottom, {
      stroke: mark.what === "skipped" ? surface.paper.mark : surface.paper.soft,
      dash: true,
    });
    surface.text(x(mark.step) + 3, top + 6, mark.what, { size: 10, colour: surface.paper.soft });
  }
  for (let i = 1; i < curve.steps.length; i++)
    surface.line(x(curve.steps[i - 1]), y(curve.values[i - 1]), x(curve.steps[i]), y(curve.values[i]), { stroke: colour, line: 2 });
  surface.text((left + right) / 2, bottom + 32, "step", { anchor: "middle", colour: surface.paper.soft });
}
