// View 11: what a language model expects: the next word, layer by layer; how surprised it was; words for gaps.
import { api, type NextAnswer } from "../data/api";
import { useResource } from "../data/resource";
import type { Guess, Model } from "../data/types";
import { colourOf, inkOn, type Scale } from "../colours";
import { go, text } from "../state";
import { cut, extent, percent, show } from "../math";
import { dark } from "../theme";
import { Bars } from "../ui/bars";
import { barsPicture } from "../ui/bars_picture";
import { Loaded, Num, Title, Token } from "../ui/basic";
import { Exports } from "../ui/exports";
import { Legend } from "../ui/matrix";
import type { ViewProps } from "../views";
import type { Surface } from "../draw/surface";
import { useEffect, useRef } from "preact/hooks";

const TOP = 10;

export function LanguageView({ model }: ViewProps) {
  return model.does === "fills" ? <Fill model={model} /> : <Next model={model} />;
}

const nameOf = (guess: Guess) => guess.token ?? guess.word ?? "";

function Next({ model }: { model: Model }) {
  const sentence = text.value;
  const data = useResource(`${model.id} ${sentence}`, () => api.next(model.id, sentence, TOP));
  const add = (guess: Guess) => go({ text: appended(sentence, nameOf(guess)) });
  return (
    <>
      <Title name="Next word">How surprised the model was by each token, and what it expects next.</Title>
      <Loaded from={data}>
        {(value) => (
          <>
            <Surprisal tokens={value.tokens} />
            <div class="split even">
              <section aria-label="Next word">
                <h3>What comes next</h3>
                <Bars
                  label="Probability of the next token"
                  most={1}
                  digits={4}
                  bars={value.next.map((guess) => ({ label: nameOf(guess), value: guess.probability }))}
                  onPick={(index) => add(value.next[index])}
                />
                <p class="hint">Click a token to add it to the sentence.</p>
              </section>
              {value.layers.length ? <Layers layers={value.layers} /> : <p class="hint">This model has no layers to look into.</p>}
            </div>
            <Exports
              name="next"
              picture={value.tokens.length ? () => surprisalPicture(value) : undefined}
              csv={() => [
                ["token", "surprisal in bits"],
                ...value.tokens.map((item) => [item.token, item.surprisal]),
                [],
                ["next token", "probability"],
                ...value.next.map((guess) => [nameOf(guess), guess.probability]),
              ]}
              json={() => value}
            />
          </>
        )}
      </Loaded>
    </>
  );
}

/** A token with a mark of a space begins a word. */
export function appended(sentence: string, token: string): string {
  if (/^[▁Ġ ]/.test(token)) return `${sentence.trimEnd()} ${token.slice(1)}`;
  return /^[\p{P}]/u.test(token) || token.startsWith("##")
    ? sentence.trimEnd() + token.replace(/^##/, "")
    : `${sentence.trimEnd()} ${token}`;
}

function surprisalScale(tokens: NextAnswer["tokens"]): Scale {
  return { map: "weights", low: 0, high: Math.max(8, extent(tokens.map((item) => item.surprisal ?? 0))[1]), power: 1 };
}

function Surprisal({ tokens }: { tokens: NextAnswer["tokens"] }) {
  const box = useRef<HTMLDivElement>(null);
  const scale = surprisalScale(tokens);
  const isDark = dark.value;
  useEffect(() => {
    box.current?.querySelectorAll<HTMLElement>(".word").forEach((word, index) => {
      const value = tokens[index]?.surprisal;
      if (value === null || value === undefined) return;
      word.style.backgroundColor = colourOf(scale, value, isDark);
      word.style.color = inkOn(scale, value, isDark);
    });
  });
  if (!tokens.length) return <p>Type the beginning of a sentence above.</p>;
  const known = tokens.filter((item) => item.surprisal !== null);
  const mean = known.reduce((sum, item) => sum + (item.surprisal ?? 0), 0) / Math.max(known.length, 1);
  return (
    <>
      <div class="strip" ref={box} role="group" aria-label="Surprisal of each token, in bits">
        {tokens.map((item, index) => (
          <span key={index} class="word" title={`${item.token}\n${item.surprisal ?? "–"} bits`}>
            <bdi>{cut(item.token, 18)}</bdi>
            <small>
              <Num value={item.surprisal} digits={1} />
            </small>
          </span>
        ))}
      </div>
      <div class="under">
        <p class="facts">
          Mean surprisal <Num value={mean} /> bits: as hard as choosing among <Num value={2 ** mean} digits={1} /> equal tokens.
        </p>
        <Legend scale={scale} />
      </div>
    </>
  );
}

function surprisalPicture(value: NextAnswer) {
  const scale = surprisalScale(value.tokens);
  const wide = 90;
  const paint = (surface: Surface) =>
    value.tokens.forEach((item, index) => {
      const x = (index % 10) * wide + 2;
      const y = Math.floor(index / 10) * 46 + 2;
      surface.box(x, y, wide - 4, 40, {
        fill: item.surprisal === null ? surface.paper.back : colourOf(scale, item.surprisal, surface.dark),
        stroke: surface.paper.line,
        round: 5,
      });
      const colour = item.surprisal === null ? surface.paper.ink : inkOn(scale, item.surprisal, surface.dark);
      surface.text(x + wide / 2 - 2, y + 14, cut(item.token, 11), { anchor: "middle", size: 14, colour });
      surface.text(x + wide / 2 - 2, y + 31, show(item.surprisal, 1), { anchor: "middle", size: 11, colour });
    });
  return { width: Math.min(10, value.tokens.length) * wide, height: Math.ceil(value.tokens.length / 10) * 46, paint };
}

function Layers({ layers }: { layers: Guess[][] }) {
  const shown = Math.min(4, Math.max(...layers.map((list) => list.length)));
  return (
    <section aria-label="Prediction after each layer">
      <h3>If the model stopped after layer …</h3>
      <div class="scroll" tabIndex={0} role="region" aria-label="Prediction after each layer">
        <table class="table">
          <thead>
            <tr>
              <th scope="col">Layer</th>
              {Array.from({ length: shown }, (_, i) => (
                <th key={i} scope="col">
                  {["Best", "Second", "Third", "Fourth"][i]}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {layers.map((list, layer) => (
              <tr key={layer}>
                <th scope="row">{layer + 1}</th>
                {list.slice(0, shown).map((guess, index) => (
                  <td key={index}>
                    <Token text={nameOf(guess)} />{" "}
                    <small class="num soft" data-value={String(guess.probability)}>
                      {percent(guess.probability)}
                    </small>
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Fill({ model }: { model: Model }) {
  const sentence = text.value;
  const gaps = sentence.split("[MASK]");
  const data = useResource(gaps.length > 1 ? `${model.id} ${sentence}` : null, () => api.fill(model.id, sentence, TOP));
  const put = (gap: number, word: string) =>
    go({ text: gaps.map((part, index) => part + (index === gaps.length - 1 ? "" : index === gap ? word : "[MASK]")).join("") });
  return (
    <>
      <Title name="Hidden words">Write [MASK] for a word, and see what the model puts there.</Title>
      {gaps.length < 2 ? (
        <p>
          There is no [MASK] in the sentence.{" "}
          <button type="button" class="button" onClick={() => go({ text: masked(sentence) })}>
            Hide the last word
          </button>
        </p>
      ) : (
        <Loaded from={data}>
          {(value) => (
            <>
              <div class="gaps">
                {value.masks.map((list, gap) => (
                  <section key={gap} aria-label={`Gap ${gap + 1}`}>
                    <h3>
                      Gap {gap + 1}:{" "}
                      <span class="context">
                        <bdi>
                          …{gaps[gap]?.slice(-24)}
                          <mark>?</mark>
                          {gaps[gap + 1]?.slice(0, 24)}…
                        </bdi>
                      </span>
                    </h3>
                    <Bars
                      label={`Words for gap ${gap + 1}`}
                      most={1}
                      digits={4}
                      bars={list.map((guess) => ({ label: nameOf(guess), value: guess.probability }))}
                      onPick={(index) => put(gap, nameOf(list[index]))}
                    />
                  </section>
                ))}
              </div>
              <p class="hint">Click a word to put it into the sentence.</p>
              <Exports
                name="fill"
                picture={() =>
                  barsPicture(
                    value.masks.map((list, gap) => ({
                      title: `Gap ${gap + 1}`,
                      most: 1,
                      bars: list.map((guess) => ({ label: nameOf(guess), value: guess.probability })),
                    })),
                  )
                }
                csv={() => [
                  ["gap", "word", "probability"],
                  ...value.masks.flatMap((list, gap) => list.map((guess) => [gap + 1, nameOf(guess), guess.probability])),
                ]}
                json={() => value}
              />
            </>
          )}
        </Loaded>
      )}
    </>
  );
}

export function masked(sentence: string): string {
  return sentence.trim() === "" ? "[MASK]" : sentence.replace(/[\p{L}\p{N}']+(?=[^\p{L}\p{N}]*$)/u, "[MASK]");
}
