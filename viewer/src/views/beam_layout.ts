// Where the nodes of a beam search stand: one column for each step, the best on top.
import type { BeamNode } from "../data/types";

export type NodeId = number | string;

export interface BeamLayout {
  nodes: BeamNode[];
  index: Map<NodeId, number>;
  column: Int32Array;
  line: Int32Array;
  children: number[][];
  parent: Int32Array;
  columns: number[][];
  lines: number;
  /** Ranks count from here: 0 or 1. */
  firstRank: number;
}

export function layoutBeam(nodes: BeamNode[]): BeamLayout {
  const index = new Map<NodeId, number>(nodes.map((node, at) => [node.id, at]));
  const parent = Int32Array.from(nodes, (node) => (node.parent === null ? -1 : (index.get(node.parent) ?? -1)));
  const children: number[][] = nodes.map(() => []);
  parent.forEach((at, child) => at >= 0 && children[at].push(child));
  const first = nodes.reduce((least, node) => Math.min(least, node.step), Infinity);
  const columns: number[][] = [];
  nodes.forEach((node, at) => (columns[node.step - first] ??= []).push(at));
  for (let step = 0; step < columns.length; step++) columns[step] ??= [];
  const order = (at: number) => [nodes[at].state === "pruned" ? 1 : 0, nodes[at].rank ?? 1e9, -nodes[at].total];
  const column = new Int32Array(nodes.length);
  const line = new Int32Array(nodes.length);
  let lines = 1;
  columns.forEach((list, step) => {
    list.sort((a, b) => {
      const [p, q] = [order(a), order(b)];
      return p[0] - q[0] || p[1] - q[1] || p[2] - q[2];
    });
    list.forEach((at, place) => {
      column[at] = step;
      line[at] = place;
    });
    lines = Math.max(lines, list.length);
  });
  children.forEach((list) => list.sort((a, b) => line[a] - line[b]));
  return { nodes, index, column, line, children, parent, columns, lines, firstRank: leastRank(nodes) };
}

function leastRank(nodes: BeamNode[]): number {
  // The start has no rivals: its rank says nothing.
  return nodes.reduce((least, node) => (node.parent === null ? least : Math.min(least, node.rank ?? least)), 1);
}

/** First, second, … of its step, for people. */
export function rankOf(layout: BeamLayout, at: number): number | null {
  const { rank } = layout.nodes[at];
  return rank === null || rank === undefined ? null : rank - layout.firstRank + 1;
}

/** The nodes from the start to this one. */
export function pathTo(layout: BeamLayout, at: number): number[] {
  const path: number[] = [];
  for (let here = at; here >= 0 && path.length <= layout.nodes.length; here = layout.parent[here]) path.unshift(here);
  return path;
}

/** The tokens to force: without the start mark, which has no parent and step 0, and without the mark of the end. */
export function prefixOf(layout: BeamLayout, at: number): string[] {
  const ends = new Set(layout.nodes.filter((node) => node.state === "finished").map((node) => node.token));
  return pathTo(layout, at)
    .map((here) => layout.nodes[here])
    .filter((node) => !(node.parent === null && node.step === 0) && !ends.has(node.token))
    .map((node) => node.token);
}

/** The next node for an arrow key. */
export function neighbour(layout: BeamLayout, at: number, key: string): number {
  const list = layout.columns[layout.column[at]];
  if (key === "ArrowLeft") return layout.parent[at] >= 0 ? layout.parent[at] : at;
  if (key === "ArrowRight") return layout.children[at][0] ?? at;
  if (key === "ArrowUp") return list[Math.max(0, layout.line[at] - 1)];
  return list[Math.min(list.length - 1, layout.line[at] + 1)];
}

/** The first node of the reference that was not kept: where the reference lost. */
export function referenceLost(layout: BeamLayout, reference: NodeId[] | null): number | null {
  for (const id of reference ?? []) {
    const at = layout.index.get(id);
    if (at !== undefined && layout.nodes[at].state === "pruned") return at;
  }
  return null;
}
