// View 3: how one output is computed, number by number.
import { useState } from "preact/hooks";
import { api } from "../data/api";
import { useResource } from "../data/resource";
import type { Frame, Part, Step, StepsHeader, StepTensor, Trace } from "../data/types";
import { wholeNumber } from "../link";
import { toPython } from "../python";
import { go, link } from "../state";
import { Bars } from "../ui/bars";
import { Cells } from "../ui/cells";
import { Choice, counted, Loaded, Title, Token } from "../ui/basic";
import { Formula } from "../ui/formula";
import { Exports } from "../ui/exports";
import { Strip } from "../ui/strip";
import type { ViewProps } from "../views";
import { stepsPicture, type ShownTensor } from "./steps_picture";
import { PartChoice, placeIn, tokensOf, wordsOf } from "./heads";

export function StepsView({ trace }: ViewProps) {
  const place = placeIn(trace);
  if (!place) return <p>This trace has no attention weights.</p>;
  const { part, layer, row } = place;
  const head = wholeNumber(link.value, "head", 0, 0, part.heads - 1);
  const data = useResource(`${trace.id} ${part.name} ${layer} ${head} ${row}`, () => api.steps(trace.id, part.name, layer, head, row));
  return (
    <>
      <Title name="Step by step">Pick a word and follow its numbers through one head.</Title>
      <div class="controls">
        <PartChoice trace={trace} part={part} />
        <Choice label="Layer" value={String(layer)} options={counted(part.layers)} onChange={(value) => go({ layer: value })} />
        <Choice label="Head" value={String(head)} options={counted(part.heads)} onChange={(value) => go({ head: value })} />
      </div>
      <Strip
        label="Pick a word"
        tokens={tokensOf(trace, part.rows)}
        words={wordsOf(trace, part.rows)}
        picked={row}
        onPick={(index) => go({ row: index })}
      />
      <Loaded from={data}>{(frame) => <Cards frame={frame} trace={trace} part={part} layer={layer} head={head} row={row} />}</Loaded>
    </>
  );
}

export function numbersOf(frame: Frame, tensor: StepTensor): Float32Array {
  const length = tensor.shape.reduce((a, b) => a * b, 1);
  return (frame.numbers as Float32Array).subarray(tensor.offset, tensor.offset + length);
}

function Cards(props: { frame: Frame & { header: StepsHeader }; trace: Trace; part: Part; layer: number; head: number; row: number }) {
  const { frame } = props;
  const { steps, key_labels: keys } = frame.header;
  const token = tokensOf(props.trace, props.part.rows)[frame.header.row] ?? "";
  const jump = (index: number) => {
    const card = document.getElementById(`step-${index}`);
    card?.scrollIntoView({ block: "start" });
    card?.focus();
  };
  return (
    <>
      <p class="says">
        How{" "}
        <b>
          <Token text={token} />
        </b>{" "}
        is computed in layer {props.layer + 1}, head {props.head + 1}:
      </p>
      <ol class="step-list" aria-label="Steps">
        {steps.map((step, index) => (
          <li key={index}>
            <button type="button" class="button" onClick={() => jump(index)}>
              {step.title}
            </button>
          </li>
        ))}
      </ol>
      <ol class="cards">
        {steps.map((step, index) => (
          <li key={index} class="card" id={`step-${index}`} tabIndex={-1} data-step={step.name}>
            <Card step={step} frame={frame} keys={keys} />
          </li>
        ))}
      </ol>
      <Following trace={props.trace} part={props.part} layer={props.layer} last={steps[steps.length - 1]?.name} />
      <Exports
        name={`steps-${props.part.name}-${props.layer + 1}-${props.head + 1}-${props.row}`}
        picture={() =>
          stepsPicture(
            steps.map((step) => ({
              ...step,
              tensors: step.tensors.map((tensor) => shownOf(tensor, numbersOf(frame, tensor), labelsOf(tensor, step, keys))),
            })),
          )
        }
        csv={() => [
          ["step", "tensor", "index", "value"],
          ...steps.flatMap((step) =>
            step.tensors.flatMap((tensor) =>
              Array.from(numbersOf(frame, tensor), (value, index) => [step.name, tensor.name, index, value]),
            ),
          ),
        ]}
        json={() => ({
          row: frame.header.row,
          key_labels: keys,
          steps: steps.map((step) => ({
            ...step,
            tensors: step.tensors.map((tensor) => ({ ...tensor, values: numbersOf(frame, tensor) })),
          })),
        })}
      />
    </>
  );
}

/** Where the last vector goes next, on the way to the words. */
function Following({ trace, part, layer, last }: { trace: Trace; part: Part; layer: number; last?: string }) {
  if (last === "vocabulary") return null;
  const cross = trace.parts.find((item) => item.name === "decoder.cross");
  const to = (title: string, state: Record<string, unknown>) => (
    <p class="following">
      Goes on:{" "}
      <button type="button" class="plain" onClick={() => go(state as never)}>
        {title} →
      </button>
    </p>
  );
  if (part.name === "decoder.self" && cross) return to(`layer ${layer + 1}, ${cross.title}`, { part: cross.name, layer });
  if (layer + 1 < part.layers) {
    const next = part === cross ? trace.parts.find((item) => item.name === "decoder.self") ?? part : part;
    return to(`layer ${layer + 2}, ${next.title}`, { part: next.name, layer: layer + 1 });
  }
  return part.name === "encoder.self" && cross ? to(cross.title, { part: cross.name, layer: 0, row: 0 }) : null;
}

function Card({ step, frame, keys }: { step: Step; frame: Frame; keys: string[] }) {
  return (
    <>
      <div class="card-head">
        <h3>{step.title}</h3>
        <p class="formula-box">
          <Formula text={step.formula} />
        </p>
        <p class="about">{step.about}</p>
        {step.chosen !== undefined && step.chosen !== null ? (
          <p class="chosen">
            {step.argmax ? (
              <>
                Argmax:{" "}
                <b>
                  <Token text={step.argmax} />
                </b>
                {" · "}
              </>
            ) : null}
            Chosen:{" "}
            <b>
              <Token text={typeof step.chosen === "number" ? (step.tokens?.[step.chosen] ?? String(step.chosen)) : step.chosen} />
            </b>
          </p>
        ) : null}
        <CopyPython step={step} frame={frame} />
      </div>
      <div class="card-body">
        {step.tensors.map((tensor) => (
          <TensorPicture key={tensor.name} tensor={tensor} values={numbersOf(frame, tensor)} labels={labelsOf(tensor, step, keys)} />
        ))}
      </div>
    </>
  );
}

function CopyPython({ step, frame }: { step: Step; frame: Frame }) {
  const [said, setSaid] = useState("");
  const copy = () =>
    navigator.clipboard.writeText(toPython(step, (tensor) => numbersOf(frame, tensor))).then(
      () => setSaid("copied"),
      () => setSaid("not allowed here: save the JSON below"),
    );
  return (
    <p class="copy">
      <button type="button" class="plain" onClick={copy}>
        Copy for Python
      </button>{" "}
      <span role="status">{said}</span>
    </p>
  );
}

function labelsOf(tensor: StepTensor, step: Step, keys: string[]): string[] | null {
  if (Array.isArray(tensor.labels)) return tensor.labels;
  if (tensor.tokens) return tensor.tokens;
  if (tensor.labels === "keys") return keys;
  if (tensor.labels === "tokens" || (step.tokens && tensor.shape.length === 1 && tensor.shape[0] === step.tokens.length))
    return step.tokens ?? null;
  return null;
}

/** A tensor as it is drawn: a vector, or rows of numbers; with labels where they fit. */
function shownOf(tensor: StepTensor, values: Float32Array, labels: string[] | null): ShownTensor {
  const last = tensor.shape[tensor.shape.length - 1];
  const shape = tensor.shape.length > 2 ? [values.length / last, last] : tensor.shape.length ? tensor.shape : [1];
  return { name: tensor.name, shape, values, labels: labels?.length === shape[0] ? labels : null };
}

function TensorPicture({ tensor, values, labels: given }: { tensor: StepTensor; values: Float32Array; labels: string[] | null }) {
  const { shape, labels } = shownOf(tensor, values, given);
  if (shape.length === 1 && labels)
    return (
      <div class="labelled">
        <p class="cells-head">
          <b>{tensor.name}</b> <span class="shape">{tensor.shape.join(" × ")}</span>
        </p>
        <Bars label={tensor.name} digits={4} limit={24} bars={labels.map((label, index) => ({ label, value: values[index] }))} />
      </div>
    );
  return <Cells name={tensor.name} shape={shape} values={values} labels={labels} />;
}
