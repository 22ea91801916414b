// View 9: convolutions: what one place can see, and the pieces of text that won.
import { api } from "../data/api";
import { useResource } from "../data/resource";
import { wholeNumber } from "../link";
import type { Surface } from "../draw/surface";
import type { Trace } from "../data/types";
import { cut } from "../math";
import { go, link } from "../state";
import { Loaded, Num, Title, Token, useWidth } from "../ui/basic";
import { barsPicture } from "../ui/bars_picture";
import { Exports } from "../ui/exports";
import { Formula } from "../ui/formula";
import { PictureCanvas } from "../ui/picture";
import { Strip } from "../ui/strip";
import type { ViewProps } from "../views";
import { GateLayers } from "./recurrent";
import { reachOf, winsOfTokens, type ConvolutionLayer, type Winner } from "./convolution_math";

export function ConvolutionView({ trace }: ViewProps) {
  const data = useResource(trace.id, () => api.convolution(trace.id));
  return (
    <>
      <Title name="Convolutions">What one place can see, what gates let through, and which pieces of text won.</Title>
      <Loaded from={data}>
        {(value) => (
          <>
            {value.winners?.length ? <Winners trace={trace} winners={value.winners} /> : null}
            {value.note ? <p class="facts">{value.note}</p> : null}
            {value.winners?.length && value.layers?.length ? (
              <p class="facts">Windows of {[...new Set(value.layers.map((layer) => layer.kernel))].join(", ")} words slide over the text.</p>
            ) : null}
            {!value.winners?.length && value.layers?.length ? <Reach trace={trace} layers={value.layers} /> : null}
            {value.gates?.length ? (
              <section aria-label="Gates">
                <h3>
                  What the gates let through: <Formula text="h = A ⊗ σ(B)" />
                </h3>
                <p class="hint">Each row is one word, each column one channel. A gate of 0 lets nothing through, one of 1 everything.</p>
                <GateLayers trace={trace} layers={value.gates} of="convolution" />
              </section>
            ) : null}
            {!value.winners?.length && !value.layers?.length ? <p>This model recorded no convolution.</p> : null}
          </>
        )}
      </Loaded>
    </>
  );
}

function Winners({ trace, winners }: { trace: Trace; winners: Winner[] }) {
  const tokens = trace.source.tokens;
  const wins = winsOfTokens(winners, tokens.length);
  const best = [...winners].sort((a, b) => b.score - a.score);
  const chosen = wholeNumber(link.value, "filter", 0, 0, best.length - 1);
  const win = best[chosen];
  return (
    <section aria-label="Winners">
      <h3>How many filters chose each word</h3>
      <Strip label="Words, coloured by the number of filters" tokens={tokens} weights={wins} />
      <h3>Each filter keeps the piece of text that excites it most</h3>
      <div class="scroll tall" tabIndex={0} role="region" aria-label="Filters and their pieces of text">
        <table class="table">
          <thead>
            <tr>
              <th scope="col">Filter</th>
              <th scope="col">Piece of text</th>
              <th scope="col" class="right">
                Score
              </th>
            </tr>
          </thead>
          <tbody>
            {best.slice(0, 200).map((item, index) => (
              <tr key={index} class={index === chosen ? "chosen-row" : undefined}>
                <th scope="row">
                  <button type="button" onClick={() => go({ filter: index })}>
                    {item.filter + 1}
                  </button>
                </th>
                <td>
                  {tokens.slice(item.begin, item.end).map((token, i) => (
                    <>
                      <Token key={i} text={token} />{" "}
                    </>
                  ))}
                </td>
                <td class="right">
                  <Num value={item.score} digits={4} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {win ? (
        <p class="facts">
          Filter {win.filter + 1} looks at words {win.begin + 1} to {win.end}.
        </p>
      ) : null}
      <Exports
        name="winners"
        picture={() =>
          barsPicture([
            {
              bars: best.slice(0, 40).map((item) => ({
                label: tokens
                  .slice(item.begin, item.end)
                  .map((token) => cut(token, 12))
                  .join(" "),
                value: item.score,
              })),
            },
          ])
        }
        csv={() => [
          ["filter", "begin", "end", "text", "score"],
          ...best.map((item) => [item.filter, item.begin, item.end, tokens.slice(item.begin, item.end).join(" "), item.score]),
        ]}
        json={() => best}
      />
    </section>
  );
}

function Reach({ trace, layers }: { trace: Trace; layers: ConvolutionLayer[] }) {
  const tokens = trace.source.tokens;
  const [box, room] = useWidth();
  const row = wholeNumber(link.value, "row", Math.floor(tokens.length / 2), 0, tokens.length - 1);
  const wide = Math.max(18, Math.min(86, (room - 70) / Math.max(tokens.length, 1)));
  const width = 70 + wide * tokens.length + 6;
  const height = 54 * (layers.length + 1) + 60;
  const paint = (surface: Surface) => paintReach(surface, tokens, layers, row, wide, height);
  return (
    <section aria-label="Receptive field" ref={box}>
      <h3>What one place sees</h3>
      <Strip label="Pick a place" tokens={tokens} picked={row} onPick={(index) => go({ row: index })} />
      <div class="scroll" tabIndex={0} role="region" aria-label="Receptive field">
        {room > 0 ? (
          <PictureCanvas
            width={width}
            height={height}
            paint={paint}
            label={`Place ${row + 1} sees ${reachOf(layers, row, tokens.length)[0].length} words through ${layers.length} layers`}
          />
        ) : null}
      </div>
      <Exports
        name="receptive-field"
        picture={() => ({ width, height, paint })}
        json={() => ({ layers, place: row, sees: reachOf(layers, row, tokens.length) })}
      />
    </section>
  );
}

function paintReach(surface: Surface, tokens: string[], layers: ConvolutionLayer[], row: number, wide: number, height: number): void {
  const { paper } = surface;
  const seen = reachOf(layers, row, tokens.length);
  const x = (index: number) => 70 + wide * (index + 0.5);
  const y = (level: number) => height - 70 - 54 * level;
  for (let level = 0; level <= layers.length; level++) {
    surface.text(60, y(level), level === 0 ? "words" : `layer ${level}`, { anchor: "end", size: 11, colour: paper.soft });
    const here = new Set(seen[level]);
    if (level > 0)
      for (const at of here)
        for (const below of reachOf([layers[level - 1]], at, tokens.length)[0])
          surface.line(x(at), y(level), x(below), y(level - 1), { stroke: paper.accent, line: 1.2, alpha: 0.6 });
    tokens.forEach((_, index) =>
      surface.dot(x(index), y(level), 7, {
        fill: here.has(index) ? (level === layers.length ? paper.mark : paper.accent) : paper.back,
        stroke: here.has(index) ? paper.ink : paper.line,
      }),
    );
  }
  tokens.forEach((token, index) =>
    surface.text(x(index), height - 56, cut(token, 8), { upwards: true, anchor: "end", size: 12, bold: seen[0].includes(index) }),
  );
}
