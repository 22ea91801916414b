// View 5: local attention: where the model put its window, and the bell inside it.
import { useMemo } from "preact/hooks";
import { api } from "../data/api";
import { asFloats } from "../data/frame";
import { useResource } from "../data/resource";
import { wholeNumber } from "../link";
import type { Surface } from "../draw/surface";
import { cut, rowOf, show } from "../math";
import { go, link } from "../state";
import { Loaded, Num, Title, Token, useWidth } from "../ui/basic";
import { Exports } from "../ui/exports";
import { PictureCanvas } from "../ui/picture";
import { Strip } from "../ui/strip";
import type { ViewProps } from "../views";

interface Local {
  centres: number[];
  window: number;
  sigma: number;
  weights: Float32Array | null;
  rows: string[];
  columns: string[];
}

export function LocalView({ trace }: ViewProps) {
  const data = useResource(trace.id, async (): Promise<Local> => {
    const [local, aligned] = await Promise.all([api.local(trace.id), trace.alignment ? api.alignment(trace.id, "tokens") : null]);
    return {
      ...local,
      weights: aligned && asFloats(aligned),
      rows: (aligned?.header.rows as string[]) ?? trace.target?.tokens ?? [],
      columns: (aligned?.header.columns as string[]) ?? trace.source.tokens,
    };
  });
  return (
    <>
      <Title name="Local attention">For each word it writes, the model chooses a centre and looks only at the words around it.</Title>
      <Loaded from={data}>{(value) => <LocalPicture local={value} />}</Loaded>
    </>
  );
}

function LocalPicture({ local }: { local: Local }) {
  const [box, room] = useWidth();
  const row = wholeNumber(link.value, "row", 0, 0, local.centres.length - 1);
  const centre = local.centres[row];
  const wide = Math.max(16, Math.min(80, (room - 60) / Math.max(local.columns.length, 1)));
  const width = 44 + wide * local.columns.length + 8;
  const weights = useMemo(() => (local.weights ? rowOf(local.weights, local.columns.length, row) : null), [local, row]);
  const paint = (surface: Surface) => paintWindow(surface, local, centre, weights, wide, width);
  return (
    <div ref={box}>
      <Strip
        label="Pick a word that the model wrote"
        tokens={local.rows.slice(0, local.centres.length)}
        picked={row}
        onPick={(index) => go({ row: index })}
      />
      <p class="readout" role="status">
        <span class="pair">
          <Token text={local.rows[row] ?? String(row)} />
        </span>
        <span>
          centre{" "}
          <b class="big">
            <Num value={centre} />
          </b>
        </span>
        <span class="also">
          window ±<Num value={local.window} />, σ <Num value={local.sigma} />
        </span>
      </p>
      <div class="scroll" tabIndex={0} role="region" aria-label="Window over the source">
        {room > 0 ? (
          <PictureCanvas
            width={width}
            height={300}
            paint={paint}
            label={`Window around position ${show(centre)}, ${local.window} to each side`}
          />
        ) : null}
      </div>
      <Exports
        name="local"
        picture={() => ({ width, height: 300, paint })}
        csv={() => [
          ["token", "centre", "from", "to"],
          ...local.centres.map((value, i) => [local.rows[i], value, value - local.window, value + local.window]),
        ]}
        json={() => local}
      />
    </div>
  );
}

function paintWindow(surface: Surface, local: Local, centre: number, weights: Float32Array | null, wide: number, width: number): void {
  const { paper } = surface;
  const bottom = 200;
  const x = (position: number) => 44 + wide * (position + 0.5);
  const y = (value: number) => bottom - 175 * value;
  const from = Math.max(-0.5, centre - local.window - 0.5);
  const to = Math.min(local.columns.length - 0.5, centre + local.window + 0.5);
  surface.box(x(from), y(1), x(to) - x(from), bottom - y(1), { fill: surface.dark ? "#222a3c" : "#eef2fa" });
  for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
    surface.line(44, y(tick), width, y(tick), { stroke: paper.line });
    surface.text(38, y(tick), show(tick, 2), { anchor: "end", colour: paper.soft });
  }
  weights?.forEach((weight, index) =>
    surface.box(x(index) - wide * 0.3, y(weight), wide * 0.6, bottom - y(weight), { fill: surface.dark ? "#4a9bd4" : "#4a98c9" }),
  );
  const bell = (position: number) => Math.exp(-((position - centre) ** 2) / (2 * local.sigma * local.sigma || 1));
  if (local.sigma > 0)
    for (let i = 0; i < 120; i++) {
      const a = from + ((to - from) * i) / 120;
      const b = from + ((to - from) * (i + 1)) / 120;
      surface.line(x(a), y(bell(a)), x(b), y(bell(b)), { stroke: paper.accent, line: 2 });
    }
  surface.line(x(centre), y(1) - 8, x(centre), bottom, { stroke: paper.mark, line: 2, dash: true });
  surface.text(x(centre), 10, "centre", { anchor: "middle", colour: paper.mark, bold: true });
  local.columns.forEach((token, index) =>
    surface.text(x(index), bottom + 8, cut(token, 12), { upwards: true, anchor: "end", bold: index >= from && index <= to }),
  );
}
