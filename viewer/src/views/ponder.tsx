// View 8: how many steps each word takes in a model that decides for itself when to stop.
import { useMemo } from "preact/hooks";
import { api, type PonderHeader } from "../data/api";
import { useResource } from "../data/resource";
import { colourOf } from "../colours";
import type { Surface } from "../draw/surface";
import { wholeNumber } from "../link";
import { cut, show } from "../math";
import { go, link } from "../state";
import { Loaded, Num, Switch, Title, Token, useWidth } from "../ui/basic";
import { Exports } from "../ui/exports";
import { Matrix, weightScale } from "../ui/matrix";
import { PictureCanvas } from "../ui/picture";
import { Strip } from "../ui/strip";
import type { ViewProps } from "../views";

interface Ponder extends PonderHeader {
  values: Float32Array[];
}

const KINDS = [
  ["chance", "Chance to halt, hₙ"],
  ["sum", "Sum of chances"],
  ["weight", "Weight of the step, pₙ"],
] as const;

export function PonderView({ trace }: ViewProps) {
  const side = link.value.side === "input" && trace.target ? "input" : "source";
  const data = useResource(`${trace.id} ${side}`, async (): Promise<Ponder> => {
    const { header, numbers } = await api.ponder(trace.id, side === "input" ? side : undefined);
    const size = header.shape[1] * header.shape[2];
    return { ...header, values: KINDS.map((_, at) => (numbers as Float32Array).subarray(at * size, (at + 1) * size)) };
  });
  return (
    <>
      <Title name="Pondering">A word thinks on until its chances to halt add up to 1. Each filled box is one step that it took.</Title>
      {trace.target ? (
        <div class="controls">
          <Switch
            label="Text"
            value={side}
            options={[
              ["source", "Source"],
              ["input", "What the decoder reads"],
            ]}
            onChange={(value) => go({ side: value === "source" ? null : value, row: null })}
          />
        </div>
      ) : null}
      <Loaded from={data}>{(value) => <Pondered ponder={value} />}</Loaded>
    </>
  );
}

function Pondered({ ponder }: { ponder: Ponder }) {
  const { tokens, shape } = ponder;
  const row = wholeNumber(link.value, "row", 0, 0, tokens.length - 1);
  return (
    <>
      <Strip label="Steps of each token" tokens={tokens} weights={ponder.steps} picked={row} onPick={(index) => go({ row: index })} />
      <Boxes ponder={ponder} />
      <p class="facts">
        Ponder cost, the mean of N + R: <Num value={ponder.cost} digits={4} />. A word halts when the sum is above 1 − ε ={" "}
        <Num value={1 - ponder.epsilon} digits={2} />, at the latest at step {shape[2]}.
      </p>
      <div class="split">
        <Grid ponder={ponder} row={row} />
        <OneToken ponder={ponder} row={row} />
      </div>
    </>
  );
}

/** Token by step, with exact numbers. */
function Grid({ ponder, row }: { ponder: Ponder; row: number }) {
  const at = Math.max(
    0,
    KINDS.findIndex(([name]) => name === link.value.kind),
  );
  const [kind, title] = KINDS[at];
  const look = useMemo(
    () => ({
      rows: ponder.tokens,
      columns: Array.from({ length: ponder.shape[2] }, (_, i) => `step ${i + 1}`),
      values: ponder.values[at],
      scale: weightScale(ponder.values[at], kind === "sum"),
    }),
    [ponder, at],
  );
  return (
    <div>
      <div class="controls">
        <Switch label="Show" value={kind} options={KINDS} onChange={(value) => go({ kind: value === "chance" ? null : value })} />
      </div>
      <Matrix
        look={look}
        name={`ponder-${kind}`}
        label={`${title}, token by step`}
        chosen={{ row, column: wholeNumber(link.value, "col", 0, 0, ponder.shape[2] - 1) }}
        onChoose={(r, c) => go({ row: r, col: c })}
      />
    </div>
  );
}

function OneToken({ ponder, row }: { ponder: Ponder; row: number }) {
  const most = ponder.shape[2];
  const last = ponder.steps[row];
  return (
    <aside class="side" aria-label="The chosen token">
      <h3>
        <Token text={ponder.tokens[row]} />: N = {last}, R = <Num value={ponder.remainder[row]} digits={4} />
      </h3>
      <table class="table" data-token={row}>
        <thead>
          <tr>
            <th scope="col">Step</th>
            {["hₙ", "Σ h", "pₙ"].map((name) => (
              <th key={name} scope="col" class="right">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {Array.from({ length: most }, (_, step) => (
            <tr key={step} class={step + 1 === last ? "chosen-row" : step >= last ? "after" : undefined}>
              <th scope="row">{step + 1}</th>
              {ponder.values.map((values, kind) => (
                <td key={kind} class="right">
                  <Num value={values[row * most + step]} digits={4} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      <p class="hint">
        At step N = {last} the word halts: that step gets as its weight the remainder R, 1 less all chances before. Later steps count
        nothing.
      </p>
    </aside>
  );
}

function Boxes({ ponder }: { ponder: Ponder }) {
  const [box, room] = useWidth();
  const most = Math.max(1, ...ponder.steps.map(Math.ceil));
  const wide = Math.max(18, Math.min(64, (room - 60) / Math.max(ponder.tokens.length, 1)));
  const width = 44 + wide * ponder.tokens.length + 6;
  const height = 24 * most + 96;
  const paint = (surface: Surface) => {
    const bottom = 24 * most + 6;
    for (let step = 1; step <= most; step++)
      surface.text(36, bottom - 24 * (step - 0.5), String(step), { anchor: "end", colour: surface.paper.soft });
    ponder.tokens.forEach((token, index) => {
      const x = 44 + wide * index;
      for (let step = 0; step < Math.ceil(ponder.steps[index]); step++)
        surface.box(x + 2, bottom - 24 * (step + 1) + 2, wide - 4, 20, {
          fill: colourOf({ map: "weights", low: -1, high: most, power: 1 }, step + 1, surface.dark),
          round: 3,
        });
      surface.text(x + wide / 2, bottom + 8, cut(token, 11), { upwards: true, anchor: "end" });
    });
    surface.line(44, bottom, width, bottom, { stroke: surface.paper.soft });
  };
  return (
    <div ref={box}>
      <div class="scroll" tabIndex={0} role="region" aria-label="Steps of each token">
        {room > 0 ? (
          <PictureCanvas
            width={width}
            height={height}
            paint={paint}
            label={`Steps: ${ponder.tokens.map((token, i) => `${cut(token, 20)} ${show(ponder.steps[i])}`).join(", ")}`}
          />
        ) : null}
      </div>
      <Exports
        name="ponder"
        picture={() => ({ width, height, paint })}
        csv={() => [
          ["token", "step", ...KINDS.map(([name]) => name), "steps", "remainder"],
          ...Array.from(ponder.values[0], (_, i) => {
            const token = Math.floor(i / ponder.shape[2]);
            const own = ponder.values.map((values) => values[i]);
            return [ponder.tokens[token], (i % ponder.shape[2]) + 1, ...own, ponder.steps[token], ponder.remainder[token]];
          }),
        ]}
        json={() => ponder}
      />
    </div>
  );
}
