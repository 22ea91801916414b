// View 6: which translations were tried, kept and dropped.
import { useMemo } from "preact/hooks";
import { api, source } from "../data/api";
import { useResource } from "../data/resource";
import type { Beam } from "../data/types";
import { go, link } from "../state";
import { Choice, Loaded, Title } from "../ui/basic";
import { Exports } from "../ui/exports";
import type { ViewProps } from "../views";
import { layoutBeam } from "./beam_layout";
import { NodePanel } from "./beam_node";
import { BeamTree, paintTree, treeSize } from "./beam_tree";

const COLUMNS = [
  "id",
  "parent",
  "step",
  "token",
  "log_prob",
  "total",
  "divisor",
  "length",
  "coverage",
  "score",
  "rank",
  "state",
  "best",
] as const;

/** A tree has at least two branches. */
const WIDTHS = ["2", "3", "4", "5", "8", "10"].map((width) => [width, width] as const);

export function BeamView({ model, trace }: ViewProps) {
  const data = useResource(trace.id, () => api.beam(trace.id));
  return (
    <>
      <Title name="Beam search">Each column is one step: the best prefixes on top are kept, the others are dropped.</Title>
      <Loaded from={data}>{(beam) => <BeamPicture beam={beam} modelId={model.id} text={trace.source.text} />}</Loaded>
    </>
  );
}

function BeamPicture({ beam, modelId, text }: { beam: Beam; modelId: string; text: string }) {
  const layout = useMemo(() => layoutBeam(beam.nodes), [beam]);
  const reference = useMemo(() => new Set((beam.reference ?? []).map((id) => layout.index.get(id) ?? -1)), [beam, layout]);
  const best = beam.nodes.reduce((last, node, at) => (node.best && node.step >= (beam.nodes[last]?.step ?? -1) ? at : last), 0);
  const wanted = beam.nodes.findIndex((node) => String(node.id) === link.value.node);
  const chosen = wanted >= 0 ? wanted : best;
  const choose = (at: number) => go({ node: String(beam.nodes[at].id) });
  if (!beam.nodes.length) return <p>The search made no nodes.</p>;
  return (
    <>
      <div class="controls">
        {source.live ? (
          <Choice
            label="Beam width"
            value={String(beam.width)}
            options={withCurrent(beam.width)}
            onChange={(value) => go({ beam: value, node: null })}
          />
        ) : null}
        <ul class="key" aria-label="Meaning of the marks">
          <li>
            <i class="k-kept" />
            kept
          </li>
          <li>
            <i class="k-pruned" />
            dropped
          </li>
          <li>
            <i class="k-finished" />
            finished
          </li>
          <li>
            <i class="k-best" />
            best
          </li>
          {beam.reference?.length ? (
            <li>
              <i class="k-reference" />
              your translation
            </li>
          ) : null}
        </ul>
      </div>
      <BeamTree layout={layout} reference={reference} chosen={chosen} onChoose={choose} />
      <Exports
        name="beam"
        picture={() => ({ ...treeSize(layout), paint: (surface) => paintTree(surface, layout, reference, chosen, 0, Infinity) })}
        csv={() => [
          [...COLUMNS],
          ...beam.nodes.map((node) => COLUMNS.map((name) => (name === "best" ? String(node.best) : node[name]) as string | number | null)),
        ]}
        json={() => beam}
      />
      <NodePanel beam={beam} layout={layout} at={chosen} modelId={modelId} text={text} onChoose={choose} />
    </>
  );
}

function withCurrent(width: number) {
  return WIDTHS.some(([name]) => Number(name) === width) ? WIDTHS : [...WIDTHS, [String(width), String(width)] as const];
}
