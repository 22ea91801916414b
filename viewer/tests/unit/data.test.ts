import assert from "node:assert/strict";
import test from "node:test";
import { EmbeddedSource } from "../../src/data/embedded";
import { asFloats, readFrame } from "../../src/data/frame";
import { Trouble, problemOf, withQuery } from "../../src/data/source";
import { matrixRows, toCsv, toJson } from "../../src/export";
import { escaped } from "../../src/draw/svg";
import { pythonName, toPython } from "../../src/python";
import { changed, chosenHeads, readLink, wholeNumber, writeLink } from "../../src/link";

function frame(header: object, numbers: ArrayBuffer): ArrayBuffer {
  const json = new TextEncoder().encode(JSON.stringify(header));
  const pad = (4 - ((4 + json.length) % 4)) % 4;
  const out = new Uint8Array(4 + json.length + pad + numbers.byteLength);
  new DataView(out.buffer).setUint32(0, json.length, true);
  out.set(json, 4);
  out.set(new Uint8Array(numbers), 4 + json.length + pad);
  return out.buffer;
}

test("frames of both kinds, with every padding", () => {
  for (const note of ["", "a", "ab", "abc", "ü"]) {
    const f32 = readFrame(frame({ type: "f32", shape: [2], note }, Float32Array.of(0.1, -Infinity).buffer));
    assert.deepEqual([...f32.numbers], [Math.fround(0.1), -Infinity]);
    assert.equal(f32.header.note, note);
  }
  const u8 = readFrame(frame({ type: "u8", shape: [2] }, Uint8Array.of(0, 255).buffer));
  assert.deepEqual([...asFloats(u8)], [0, 1]);
  assert.throws(() => readFrame(new ArrayBuffer(2)));
  assert.throws(() => readFrame(Uint32Array.of(99).buffer));
});

test("a saved page answers from itself, rounded where the exact numbers were not saved", async () => {
  const bytes = Buffer.from(frame({ type: "u8", shape: [1] }, Uint8Array.of(51).buffer)).toString("base64");
  const source = new EmbeddedSource({ "GET /api/models": { json: { models: [] } }, "GET /w?head=0&type=u8": { base64: bytes } });
  assert.deepEqual(await source.get("/api/models"), { models: [] });
  const path = withQuery("/w", { type: "f32", head: 0, missing: undefined });
  assert.equal(path, "/w?head=0&type=f32");
  assert.deepEqual([...asFloats(readFrame(await source.bytes(path)))], [Math.fround(0.2)]);
  await assert.rejects(source.get("/other"), (error) => error instanceof Trouble && /not saved/.test(problemOf(error).what));
});

test("links keep any text", () => {
  const link = { view: "heads", text: "a & b = c # 100% 👍 שלום" };
  assert.deepEqual(readLink(writeLink(link)), link);
  assert.deepEqual(changed(link, { row: 3, text: null }), { view: "heads", row: "3" });
  assert.equal(wholeNumber({ row: "7" }, "row", 0, 0, 5), 5);
  assert.equal(wholeNumber({ row: "-1" }, "row", 2, 0, 5), 2);
  assert.equal(wholeNumber({ row: "1e9" }, "row", 2, 0, 5), 2);
  assert.deepEqual(chosenHeads("all", 3, [0]), [0, 1, 2]);
  assert.deepEqual(chosenHeads("2.0.9.2", 3, [1]), [0, 2]);
  assert.deepEqual(chosenHeads("x", 3, [1]), [1]);
});

test("CSV is quoted, harmless in a spreadsheet, and keeps all digits", () => {
  assert.equal(toCsv([["a,b", 'say "x"', "=1+1", -0.1, null]]), '"a,b","say ""x""",\'=1+1,-0.1,\r\n');
  const value = Math.fround(0.1);
  assert.match(toCsv(matrixRows(["r"], ["c"], Float32Array.of(value))), new RegExp(String(value)));
});

test("JSON keeps infinities as strings", () => {
  assert.deepEqual(JSON.parse(toJson({ a: Float32Array.of(1, -Infinity), b: NaN })), { a: [1, "-Infinity"], b: "NaN" });
});

test("SVG text is never markup", () => {
  assert.equal(escaped('<img onerror="x">&\u0000'), "&lt;img onerror=&quot;x&quot;&gt;&amp;�");
});

test("numbers of a step as Python", () => {
  const step = { name: "s", title: "Mask", formula: "s = −∞", about: "", tensors: [{ name: "a v", shape: [1, 2], offset: 0 }] };
  const text = toPython(step, () => Float32Array.of(0.5, -Infinity));
  assert.match(text, /a_v = np\.array\(\[0\.5, -np\.inf\], dtype=np\.float32\)\.reshape\(1, 2\)/);
  assert.deepEqual(
    ["s̃", "1 x", "…"].map(pythonName).map((name) => /^[\p{L}_][\p{L}\p{N}_]*$/u.test(name)),
    [true, true, true],
  );
});
