import assert from "node:assert/strict";
import test from "node:test";
import { bare, clamp, count, cut, entropy, extent, largest, meanOf, percent, rowOf, show, softmax, sum, ticks } from "../../src/math";

test("softmax sums to 1, gives 0 for minus infinity, and survives large scores", () => {
  const weights = softmax([1000, 999, -Infinity]);
  assert.ok(Math.abs(sum(weights) - 1) < 1e-12);
  assert.equal(weights[2], 0);
  assert.ok(Math.abs(weights[0] - 1 / (1 + Math.exp(-1))) < 1e-12);
  assert.deepEqual([...softmax([-Infinity, -Infinity])], [0, 0]);
});

test("entropy is in bits", () => {
  assert.equal(entropy([0.25, 0.25, 0.25, 0.25]), 2);
  assert.equal(entropy([1, 0, 0]), 0);
});

test("show writes numbers for people", () => {
  assert.equal(show(-Infinity), "−∞");
  assert.equal(show(0.12345), "0.123");
  assert.equal(show(-2), "−2");
  assert.equal(show(0.00001), "1.0e−5");
  assert.equal(show(0.001, 2), "0.00");
  assert.equal(show(1234567.5), "1.2e+6");
  assert.equal(show(null), "–");
  assert.equal(show(NaN), "not a number");
});

test("cut keeps whole characters, hides no controls, and drops the mark of a space", () => {
  assert.equal(cut("▁animal"), "animal");
  assert.equal(cut("▁"), "␣");
  assert.equal(cut("Ċ"), "⏎");
  assert.equal(cut("x".repeat(10240), 8), "xxxxxxx…");
  assert.equal(cut("😀😀😀😀", 3), "😀😀…");
  assert.equal(cut("\u202Eevil"), "�evil");
  assert.equal(cut(""), "∅");
  assert.equal(cut(" "), "␣");
  assert.equal(cut("a\nb"), "a⏎b");
  assert.equal(cut("<img src=x>"), "<img src=x>");
});

test("bare finds the word in a token", () => {
  for (const token of ["▁It", "Ġit", "it", "##it", "it@@", "it</w>"]) assert.equal(bare(token), "it");
});

test("small helpers", () => {
  assert.deepEqual(largest([1, 5, 3, 5], 3), [1, 3, 2]);
  assert.deepEqual(extent([1, -Infinity, 4, NaN]), [1, 4]);
  assert.deepEqual(extent([]), [0, 0]);
  assert.equal(clamp(5, 0, 3), 3);
  assert.deepEqual([...rowOf(Float32Array.of(1, 2, 3, 4), 2, 1)], [3, 4]);
  assert.deepEqual(
    [
      ...meanOf([
        [1, 3],
        [3, 5],
      ]),
    ],
    [2, 4],
  );
  assert.equal(count(6_700_000), "6.7 M");
  assert.equal(count(12), "12");
  assert.equal(percent(0.0001), "<0.1%");
  assert.deepEqual(ticks(0, 10, 5), [0, 2, 4, 6, 8, 10]);
  assert.deepEqual(ticks(3, 3), [3]);
});
