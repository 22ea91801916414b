// View 8: how many steps each word takes in a model that decides for itself when to stop.
import { api } from "../data/api";
import { useResource } from "../data/resource";
import { colourOf } from "../colours";
import type { Surface } from "../draw/surface";
import { cut, show } from "../math";
import { go, link } from "../state";
import { Loaded, Num, Switch, Title, useWidth } from "../ui/basic";
import { Exports } from "../ui/exports";
import { PictureCanvas } from "../ui/picture";
import { Strip } from "../ui/strip";
import type { ViewProps } from "../views";

interface Ponder {
  tokens: string[];
  steps: number[];
  remainder: number[];
  cost: number;
}

export function PonderView({ trace }: ViewProps) {
  const side = link.value.side === "input" && trace.target ? "input" : "source";
  const data = useResource(`${trace.id} ${side}`, () => api.ponder(trace.id, side === "input" ? side : undefined));
  return (
    <>
      <Title name="Pondering">Each filled box is one step that a word took before it halted.</Title>
      {trace.target ? (
        <div class="controls">
          <Switch
            label="Text"
            value={side}
            options={[
              ["source", "Source"],
              ["input", "What the decoder reads"],
            ]}
            onChange={(value) => go({ side: value === "source" ? null : value })}
          />
        </div>
      ) : null}
      <Loaded from={data}>
        {(value) => (
          <>
            <Strip label="Steps of each token" tokens={value.tokens} weights={value.steps} />
            <Boxes ponder={value} />
            <p class="facts">
              Ponder cost (steps and remainder): <Num value={value.cost} digits={4} />
            </p>
            <details class="numbers" open={value.tokens.length <= 24}>
              <summary>The numbers</summary>
              <table class="table">
                <thead>
                  <tr>
                    <th scope="col">Token</th>
                    <th scope="col" class="right">
                      Steps
                    </th>
                    <th scope="col" class="right">
                      Remainder
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {value.tokens.map((token, index) => (
                    <tr key={index}>
                      <th scope="row">
                        <bdi title={token}>{cut(token, 30)}</bdi>
                      </th>
                      <td class="right">
                        <Num value={value.steps[index]} />
                      </td>
                      <td class="right">
                        <Num value={value.remainder[index]} digits={4} />
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </details>
          </>
        )}
      </Loaded>
    </>
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
        csv={() => [["token", "steps", "remainder"], ...ponder.tokens.map((token, i) => [token, ponder.steps[i], ponder.remainder[i]])]}
        json={() => ponder}
      />
    </div>
  );
}
