import assert from "node:assert/strict";
import test from "node:test";
import { colourIndex, colourTable, headColour, inkOn, type Scale } from "../../src/colours";
import type { BeamNode } from "../../src/data/types";
import { pooled, poolingWeights, readPairs, writePairs } from "../../src/pooling_math";
import { layoutBeam, neighbour, pathTo, prefixOf, rankOf, referenceLost } from "../../src/views/beam_layout";
import { reachOf, winsOfTokens } from "../../src/views/convolution_math";
import { strongEdges } from "../../src/views/head_edges";
import { bestByRelation, orderedHeads } from "../../src/views/head_order";
import { namesBeside } from "../../src/views/map_names";
import { dotsByOffset } from "../../src/views/positions_math";
import { curvesOf, linesOf, marksOf, nameOf, saidOf } from "../../src/views/training_rows";

test("the sequential map grows all the way from light to dark, or back", () => {
  for (const dark of [false, true]) {
    const table = colourTable("weights", dark);
    const light = (i: number) => 0.2126 * table[3 * i] + 0.7152 * table[3 * i + 1] + 0.0722 * table[3 * i + 2];
    for (let i = 1; i < 256; i++) assert.ok(dark ? light(i) >= light(i - 1) - 0.5 : light(i) <= light(i - 1) + 0.5);
  }
  const scale: Scale = { map: "weights", low: 0, high: 1, power: 1 };
  assert.deepEqual([colourIndex(scale, 0), colourIndex(scale, 1), colourIndex(scale, 7)], [0, 255, 255]);
  assert.equal(inkOn(scale, 0, false), "#000000");
  assert.equal(inkOn(scale, 1, false), "#ffffff");
  assert.notEqual(headColour(0, false), headColour(1, false));
});

test("pooling: weights sum to 1, a kernel that sees nothing has no result", () => {
  const pairs = [
    { key: -1, value: 1 },
    { key: 1, value: 3 },
  ];
  for (const score of ["gaussian", "dot", "triangular", "epanechnikov", "boxcar"] as const) {
    const weights = poolingWeights(0, pairs, score, 2);
    assert.ok(Math.abs(weights[0] + weights[1] - 1) < 1e-12);
    assert.ok(Math.abs(pooled(weights, pairs)! - 2) < 1e-12);
  }
  assert.equal(pooled(poolingWeights(0, pairs, "boxcar", 0.5), pairs), null);
  assert.deepEqual(readPairs(writePairs(pairs)), pairs);
  assert.equal(readPairs("1,2;x"), null);
});

const node = (id: number, parent: number | null, step: number, total: number, state: BeamNode["state"] = "kept"): BeamNode => ({
  id,
  parent,
  step,
  token: `t${id}`,
  log_prob: 0,
  total,
  divisor: 1,
  length: 0,
  coverage: null,
  score: null,
  rank: null,
  state,
  best: false,
});

test("beam: columns by step, best on top, paths and arrows", () => {
  const layout = layoutBeam([node(0, null, 0, 0), node(1, 0, 1, -2), node(2, 0, 1, -1), node(3, 0, 1, -0.5, "pruned"), node(4, 1, 2, -3)]);
  assert.deepEqual(layout.columns, [[0], [2, 1, 3], [4]]);
  assert.deepEqual(pathTo(layout, 4), [0, 1, 4]);
  assert.deepEqual(prefixOf(layout, 4), ["t1", "t4"]);
  const ended = layoutBeam([
    node(0, null, 0, 0),
    node(1, 0, 1, -1),
    node(2, 1, 2, -2, "finished"),
    { ...node(3, 1, 2, -3, "pruned"), token: "t2" },
  ]);
  assert.deepEqual([prefixOf(ended, 2), prefixOf(ended, 3)], [["t1"], ["t1"]]);
  assert.equal(neighbour(layout, 0, "ArrowRight"), 2);
  assert.equal(neighbour(layout, 2, "ArrowDown"), 1);
  assert.equal(neighbour(layout, 4, "ArrowLeft"), 1);
  assert.equal(neighbour(layout, 0, "ArrowLeft"), 0);
  assert.equal(referenceLost(layout, [0, 3]), 3);
  assert.equal(referenceLost(layout, null), null);
  for (const first of [0, 1]) {
    const ranked = layoutBeam([
      { ...node(0, null, 0, 0), rank: 0 },
      { ...node(1, 0, 1, -1), rank: first },
      { ...node(2, 0, 1, -2), rank: first + 1 },
    ]);
    assert.deepEqual([rankOf(ranked, 1), rankOf(ranked, 2)], [1, 2]);
  }
});

test("heads: lines from the threshold on, order and relations", () => {
  const edges = strongEdges([Float32Array.of(0.1, 0.9, 0.5, 0.5)], [7], 2, 0.5);
  assert.deepEqual(
    edges.map(({ row, column, head }) => [row, column, head]),
    [
      [1, 0, 7],
      [1, 1, 7],
      [0, 1, 7],
    ],
  );
  const statistics = [
    [
      { entropy: 2, diagonal: 0.1, first: 0 },
      { entropy: 1, diagonal: 0.9, first: 0 },
    ],
  ];
  assert.deepEqual(
    orderedHeads(1, 2, "entropy", statistics).map(({ head }) => head),
    [1, 0],
  );
  assert.deepEqual(
    orderedHeads(1, 2, "diagonal", statistics).map(({ head }) => head),
    [1, 0],
  );
  assert.deepEqual(
    bestByRelation([
      ["obj 61%", "amod 90%, obj 70%"],
      [null, "nsubj 40%"],
    ]),
    [
      { relation: "nsubj", percent: 40, layer: 1, head: 1 },
      { relation: "obj", percent: 70, layer: 0, head: 1 },
      { relation: "amod", percent: 90, layer: 0, head: 1 },
    ],
  );
});

test("convolutions: what a place sees", () => {
  assert.deepEqual(
    reachOf(
      [
        { kernel: 3, dilation: 1 },
        { kernel: 3, dilation: 2 },
      ],
      4,
      10,
    ),
    [[1, 2, 3, 4, 5, 6, 7], [2, 4, 6], [4]],
  );
  assert.deepEqual(
    winsOfTokens(
      [
        { filter: 0, begin: 1, end: 3, score: 1 },
        { filter: 1, begin: 2, end: 9, score: 1 },
      ],
      4,
    ),
    [0, 1, 2, 1],
  );
});

test("positions: mean dot product by distance", () => {
  assert.deepEqual(dotsByOffset([1, 0, 0, 1], 2, 2, 5), [
    { offset: -1, mean: 0 },
    { offset: 0, mean: 1 },
    { offset: 1, mean: 0 },
  ]);
});

test("training: curves in order, marks once", () => {
  const rows = [
    { step: 2, loss: 2, skipped: 1, last_skipped_step: 1 },
    { step: 1, loss: 3, bleu: null, lr: 0.1 },
    { step: 3, loss: 1, skipped: 1, last_skipped_step: 1, event: "resume" },
  ];
  const curves = curvesOf(rows);
  assert.deepEqual(
    curves.map(({ name, steps }) => [name, steps]),
    [
      ["loss", [1, 2, 3]],
      ["lr", [1]],
    ],
  );
  assert.deepEqual(marksOf(rows), [
    { step: 1, what: "skipped", count: 1 },
    { step: 3, what: "resumed", count: 1 },
  ]);
  const many = marksOf([
    { step: 20, skipped: 4, last_skipped_step: 18 },
    { step: 10, skipped: 1, last_skipped_step: 7 },
    { step: 15, event: "resumed" },
    { step: 30, skipped: 4, last_skipped_step: 18 },
  ]);
  assert.deepEqual(
    many.map((mark) => [mark.step, nameOf(mark)]),
    [
      [7, "skipped"],
      [15, "resumed"],
      [18, "3 skipped"],
    ],
  );
  assert.deepEqual(linesOf([0, 30, 50, 60, 200].map((x) => ({ x, wide: 45 }))), [0, 1, 0, 2, 0]);
  assert.equal(saidOf(many), "resumed: 1 (step 15); batches skipped, loss or gradient not finite: 4 (step 7, step 18)");
});

test("map: names do not cover each other, and a name without room is left out", () => {
  const dot = (x: number, y: number, text = "word") => ({ x, y, text });
  assert.deepEqual(
    namesBeside([dot(100, 100), dot(102, 101), dot(380, 50)], 400).map((name) => [name.at, name.anchor]),
    [
      [0, "start"],
      [1, "end"],
      [2, "end"],
    ],
  );
  const crowd = Array.from({ length: 40 }, () => dot(200, 100));
  assert.ok(namesBeside(crowd, 400).length <= 4);
});
