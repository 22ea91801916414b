// What words.mjs needs from numbers.mjs, and a softmax.
export { framed, normals, random, seedOf } from "./numbers.mjs";

export function softmaxOf(scores) {
  const e = [...scores].map(Math.exp);
  const sum = e.reduce((a, b) => a + b, 0);
  return e.map((value) => value / sum);
}
