// View 14: two models on one sentence.
import { api } from "../data/api";
import { asFloats } from "../data/frame";
import { useResource } from "../data/resource";
import type { Model, Text, Trace } from "../data/types";
import { colourOf, inkOn, type Scale } from "../colours";
import { askTrace, go, link, models, text } from "../state";
import { wholeNumber } from "../link";
import { cut, show } from "../math";
import { dark } from "../theme";
import { Choice, Loaded, Num, Title } from "../ui/basic";
import { Matrix, weightScale } from "../ui/matrix";
import type { ViewProps } from "../views";
import { applies } from "../views";
import { useEffect, useMemo, useRef } from "preact/hooks";

export function CompareView({ model, trace }: ViewProps) {
  const others = (models.value ?? []).filter((item) => item.id !== model.id && applies(item, "compare") === true);
  if (!others.length)
    return (
      <>
        <Title name="Two models">Only one model here can be compared.</Title>
        <p>
          Start the page with two runs: <code>regard look RUN1 RUN2</code>.
        </p>
      </>
    );
  const other = others.find((item) => item.id === link.value.other) ?? others[0];
  return (
    <>
      <Title name="Two models">The same sentence, two models: what each wrote, how sure it was, and where it looked.</Title>
      <div class="controls">
        <Choice
          label="Compare with"
          value={other.id}
          options={others.map((item) => [item.id, `${item.name} (${item.architecture})`] as const)}
          onChange={(id) => go({ other: id })}
        />
      </div>
      <div class="split even">
        <One model={model} trace={trace} />
        <Second model={other} />
      </div>
    </>
  );
}

function Second({ model }: { model: Model }) {
  const target = link.value.target ?? null;
  const data = useResource(`${model.id} ${text.value} ${target}`, () => askTrace(model.id, text.value, target, null));
  return (
    <Loaded from={data}>
      {(trace) => <One model={(models.value ?? []).find((item) => item.id === trace.model) ?? model} trace={trace} />}
    </Loaded>
  );
}

function One({ model, trace }: { model: Model; trace: Trace }) {
  return (
    <section aria-label={model.name} class="one-model">
      <h3>
        {model.name} <span class="soft">{model.architecture}</span>
      </h3>
      {trace.target ? <Written text={trace.target} /> : null}
      <p class="facts">
        log P <Num value={trace.log_prob} digits={4} /> · score <Num value={trace.score} digits={4} />
      </p>
      {trace.alignment ? <Aligned trace={trace} name={model.name} /> : <p class="hint">This model gives no alignment.</p>}
    </section>
  );
}

const SURE: Scale = { map: "weights", low: 0, high: 4, power: 1 };

function Written({ text: written }: { text: Text }) {
  const box = useRef<HTMLDivElement>(null);
  const isDark = dark.value;
  useEffect(() => {
    box.current?.querySelectorAll<HTMLElement>(".word").forEach((word, index) => {
      const value = written.log_probs?.[index];
      if (value === undefined) return;
      word.style.backgroundColor = colourOf(SURE, -value, isDark);
      word.style.color = inkOn(SURE, -value, isDark);
    });
  });
  return (
    <div class="strip" ref={box} role="group" aria-label="What the model wrote, with the log-probability of each token">
      {written.tokens.map((token, index) => (
        <span key={index} class="word" title={`${token}\n${written.log_probs?.[index] ?? ""}`}>
          <bdi>{cut(token, 16)}</bdi>
          {written.log_probs ? (
            <small class="num" data-value={String(written.log_probs[index])}>
              {show(written.log_probs[index], 2)}
            </small>
          ) : null}
        </span>
      ))}
    </div>
  );
}

function Aligned({ trace, name }: { trace: Trace; name: string }) {
  const data = useResource(trace.id, async () => {
    const frame = await api.alignment(trace.id, "tokens");
    return { values: asFloats(frame), rows: frame.header.rows as string[], columns: frame.header.columns as string[] };
  });
  return <Loaded from={data}>{(value) => <AlignedMatrix {...value} name={name} />}</Loaded>;
}

function AlignedMatrix({ values, rows, columns, name }: { values: Float32Array; rows: string[]; columns: string[]; name: string }) {
  const look = useMemo(() => ({ values, rows, columns, scale: weightScale(values, false) }), [values, rows, columns]);
  const chosen = {
    row: wholeNumber(link.value, "row", 0, 0, rows.length - 1),
    column: wholeNumber(link.value, "col", 0, 0, columns.length - 1),
  };
  return (
    <Matrix
      look={look}
      name={`compare-${name}`}
      label={`Alignment of ${name}`}
      weights
      chosen={chosen}
      onChoose={(row, col) => go({ row, col })}
    />
  );
}
