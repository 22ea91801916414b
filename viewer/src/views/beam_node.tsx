// What is known of one node, and what the model writes from there.
import type { ComponentChildren } from "preact";
import { useState, useEffect } from "preact/hooks";
import { api } from "../data/api";
import { problemOf } from "../data/source";
import type { Beam, BeamNode, Hypothesis, Problem } from "../data/types";
import { show } from "../math";
import { Message, Num, Token, Waiting } from "../ui/basic";
import { Formula } from "../ui/formula";
import { pathTo, prefixOf, rankOf, referenceLost, type BeamLayout } from "./beam_layout";

const STATES = { kept: "kept in the beam", pruned: "dropped", finished: "finished" };

export function NodePanel(props: {
  beam: Beam;
  layout: BeamLayout;
  at: number;
  modelId: string;
  text: string;
  onChoose: (at: number) => void;
}) {
  const { beam, layout, at } = props;
  const node = layout.nodes[at];
  const lost = referenceLost(layout, beam.reference);
  const settings = Object.entries(beam.settings ?? {}).filter(([, value]) => typeof value !== "object");
  return (
    <div class="split even node-panel">
      <section aria-label="The chosen node">
        <h3>The chosen node</h3>
        <p class="path">
          {pathTo(layout, at).map((here) => (
            <button key={here} type="button" class="plain" aria-pressed={here === at} onClick={() => props.onChoose(here)}>
              <Token text={layout.nodes[here].token} />
            </button>
          ))}
        </p>
        <table class="table">
          <tbody>
            <tr>
              <th scope="row">Token</th>
              <td>
                <Token text={node.token} length={40} />
              </td>
            </tr>
            <tr>
              <th scope="row">Log-probability of the token</th>
              <td>
                <Num value={node.log_prob} digits={4} />
              </td>
            </tr>
            <tr>
              <th scope="row">Rank in its step</th>
              <td>
                {rankOf(layout, at) ?? "–"} of {layout.columns[layout.column[at]].length}
              </td>
            </tr>
            <tr>
              <th scope="row">State</th>
              <td>
                {STATES[node.state]}
                {node.best ? ", on the best path" : ""}
              </td>
            </tr>
          </tbody>
        </table>
        {node.score === null ? null : <ScoreParts node={node} formula={beam.formula} />}
        {settings.length ? (
          <p class="hint">
            Search: {settings.map(([name, value]) => `${name} ${typeof value === "number" ? show(value) : String(value)}`).join(" · ")}
          </p>
        ) : null}
      </section>
      <section aria-label="From here">
        <h3>From here</h3>
        <Continue modelId={props.modelId} text={props.text} prefix={prefixOf(layout, at)} />
        {lost !== null ? (
          <p class="facts">
            Your translation was lost at step {layout.nodes[lost].step}:{" "}
            <b>
              <Token text={layout.nodes[lost].token} />
            </b>{" "}
            had rank {rankOf(layout, lost) ?? "–"}, the beam keeps {beam.width}.{" "}
            <button type="button" class="plain" onClick={() => props.onChoose(lost)}>
              Show it
            </button>
          </p>
        ) : beam.reference?.length ? (
          <p class="facts">Your translation stayed in the beam to its end.</p>
        ) : (
          <p class="facts">To see where a translation of your own is lost, give it above.</p>
        )}
      </section>
    </div>
  );
}

/** The numbers that the score is the sum of. */
function ScoreParts({ node, formula }: { node: BeamNode; formula: string }) {
  const parts: [string, ComponentChildren, number][] = [
    ["total", `log P of ${node.step} ${node.step === 1 ? "token" : "tokens"}`, node.total],
    [
      "length",
      <>
        length normalisation: ÷ <Num value={node.divisor} digits={4} />
      </>,
      node.length,
    ],
  ];
  if (node.coverage !== null) parts.push(["coverage", "coverage penalty: source words not looked at", node.coverage]);
  return (
    <>
      <h3>
        {node.state === "finished" ? "Its score" : "Its score, if it ended here"}: <Formula text={formula} />
      </h3>
      <table class="table sum">
        <tbody>
          {parts.map(([name, title, value], at) => (
            <tr key={name} data-part={name}>
              <th scope="row">{title}</th>
              <td class="right">
                {at && value >= 0 ? "+" : ""}
                <Num value={value} digits={4} />
              </td>
            </tr>
          ))}
          <tr data-part="score">
            <th scope="row">Score</th>
            <td class="right">
              <b>
                <Num value={node.score} digits={4} />
              </b>
            </td>
          </tr>
        </tbody>
      </table>
    </>
  );
}

function Continue({ modelId, text, prefix }: { modelId: string; text: string; prefix: string[] }) {
  const key = prefix.join("\u0000");
  const [state, setState] = useState<{ key: string; list: Hypothesis[] | null; problem: Problem | null } | null>(null);
  useEffect(() => setState(null), [key]);
  const ask = () => {
    setState({ key, list: null, problem: null });
    api.translations({ model: modelId, text, prefix }).then(
      (answer) => setState((now) => (now?.key === key ? { key, list: answer.hypotheses, problem: null } : now)),
      (error) => setState((now) => (now?.key === key ? { key, list: null, problem: problemOf(error) } : now)),
    );
  };
  return (
    <>
      <button type="button" class="button" onClick={ask}>
        Translate again from this prefix
      </button>
      {state?.problem ? <Message problem={state.problem} /> : null}
      {state && !state.list && !state.problem ? <Waiting /> : null}
      {state?.list ? (
        <table class="table">
          <thead>
            <tr>
              <th>Translation</th>
              <th class="right">Score</th>
              <th class="right">log P</th>
            </tr>
          </thead>
          <tbody>
            {state.list.map((item, index) => (
              <tr key={index}>
                <td>
                  <bdi>{item.text}</bdi>
                </td>
                <td class="right">
                  <Num value={item.score} />
                </td>
                <td class="right">
                  <Num value={item.log_prob} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      ) : null}
    </>
  );
}
