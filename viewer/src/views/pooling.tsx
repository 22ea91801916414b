// View 15: attention by hand. Keys and values are points; drag the query and see the weights.
import { clamp } from "../math";
import { bound, FIRST_PAIRS, pooled, poolingWeights, readPairs, SCORES, writePairs, type Pair, type Score } from "../pooling_math";
import { go, link } from "../state";
import { Choice, Num, Slider, Title } from "../ui/basic";
import { Formula } from "../ui/formula";
import { Plane } from "./pooling_plane";

export function PoolingView() {
  const pairs = readPairs(link.value.pairs) ?? FIRST_PAIRS;
  const score = (SCORES.some(([name]) => name === link.value.score) ? link.value.score : "gaussian") as Score;
  const width = clamp(Number(link.value.h ?? 0.4) || 0.4, 0.05, 3);
  const query = bound(Number(link.value.q ?? 0.5) || 0);
  const weights = poolingWeights(query, pairs, score, width);
  const result = pooled(weights, pairs);
  const set = (next: Pair[]) => go({ pairs: writePairs(next) });
  return (
    <>
      <Title name="Attention by hand">
        Each dot is a key (left to right) with a value (up and down). Drag the query: near keys weigh more.
      </Title>
      <div class="controls">
        <Choice
          label="Score"
          value={score}
          options={SCORES.map(([name, title]) => [name, title] as const)}
          onChange={(value) => go({ score: value })}
        />
        <Slider
          label={score === "dot" ? "Temperature h" : "Bandwidth h"}
          value={width}
          low={0.05}
          high={3}
          step={0.05}
          onChange={(value) => go({ h: value })}
        />
        <Slider label="Query q" value={query} low={-3} high={3} step={0.05} onChange={(value) => go({ q: value })} />
        <button type="button" class="button" disabled={pairs.length >= 40} onClick={() => set([...pairs, { key: query, value: 0 }])}>
          Add a pair
        </button>
        <button type="button" class="button" onClick={() => go({ pairs: null, q: null, h: null, score: null })}>
          Start again
        </button>
      </div>
      <p class="says" role="status">
        <Formula text={SCORES.find(([name]) => name === score)![2]} /> result at q = <Num value={query} digits={2} />:{" "}
        <b class="result">{result === null ? "none: no key is near" : <Num value={result} />}</b>
      </p>
      <Plane pairs={pairs} score={score} width={width} query={query} weights={weights} result={result} onPairs={set} />
      <PairTable pairs={pairs} weights={weights} onPairs={set} />
    </>
  );
}

function PairTable({ pairs, weights, onPairs }: { pairs: Pair[]; weights: number[]; onPairs: (pairs: Pair[]) => void }) {
  return (
    <details class="numbers">
      <summary>All pairs and weights</summary>
      <table class="table">
        <thead>
          <tr>
            <th>key</th>
            <th>value</th>
            <th>weight</th>
            <th>
              <span class="hidden">Remove</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {pairs.map((pair, index) => (
            <tr key={index}>
              <td>
                <Num value={pair.key} digits={2} />
              </td>
              <td>
                <Num value={pair.value} digits={2} />
              </td>
              <td>
                <Num value={weights[index]} digits={4} />
              </td>
              <td>
                <button type="button" disabled={pairs.length < 2} onClick={() => onPairs(pairs.filter((_, at) => at !== index))}>
                  Remove
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </details>
  );
}
