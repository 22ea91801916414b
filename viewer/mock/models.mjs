// The made-up models of the mock: one of each kind, and one whose every answer is an error.

const NAMES = [
  "alignment",
  "heads",
  "steps",
  "recurrent",
  "local",
  "beam",
  "positions",
  "ponder",
  "convolution",
  "vectors",
  "language",
  "training",
  "evaluation",
  "compare",
  "pooling",
];
const WHY = {
  alignment: "it has no target",
  heads: "it has no heads",
  steps: "it has no attention",
  recurrent: "it has no gates",
  local: "its attention sees everything",
  beam: "it writes nothing",
  positions: "it has no positions",
  ponder: "it has no halting",
  convolution: "it has no convolution",
  vectors: "it has no word table",
  language: "it predicts no next word",
  training: "this run has no log",
  evaluation: "this run was not evaluated",
  compare: "there is nothing to align",
};

function model(id, name, architecture, does, settings, views, extra = {}) {
  const all = Object.fromEntries(
    NAMES.map((view) => [view, view === "pooling" || views.includes(view) || `not applicable to ${architecture}: ${WHY[view]}`]),
  );
  return {
    id,
    name,
    architecture,
    does,
    parameters: 6_700_000,
    settings,
    views: all,
    sentence: "The animal didn't cross the street because it was too tired",
    words: ["street", "animal", "king", "queen", "river", "road", "house", "cat", "dog"],
    languages: { source: "en", target: does === "translates" ? "de" : null },
    ...extra,
  };
}

const translated = ["alignment", "beam", "compare", "training", "evaluation"];
export const MODELS = [
  model("0", "mock-en-de", "transformer", "translates", { layers: 6, heads: 8 }, [...translated, "heads", "steps", "positions", "vectors"]),
  model("1", "mock-rnn", "bahdanau", "translates", { layers: 1, heads: 1 }, [...translated, "steps", "recurrent", "heads"], {
    parameters: 2_100_000,
  }),
  model("2", "mock-local", "luong", "translates", { layers: 2, heads: 1 }, [...translated, "steps", "recurrent", "local"]),
  model("3", "mock-gpt", "gpt", "continues", { layers: 4, heads: 4 }, ["heads", "steps", "language", "positions", "training", "vectors"], {
    sentence: "The quick brown fox jumps over the lazy",
  }),
  model("4", "mock-bert", "bert", "fills", { layers: 4, heads: 4 }, ["heads", "steps", "language", "vectors"], {
    sentence: "The animal [MASK] the street because it was [MASK]",
  }),
  model("5", "mock-universal", "universal", "translates", { layers: 6, heads: 4 }, [...translated, "heads", "steps", "ponder"]),
  model("6", "mock-cnn", "textcnn", "classifies", { layers: 1 }, ["convolution", "training", "vectors"], {
    sentence: "a film of rare wit that never quite bores",
  }),
  model("7", "mock-vectors", "skipgram", "embeds", {}, ["vectors", "training"], { sentence: "king" }),
  model("9", "mock-convs2s", "convs2s", "translates", { layers: 3, heads: 1 }, [...translated, "heads", "convolution", "positions"]),
  model("8", "mock-broken", "transformer", "translates", { layers: 2, heads: 2 }, NAMES),
];

const GERMAN = "Das Tier überquerte die Straße nicht , weil es zu müde war".split(" ");

/** Words, and the tokens of each: long words fall into two pieces. */
export function textOf(text, end = "</s>") {
  const tokens = [];
  const words = [];
  for (const word of text.trim().split(/\s+/)) {
    const begin = tokens.length;
    if (/^[\p{L}']{8,20}$/u.test(word)) tokens.push(word.slice(0, 5), "##" + word.slice(5));
    else tokens.push(word);
    words.push([begin, tokens.length]);
  }
  words.push([tokens.length, tokens.length + 1]);
  tokens.push(end);
  return { text, tokens, words, log_probs: null, special: tokens.map((token) => token === end) };
}

export function translationOf(text) {
  if (text.startsWith("The animal didn't")) return GERMAN.join(" ");
  return text
    .trim()
    .split(/\s+/)
    .map((word) => (/^\p{L}+$/u.test(word) ? word + "e" : word))
    .join(" ");
}

export function partsOf(model, source, target) {
  const { layers, heads = 1 } = model.settings;
  const part = (name, title, rows, columns, causal) => ({
    name,
    title,
    rows,
    columns,
    layers,
    heads,
    causal,
    shape: [(rows === "source" ? source : target).tokens.length, (columns === "source" ? source : target).tokens.length],
  });
  if (model.does === "translates" && model.architecture !== "bahdanau" && model.architecture !== "luong")
    return [
      part("encoder.self", "Source to source", "source", "source", false),
      part("decoder.self", "Target to target", "target", "target", true),
      part("decoder.cross", "Target to source", "target", "source", false),
    ];
  if (model.does === "translates")
    return [{ ...part("decoder.cross", "Target to source", "target", "source", false), layers: 1, heads: 1 }];
  if (model.does === "continues") return [part("self", "Text to text", "source", "source", true)];
  if (model.does === "fills") return [part("self", "Text to text", "source", "source", false)];
  return [];
}
