// View 2: which words does a word look at, head by head.
import { useMemo } from "preact/hooks";
import { api, source } from "../data/api";
import { asFloats } from "../data/frame";
import { useResource } from "../data/resource";
import type { Part, Side, Trace } from "../data/types";
import { chosenHeads, wholeNumber } from "../link";
import { bare, largest, meanOf, rowOf } from "../math";
import { go, link } from "../state";
import { Choice, counted, Loaded, Num, Slider, Switch, Title, Token } from "../ui/basic";
import { insideOf, Strip } from "../ui/strip";
import type { ViewProps } from "../views";
import { HeadChips } from "./head_chips";
import { Lines } from "./head_lines";
import { Overview } from "./head_overview";

/** More tokens than this start with one head, not with all of them. */
const MANY_TOKENS = 160;

export function wordsOf(trace: Trace, which: Side): [number, number][] {
  return (trace[which] ?? (which === "input" ? trace.target : null))?.words ?? [];
}

export function tokensOf(trace: Trace, which: Side): string[] {
  return (trace[which] ?? (which === "input" ? trace.target : null))?.tokens ?? [];
}

/** The part, layer and row that the link names, or good first ones. */
export function placeIn(trace: Trace): { part: Part; layer: number; row: number } | null {
  const part = trace.parts.find((item) => item.name === link.value.part) ?? trace.parts[0];
  if (!part) return null;
  const rows = tokensOf(trace, part.rows);
  const it = rows.findIndex((token) => bare(token) === "it");
  return {
    part,
    layer: wholeNumber(link.value, "layer", part.layers - 1, 0, part.layers - 1),
    row: wholeNumber(link.value, "row", Math.max(it, 0), 0, rows.length - 1),
  };
}

export function PartChoice({ trace, part }: { trace: Trace; part: Part }) {
  // A saved page has the steps of one place in each part.
  const change = (name: string) => go({ part: name, ...(source.live ? { row: null, layer: null, head: null } : {}) });
  if (trace.parts.length < 2)
    return (
      <p class="field">
        <span>Part</span>
        <b>{part.title}</b>
      </p>
    );
  return <Switch label="Part" value={part.name} options={trace.parts.map((item) => [item.name, item.title] as const)} onChange={change} />;
}

export function HeadsView({ trace }: ViewProps) {
  const place = placeIn(trace);
  if (!place) return <p>This trace has no attention weights.</p>;
  const { part, layer, row } = place;
  const many = Math.max(...part.shape) > MANY_TOKENS;
  const heads = chosenHeads(link.value.head, part.heads, many ? [0] : Array.from({ length: part.heads }, (_, i) => i));
  const data = useResource(`${trace.id} ${part.name} ${layer} ${heads}`, async () => {
    // Asked for now, so that it comes together with the weights.
    api.overview(trace.id, part.name).catch(() => undefined);
    const frames = await Promise.all(heads.map((head) => api.weights(trace.id, part.name, layer, head)));
    return { part, layer, heads, weights: frames.map(asFloats) };
  });
  return (
    <>
      <Title name="Attention">Pick a word. The stronger the colour of another word, the more it is looked at.</Title>
      <div class="controls">
        <PartChoice trace={trace} part={part} />
        <Choice label="Layer" value={String(layer)} options={counted(part.layers)} onChange={(value) => go({ layer: value })} />
        <HeadChips heads={part.heads} chosen={heads} />
      </div>
      <Loaded from={data}>{(value) => <HeadPictures trace={trace} row={row} {...value} />}</Loaded>
    </>
  );
}

function HeadPictures(props: { trace: Trace; part: Part; layer: number; heads: number[]; weights: Float32Array[]; row: number }) {
  const { trace, part, weights } = props;
  const rows = tokensOf(trace, part.rows);
  const columns = tokensOf(trace, part.columns);
  const row = Math.min(props.row, rows.length - 1);
  const line = useMemo(() => meanOf(weights.map((one) => rowOf(one, columns.length, row))), [weights, row, columns]);
  const same = part.rows === part.columns;
  const rowWords = wordsOf(trace, part.rows);
  const columnWords = wordsOf(trace, part.columns);
  const cutUp = insideOf(rowWords).size + insideOf(columnWords).size > 0;
  const asked = Number(link.value.threshold ?? 0.05);
  const threshold = Number.isFinite(asked) ? asked : 0.05;
  const best = largest(line, 1)[0] ?? 0;
  const pick = (index: number) => go({ row: index });
  return (
    <>
      <p class="says" role="status">
        <b>
          <Token text={rows[row] ?? ""} />
        </b>{" "}
        looks most at{" "}
        <b>
          <Token text={columns[best] ?? ""} />
        </b>{" "}
        (<Num value={line[best]} />
        {props.heads.length > 1 ? `, mean of ${props.heads.length} heads` : `, head ${props.heads[0] + 1}`})
      </p>
      {same ? (
        <Strip label="The sentence: pick a word" tokens={rows} words={rowWords} weights={line} picked={row} onPick={pick} />
      ) : (
        <>
          <Strip label="What the model wrote: pick a word" tokens={rows} words={rowWords} picked={row} onPick={pick} />
          <Strip label="Where it looks" tokens={columns} words={columnWords} weights={line} />
        </>
      )}
      {cutUp ? <p class="hint pieces">Boxes that touch are pieces of one word: that is how the model reads it.</p> : null}
      <div class="split even">
        <section aria-label="Lines">
          <h3>Every word and where it looks</h3>
          <div class="controls">
            <Slider
              label="Hide lines below"
              value={threshold}
              low={0}
              high={0.5}
              step={0.01}
              onChange={(value) => go({ threshold: value })}
            />
          </div>
          <Lines {...props} rows={rows} columns={columns} threshold={threshold} row={row} onPick={pick} />
        </section>
        <Overview trace={trace} part={part} layer={props.layer} heads={props.heads} />
      </div>
    </>
  );
}
