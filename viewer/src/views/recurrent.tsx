// View 4: gates and states of a recurrent layer, word by word.
import { useMemo } from "preact/hooks";
import { api, type RecurrentLayer } from "../data/api";
import { asFloats } from "../data/frame";
import { useResource } from "../data/resource";
import type { Trace } from "../data/types";
import { aroundZero } from "../colours";
import { wholeNumber } from "../link";
import { extent, rowOf } from "../math";
import { go, link } from "../state";
import { Bars } from "../ui/bars";
import { Choice, Loaded, Switch, Title } from "../ui/basic";
import { Matrix } from "../ui/matrix";
import { Strip } from "../ui/strip";
import type { ViewProps } from "../views";
import { tokensOf } from "./heads";

export function RecurrentView({ trace }: ViewProps) {
  const list = useResource(trace.id, () => api.recurrent(trace.id));
  return (
    <>
      <Title name="States over time">Each row is one word in time; each column is one cell of the layer.</Title>
      <Loaded from={list}>
        {(value) =>
          value.layers.length ? (
            <GateLayers trace={trace} layers={value.layers} of="recurrent" />
          ) : (
            <p>This model recorded no recurrent layer.</p>
          )
        }
      </Loaded>
    </>
  );
}

/** Layers with gates, token by channel: one layer and one of its gates at a time. */
export function GateLayers({ trace, layers, of }: { trace: Trace; layers: RecurrentLayer[]; of: "recurrent" | "convolution" }) {
  const layer = layers.find((item) => item.name === link.value.rnn) ?? layers[0];
  const gate = layer.gates.includes(link.value.gate ?? "") ? link.value.gate : layer.gates[0];
  const data = useResource(`${trace.id} ${layer.name} ${gate}`, async () => {
    const frame = await api.gate(trace.id, of, layer.name, gate);
    return { layer, gate, values: asFloats(frame), width: frame.header.shape?.[1] ?? layer.width };
  });
  return (
    <>
      <div class="controls">
        <Choice
          label="Layer"
          value={layer.name}
          options={layers.map((item) => [item.name, item.name] as const)}
          onChange={(rnn) => go({ rnn, gate: null, row: null })}
        />
        <Switch
          label="Gate or state"
          value={gate}
          options={layer.gates.map((name) => [name, name] as const)}
          onChange={(name) => go({ gate: name })}
        />
      </div>
      <Loaded from={data}>{(value) => <GatePicture trace={trace} of={of} {...value} />}</Loaded>
    </>
  );
}

/** Where the decoder looks at this moment. */
function NowLooking({ trace, row }: { trace: Trace; row: number }) {
  const data = useResource(trace.id, async () => {
    const frame = await api.alignment(trace.id, "tokens");
    return { values: asFloats(frame), columns: frame.header.columns as string[] };
  });
  return (
    <Loaded from={data}>
      {({ values, columns }) => {
        const last = Math.round(values.length / columns.length) - 1;
        return (
          <>
            <p class="hint">Where the decoder looks now:</p>
            <Strip label="Where the decoder looks now" tokens={columns} weights={rowOf(values, columns.length, Math.min(row, last))} />
          </>
        );
      }}
    </Loaded>
  );
}

function GatePicture({
  trace,
  of,
  layer,
  gate,
  values,
  width,
}: {
  trace: Trace;
  of: string;
  layer: RecurrentLayer;
  gate: string;
  values: Float32Array;
  width: number;
}) {
  const tokens = tokensOf(trace, layer.tokens);
  const look = useMemo(() => {
    const count = Math.round(values.length / width);
    const [low, high] = extent(values);
    return {
      rows: Array.from({ length: count }, (_, i) => tokens[i] ?? String(i)),
      columns: Array.from({ length: width }, (_, i) => String(i)),
      values,
      scale: low >= 0 ? ({ map: "weights", low: 0, high: Math.max(1, high), power: 1 } as const) : aroundZero(low, high),
    };
  }, [values, width, tokens]);
  const row = wholeNumber(link.value, "row", 0, 0, look.rows.length - 1);
  const norms = look.rows.map((label, index) => {
    const line = rowOf(values, width, index);
    const value = look.scale.map === "weights" ? line.reduce((a, b) => a + b, 0) / width : Math.hypot(...line);
    return { label, value, marked: index === row };
  });
  return (
    <>
      <Strip label="Pick a moment" tokens={look.rows} picked={row} onPick={(index) => go({ row: index })} />
      {layer.tokens !== "source" && trace.alignment ? <NowLooking trace={trace} row={row} /> : null}
      <div class="split">
        <Matrix
          flat
          look={look}
          name={`${of}-${layer.name}-${gate}`}
          label={`${gate} of ${layer.name}, word by cell`}
          named={(token, cell) => `${token}, ${of === "recurrent" ? "cell" : "channel"} ${cell}`}
          chosen={{ row, column: wholeNumber(link.value, "col", 0, 0, width - 1) }}
          onChoose={(r, c) => go({ row: r, col: c })}
        />
        <aside class="side" aria-label="Over time">
          <h3>{look.scale.map === "weights" ? "How open, on average" : "Length of the vector"}</h3>
          <Bars
            label="Over time"
            limit={20}
            bars={norms}
            most={look.scale.map === "weights" ? 1 : undefined}
            onPick={(index) => go({ row: index })}
          />
        </aside>
      </div>
    </>
  );
}
