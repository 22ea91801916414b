// View 1: which source word made which target word.
import { useMemo } from "preact/hooks";
import { api } from "../data/api";
import { asFloats } from "../data/frame";
import { useResource } from "../data/resource";
import { wholeNumber } from "../link";
import { largest, rowOf } from "../math";
import { go, link } from "../state";
import { Bars } from "../ui/bars";
import { Loaded, Num, Switch, Tick, Title, Token } from "../ui/basic";
import { Matrix, weightScale } from "../ui/matrix";
import type { ViewProps } from "../views";

export function AlignmentView({ trace }: ViewProps) {
  const merge = link.value.merge === "words" ? "words" : "tokens";
  const data = useResource(`${trace.id} ${merge}`, async () => {
    const frame = await api.alignment(trace.id, merge);
    return {
      values: asFloats(frame),
      rows: frame.header.rows as string[],
      columns: frame.header.columns as string[],
      exact: frame.header.type === "f32",
    };
  });
  return (
    <>
      <Title name="Alignment">Each row is a word the model wrote. The stronger the colour, the more it looked at that source word.</Title>
      <div class="controls">
        <Switch
          label="Show"
          value={merge}
          options={[
            ["tokens", "Tokens"],
            ["words", "Words"],
          ]}
          onChange={(value) => go({ merge: value, row: null, col: null })}
        />
        <Tick label="Colours from 0 to 1" on={link.value.scale === "one"} onChange={(on) => go({ scale: on ? "one" : null })} />
      </div>
      <Loaded from={data}>{(value) => <AlignmentPicture {...value} />}</Loaded>
      {trace.log_prob !== null && trace.log_prob !== undefined ? (
        <p class="facts">
          Log-probability of the translation <Num value={trace.log_prob} />, score <Num value={trace.score} />
          {trace.finished ? "." : "; it stopped before the end mark."}
        </p>
      ) : null}
    </>
  );
}

export function AlignmentPicture(props: { values: Float32Array; rows: string[]; columns: string[]; exact: boolean; name?: string }) {
  const { values, rows, columns } = props;
  const scale = useMemo(() => weightScale(values, link.value.scale !== "one"), [values, link.value.scale]);
  const look = useMemo(() => ({ rows, columns, values, scale }), [rows, columns, values, scale]);
  const row = wholeNumber(link.value, "row", 0, 0, rows.length - 1);
  const column = wholeNumber(link.value, "col", strongest(values, columns.length, row), 0, columns.length - 1);
  const line = rowOf(values, columns.length, row);
  return (
    <div class="split">
      <Matrix
        look={look}
        name={props.name ?? "alignment"}
        label="Alignment, target by source"
        weights
        chosen={{ row, column }}
        onChoose={(r, c) => go({ row: r, col: c })}
      />
      <aside class="side" aria-label="The chosen row">
        <h3>
          <Token text={rows[row] ?? ""} /> looks at
        </h3>
        <Bars
          label="Largest weights of the row"
          most={1}
          bars={largest(line, 10).map((index) => ({ label: columns[index], value: line[index], marked: index === column }))}
        />
        {props.exact ? null : <p class="hint">Rounded to 1/255: this page was saved without the exact numbers.</p>}
      </aside>
    </div>
  );
}

function strongest(values: Float32Array, columns: number, row: number): number {
  return largest(rowOf(values, columns, row), 1)[0] ?? 0;
}
