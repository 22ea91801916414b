// Made-up answers about words, runs and evaluations.
import { framed, normals, random, seedOf, softmaxOf } from "./extra.mjs";

const WORDS = ["street", "animal", "king", "queen", "tired", "river", "bank", "road", "house", "cat", "dog", "walked"];
const guesses = (name, top, key = "token") => {
  const p = softmaxOf(normals(name, WORDS.length, 1.5));
  return WORDS.map((word, i) => ({ [key]: word, probability: p[i] }))
    .sort((a, b) => b.probability - a.probability)
    .slice(0, top);
};
const near = (name, top) =>
  WORDS.map((word) => ({ word, cosine: random(seedOf(name + word))() }))
    .sort((a, b) => b.cosine - a.cosine)
    .slice(0, top);

export const answers = {
  next: ({ text, top }) => ({
    tokens: text.split(/\s+/).map((token, i) => ({ token, surprisal: i ? 12 * random(seedOf(token + i))() ** 2 : null })),
    next: guesses(text, top ?? 10),
    layers: [0, 1, 2, 3].map((layer) => guesses(`${text} ${layer}`, 5)),
  }),
  fill: ({ text, top }) => ({ masks: [...text.matchAll(/\[MASK\]/g)].map((_, i) => guesses(`${text} ${i}`, top ?? 8, "word")) }),
  near: ({ word, top }) => ({ near: near(word, top ?? 10) }),
  analogy: ({ a, b, c }) => ({ near: near(a + b + c, 5) }),
  map: (words) => ({
    points: [...new Set([...words, ...WORDS])].map((word) => ({ word, x: normals(`x${word}`, 1)[0], y: normals(`y${word}`, 1)[0] })),
  }),
  context: ({ word, texts }) => ({
    cosines: [0, 1, 2, 3, 4].map((layer) => 1 - 0.15 * layer * (0.5 + random(seedOf(texts.join() + word + layer))())),
    static: 1,
    near: [],
  }),
  translations: ({ text, prefix }) => ({
    hypotheses: ["weil es müde war", "denn es war müde", "weil sie müde ist"].map((rest, i) => ({
      text: [...prefix, rest].join(" "),
      tokens: [...prefix, ...rest.split(" ")],
      score: -0.4 - 0.2 * i,
      log_prob: -3 - i - (text.length % 3),
    })),
  }),
};

export function curves(id) {
  const noise = normals(`curve ${id}`, 400);
  return Array.from({ length: 200 }, (_, i) => row(i, noise));
}

export function row(i, noise = normals("live", 400)) {
  const step = 100 * (i + 1);
  return {
    step,
    loss: 1.8 + 6 * Math.exp(-i / 30) + 0.08 * noise[i % 400],
    learning_rate: 5e-4 * Math.min((i + 1) / 40, Math.sqrt(40 / (i + 1))),
    gradient_norm: 0.8 + 0.2 * Math.abs(noise[(i + 7) % 400]),
    tokens_per_second: 41000 + 1500 * noise[(i + 3) % 400],
    bleu: i % 20 === 19 ? 34 * (1 - Math.exp(-i / 50)) : null,
    ...(i === 90 ? { event: "resume" } : {}),
    ...(i === 140 ? { event: "skip" } : {}),
  };
}

export const evaluation = {
  lengths: ["1–5", "6–10", "11–15", "16–20", "21–30", "31+"].map((label, i) => ({
    label,
    bleu: 42 - 3.1 * i,
    low: 40 - 3.6 * i,
    high: 44 - 2.6 * i,
    sentences: 400 - 60 * i,
  })),
  sentences: [
    "The cat sleeps.",
    "She walked home because it rained.",
    "We have never seen the river so low.",
    "<b>Bold</b> words stay text.",
  ].map((source, i) => ({
    source,
    reference: `Verweis ${i + 1}: ${source}`,
    written: `Satz ${i + 1}: ${source}`,
    chrf: 81.2 - 14.7 * i,
  })),
};

export function positionTables() {
  return [
    { name: "sinusoid", title: "Sinusoids", shape: [64, 32] },
    { name: "relative.0", title: "Relative keys, layer 1", shape: [33, 8] },
  ];
}

export function positionTable(name) {
  if (name === "sinusoid") {
    const values = Float32Array.from({ length: 64 * 32 }, (_, at) => {
      const angle = Math.floor(at / 32) / 10000 ** ((2 * Math.floor((at % 32) / 2)) / 32);
      return at % 2 ? Math.cos(angle) : Math.sin(angle);
    });
    return framed({ type: "f32", shape: [64, 32] }, values);
  }
  return framed({ type: "f32", shape: [33, 8] }, normals("relative", 33 * 8));
}
