// View 10: which words are alike: neighbours, analogies, a map, and one word in two sentences.
import { useState } from "preact/hooks";
import { api } from "../data/api";
import { useResource } from "../data/resource";
import type { Model } from "../data/types";
import { go, link } from "../state";
import { Bars } from "../ui/bars";
import { barsPicture } from "../ui/bars_picture";
import { Loaded, Num, Title } from "../ui/basic";
import { Exports } from "../ui/exports";
import type { ViewProps } from "../views";
import { WordMap } from "./vectors_map";

export function VectorsView({ model }: ViewProps) {
  return (
    <>
      <Title name="Word vectors">Words with like meaning have vectors that point the same way.</Title>
      <div class="split even">
        <Near model={model} />
        <Analogy model={model} />
      </div>
      <WordMap model={model} />
      {model.contextual === false ? (
        <p class="facts">In this model a word has one vector, whatever stands around it.</p>
      ) : (
        <Context model={model} />
      )}
    </>
  );
}

const barsOf = (near: { word: string; cosine: number }[]) => near.map((item) => ({ label: item.word, value: item.cosine }));
const byLayer = ({ cosines, layers }: { cosines: number[]; layers?: string[] }) =>
  cosines.map((value, layer) => ({ label: layers?.[layer] ?? (layer ? `layer ${layer}` : "embedding"), value }));

/** Boxes for words and a button; the answer comes when the button is pressed. */
export function Ask(props: { fields: [string, string][]; button: string; onAsk: (values: string[]) => void }) {
  const [typed, setTyped] = useState(props.fields.map(([, value]) => value));
  return (
    <form
      class="controls"
      onSubmit={(event) => {
        event.preventDefault();
        props.onAsk(typed.map((item) => item.trim()));
      }}
    >
      {props.fields.map(([label], index) => (
        <label key={label} class="field ask">
          <span>{label}</span>
          <input
            type="text"
            dir="auto"
            autocomplete="off"
            value={typed[index]}
            onInput={(event) => setTyped(typed.map((old, at) => (at === index ? event.currentTarget.value : old)))}
          />
        </label>
      ))}
      <button type="submit" class="button">
        {props.button}
      </button>
    </form>
  );
}

function Near({ model }: { model: Model }) {
  const first = model.words?.[0] ?? "street";
  const word = link.value.word ?? first;
  // Without a list of known words nothing is asked before somebody does: the word may have no vector.
  const asked = link.value.word !== undefined || model.words?.length;
  const data = useResource(word && asked ? `${model.id} ${word}` : null, () => api.near(model.id, word, 10));
  return (
    <section aria-label="Neighbours">
      <h3>Neighbours</h3>
      <Ask key={word} fields={[["Word", word]]} button="Find" onAsk={([value]) => go({ word: value })} />
      {asked ? null : <p class="hint">Press Find to see the words that are nearest.</p>}
      <Loaded from={data} idle={!asked}>
        {(value) => (
          <>
            <Bars
              label={`Words near ${word}, by cosine`}
              most={1}
              bars={barsOf(value.near)}
              onPick={(index) => go({ word: value.near[index].word })}
            />
            <Exports
              name="near"
              picture={() => barsPicture([{ title: word, most: 1, bars: barsOf(value.near) }])}
              csv={() => [["word", "cosine"], ...value.near.map((item) => [item.word, item.cosine])]}
              json={() => ({ word, ...value })}
            />
          </>
        )}
      </Loaded>
    </section>
  );
}

function Analogy({ model }: { model: Model }) {
  const three = (link.value.analogy ?? model.analogy?.join() ?? "man,king,woman").split(",").slice(0, 3);
  const [a = "", b = "", c = ""] = three;
  const asked = link.value.analogy !== undefined || Boolean(model.analogy);
  const data = useResource(asked && a && b && c ? `${model.id} ${a},${b},${c}` : null, () => api.analogy(model.id, a, b, c));
  return (
    <section aria-label="Analogy">
      <h3>Analogy</h3>
      <Ask
        key={three.join()}
        fields={[
          ["As", a],
          ["is to", b],
          ["so is", c],
        ]}
        button="to …"
        onAsk={(values) => go({ analogy: values.join(",") })}
      />
      {asked ? null : <p class="hint">Press the button to complete the analogy.</p>}
      <Loaded from={data} idle={!asked}>
        {(value) => (
          <>
            <Bars
              label="Words that complete the analogy, by cosine"
              most={1}
              bars={barsOf(value.near)}
            />
            <p class="hint">
              Nearest to {b} − {a} + {c}; the three words themselves are left out.
            </p>
            <Exports
              name="analogy"
              picture={() => barsPicture([{ title: `${b} − ${a} + ${c}`, most: 1, bars: barsOf(value.near) }])}
              csv={() => [["word", "cosine"], ...value.near.map((item) => [item.word, item.cosine])]}
              json={() => ({ a, b, c, ...value })}
            />
          </>
        )}
      </Loaded>
    </section>
  );
}

function Context({ model }: { model: Model }) {
  const [asked, setAsked] = useState<[string, string, string] | null>(null);
  const data = useResource(asked ? `${model.id} ${asked.join("\u0000")}` : null, () =>
    api.context(model.id, asked![0], [asked![1], asked![2]]),
  );
  return (
    <section aria-label="One word in two sentences">
      <h3>One word in two sentences</h3>
      <Ask
        fields={[
          ["Word", "bank"],
          ["First sentence", "She sat on the bank of the river."],
          ["Second sentence", "He took the money to the bank."],
        ]}
        button="Compare"
        onAsk={([word, first, second]) => setAsked([word, first, second])}
      />
      {asked ? (
        <Loaded from={data}>
          {(value) => (
            <>
              <Bars label="Cosine of the two vectors, layer by layer" most={1} bars={byLayer(value)} />
              <p class="facts">
                {value.static === null || value.static === undefined ? null : (
                  <>
                    A static table gives <Num value={value.static} /> in every sentence.{" "}
                  </>
                )}
                The lower the cosine, the more the sentence changed the word.
              </p>
              <Exports
                name="context"
                picture={() => barsPicture([{ title: asked[0], most: 1, bars: byLayer(value) }])}
                csv={() => [["layer", "cosine"], ...byLayer(value).map((bar) => [bar.label, bar.value])]}
                json={() => value}
              />
            </>
          )}
        </Loaded>
      ) : (
        <p class="hint">Press Compare to see how the sentences change the vector of the word.</p>
      )}
    </section>
  );
}
