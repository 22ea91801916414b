// View 13: how good the model is, by length and sentence by sentence.
import { useMemo, useState } from "preact/hooks";
import { api, type EvaluationAnswer } from "../data/api";
import { useResource } from "../data/resource";
import type { Surface } from "../draw/surface";
import { show, ticks } from "../math";
import { go } from "../state";
import { Loaded, Num, Title, useWidth } from "../ui/basic";
import { Exports } from "../ui/exports";
import { PictureCanvas } from "../ui/picture";
import type { ViewProps } from "../views";

const HEIGHT = 300;

export function EvaluationView({ model }: ViewProps) {
  const data = useResource(model.id, () => api.evaluation(model.id));
  return (
    <>
      <Title name="Evaluation">BLEU by the length of the source, and sentence by sentence.</Title>
      <Loaded from={data} waiting="The model translates its test text. This can take some minutes.">
        {(value) => (
          <>
            {value.of !== undefined && value.of > value.sentences.length ? (
              <p class="hint">
                {value.sentences.length} of the {value.of} sentences of the test text, evenly spaced. All of them: regard evaluate.
              </p>
            ) : null}
            <Lengths lengths={value.lengths} />
            <Sentences sentences={value.sentences} />
          </>
        )}
      </Loaded>
    </>
  );
}

function Lengths({ lengths }: { lengths: EvaluationAnswer["lengths"] }) {
  const [box, room] = useWidth();
  const width = Math.max(240, Math.min(room, 720));
  const paint = (surface: Surface) => paintLengths(surface, lengths, width);
  if (!lengths.length) return <p>There are no sentences to score.</p>;
  return (
    <section ref={box} aria-label="BLEU by length">
      <h3>BLEU by number of source words, with its 95% confidence</h3>
      {room > 0 ? (
        <PictureCanvas
          width={width}
          height={HEIGHT}
          paint={paint}
          label={`BLEU by length: ${lengths.map((bin) => `${bin.label}: ${show(bin.bleu, 1)}`).join("; ")}`}
        />
      ) : null}
      <Exports
        name="bleu-by-length"
        picture={() => ({ width, height: HEIGHT, paint })}
        csv={() => [
          ["length", "bleu", "low", "high", "sentences"],
          ...lengths.map((bin) => [bin.label, bin.bleu, bin.low, bin.high, bin.sentences]),
        ]}
        json={() => lengths}
      />
      <details class="numbers">
        <summary>The numbers</summary>
        <table class="table">
          <thead>
            <tr>
              <th>Length</th>
              <th class="right">BLEU</th>
              <th class="right">low</th>
              <th class="right">high</th>
              <th class="right">Sentences</th>
            </tr>
          </thead>
          <tbody>
            {lengths.map((bin) => (
              <tr key={bin.label}>
                <th scope="row">{bin.label}</th>
                <td class="right">
                  <Num value={bin.bleu} digits={2} />
                </td>
                <td class="right">
                  <Num value={bin.low} digits={2} />
                </td>
                <td class="right">
                  <Num value={bin.high} digits={2} />
                </td>
                <td class="right">
                  <Num value={bin.sentences} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </details>
    </section>
  );
}

function paintLengths(surface: Surface, lengths: EvaluationAnswer["lengths"], width: number): void {
  const { paper } = surface;
  const [left, right, top, bottom] = [40, width - 8, 14, HEIGHT - 44];
  const most = 1.1 * Math.max(1, ...lengths.map((bin) => Math.max(bin.high ?? 0, bin.bleu)));
  const y = (value: number) => bottom - (value / most) * (bottom - top);
  for (const tick of ticks(0, most, 5)) {
    surface.line(left, y(tick), right, y(tick), { stroke: paper.line });
    surface.text(left - 6, y(tick), show(tick), { anchor: "end", colour: paper.soft });
  }
  const wide = (right - left) / lengths.length;
  lengths.forEach((bin, index) => {
    const middle = left + wide * (index + 0.5);
    surface.box(middle - wide * 0.32, y(bin.bleu), wide * 0.64, bottom - y(bin.bleu), { fill: surface.dark ? "#2f6fa8" : "#8fbbe0" });
    surface.line(middle, y(bin.low), middle, y(bin.high), { stroke: paper.ink, line: 1.5 });
    for (const end of [bin.low, bin.high]) surface.line(middle - 5, y(end), middle + 5, y(end), { stroke: paper.ink, line: 1.5 });
    surface.text(middle, bottom + 14, bin.label, { anchor: "middle" });
    surface.text(middle, bottom + 30, `${bin.sentences}×`, { anchor: "middle", size: 11, colour: paper.soft });
    surface.text(middle, Math.max(y(bin.high) - 9, 8), show(bin.bleu, 1), { anchor: "middle", size: 12, bold: true });
  });
}

type Column = "chrf" | "source" | "written";

function Sentences({ sentences }: { sentences: EvaluationAnswer["sentences"] }) {
  const [by, setBy] = useState<{ column: Column; up: boolean }>({ column: "chrf", up: true });
  const [many, setMany] = useState(50);
  const sorted = useMemo(() => {
    const list = [...sentences];
    const value = (item: (typeof list)[number]) => (by.column === "chrf" ? item.chrf : item[by.column].length);
    return list.sort((a, b) => (by.up ? 1 : -1) * (value(a) - value(b)));
  }, [sentences, by]);
  const head = (column: Column, title: string, right = false) => (
    <th class={right ? "right" : undefined} aria-sort={by.column === column ? (by.up ? "ascending" : "descending") : undefined} scope="col">
      <button type="button" onClick={() => setBy({ column, up: by.column === column ? !by.up : true })}>
        {title}
        {by.column === column ? (by.up ? " ▲" : " ▼") : ""}
      </button>
    </th>
  );
  return (
    <section aria-label="Sentences">
      <h3>Sentences: click one to look at it</h3>
      <div class="scroll" tabIndex={0} role="region" aria-label="Table of sentences">
        <table class="table sentences">
          <thead>
            <tr>
              {head("chrf", "chrF", true)}
              {head("source", "Source")}
              {head("written", "Written by the model")}
              <th scope="col">Reference</th>
            </tr>
          </thead>
          <tbody>
            {sorted.slice(0, many).map((item, index) => (
              <tr key={index}>
                <td class="right">
                  <Num value={item.chrf} digits={1} />
                </td>
                <td>
                  <button
                    type="button"
                    onClick={() => go({ view: "alignment", text: item.source, target: null, row: null, col: null }, true)}
                  >
                    <bdi>{item.source}</bdi>
                  </button>
                </td>
                <td data-name="Written">
                  <bdi>{item.written}</bdi>
                </td>
                <td data-name="Reference">
                  <bdi>{item.reference}</bdi>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {sorted.length > many ? (
        <button type="button" class="plain" onClick={() => setMany(many + 200)}>
          Show more of {sorted.length}
        </button>
      ) : null}
      <Exports
        name="sentences"
        csv={() => [
          ["chrf", "source", "written", "reference"],
          ...sorted.map((item) => [item.chrf, item.source, item.written, item.reference]),
        ]}
        json={() => sorted}
      />
    </section>
  );
}
