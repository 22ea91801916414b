// A server that speaks the contract with made-up numbers. Text "error" and model 8 show every error.
import { createServer } from "node:http";
import { existsSync, readFileSync } from "node:fs";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { MODELS } from "./models.mjs";
import { framed, normals, toBytes } from "./numbers.mjs";
import { stepsFrame } from "./steps.mjs";
import { MockTrace } from "./trace.mjs";
import { answers, curves, evaluation, positionTable, positionTables, row } from "./words.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";
const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8" };

class Refusal extends Error {
  constructor(status, where, what, todo) {
    super(what);
    this.status = status;
    this.body = { error: { where, what, todo } };
  }
}

const modelOf = (id) =>
  MODELS.find((model) => model.id === id) ?? refuse(404, "model", `there is no model ${id}`, "Choose one of the list.");
function refuse(...details) {
  throw new Refusal(...details);
}
const healthy = (model, where) =>
  model.id === "8" && refuse(500, where, "the run folder is gone", "Put it back, or start `regard look` with another folder.");

function makeTrace(traces, { model: id, text, target }) {
  const model = modelOf(id);
  if (text.trim() === "") refuse(400, "text", "is empty", "Type a sentence.");
  if (text === "error") refuse(500, "traces", "the model could not read this sentence", "Try another one.");
  const words = text.trim().split(/\s+/).length;
  if (words > 2000) refuse(413, "text", `has ${words} tokens, more than 2000`, "Use a shorter text.");
  const key = JSON.stringify([id, text, target]);
  for (const [, trace] of traces) if (trace.key === key) return trace.header();
  const trace = new MockTrace(`t${traces.size + 1}`, model, text, target);
  trace.key = key;
  traces.set(trace.id, trace);
  return trace.header();
}

function traceRoute(traces, id, rest, query) {
  const trace = traces.get(id) ?? refuse(404, "trace", `there is no trace ${id}`, "Look at the sentence again.");
  healthy(trace.model, rest);
  const part = () =>
    trace.part(query.get("part")) ?? refuse(404, "part", `there is no part ${query.get("part")}`, "Choose one of the list.");
  const number = (name) => Number(query.get(name));
  const recurrent = /^(?:recurrent|convolution)\/(.+)$/.exec(rest);
  if (recurrent) {
    const name = decodeURIComponent(recurrent[1]);
    const tokens = trace.tokens(name.startsWith("decoder") ? "target" : "source");
    const gate = query.get("gate");
    const squash = ["cell", "state", "A", "A ⊗ σ(B)"].includes(gate) ? Math.tanh : (value) => 1 / (1 + Math.exp(-value));
    return framed({ type: "f32", shape: [tokens.length, 48] }, normals(`${name} ${gate}`, tokens.length * 48).map(squash));
  }
  switch (rest) {
    case "weights": {
      const { weights } = trace.head(part(), number("layer"), number("head"));
      const type = query.get("type");
      return framed({ type, shape: part().shape }, type === "u8" ? toBytes(weights) : weights);
    }
    case "overview":
      return trace.overview(part(), number("size") || 48);
    case "alignment":
      return trace.alignment(query.get("type"), query.get("merge"));
    case "steps":
      return stepsFrame(trace, part(), number("layer"), number("head"), number("row"));
    case "beam":
      return trace.beam();
    case "recurrent":
      return {
        layers: [
          { name: "encoder.0", gates: ["input", "forget", "output", "cell"], tokens: "source", width: 48 },
          { name: "decoder.0", gates: ["update", "reset", "state"], tokens: "target", width: 48 },
        ],
      };
    case "ponder": {
      const tokens = trace.tokens(query.get("side") === "input" ? "target" : "source");
      const most = 6;
      const [chances, sums, weights, steps, remainder] = [[], [], [], [], []];
      const drawn = normals(`ponder ${trace.source.text} ${query.get("side")}`, tokens.length * most);
      tokens.forEach((_, i) => {
        let sum = 0;
        let halted = 0;
        for (let n = 0; n < most; n++) {
          const chance = 1 / (1 + Math.exp(0.6 - drawn[i * most + n]));
          const before = sum;
          sum += chance;
          chances.push(chance);
          sums.push(sum);
          const ends = !halted && (sum > 0.99 || n === most - 1);
          weights.push(halted ? 0 : ends ? 1 - before : chance);
          if (ends) {
            halted = n + 1;
            steps.push(halted);
            remainder.push(1 - before);
          }
        }
      });
      const cost = steps.reduce((total, n, i) => total + n + remainder[i], 0) / tokens.length;
      const header = { type: "f32", shape: [3, tokens.length, most], tokens, steps, remainder, cost, epsilon: 0.01 };
      return framed(header, Float32Array.from([...chances, ...sums, ...weights]));
    }
    case "local":
      return trace.local();
    case "convolution":
      return {
        layers: [
          { kernel: 3, dilation: 1 },
          { kernel: 3, dilation: 2 },
          { kernel: 5, dilation: 1 },
        ],
        gates: trace.target
          ? ["encoder.0", "encoder.1", "decoder.0", "decoder.1"].map((name) => ({
              name,
              gates: ["gate σ(B)", "A", "A ⊗ σ(B)"],
              tokens: name.startsWith("decoder") ? "target" : "source",
              width: 48,
            }))
          : [],
        winners: Array.from({ length: trace.model.does === "classifies" ? 24 : 0 }, (_, i) => {
          const begin = Math.floor(Math.abs(normals(`win ${i}`, 1)[0]) * 3) % Math.max(1, trace.source.tokens.length - 3);
          return { filter: i, begin, end: begin + 3 + (i % 3), score: Math.abs(normals(`score ${i}`, 1)[0]) };
        }),
      };
    default:
      return refuse(404, rest, "is not known", "");
  }
}

function answer(traces, method, path, query, body, response) {
  const trace = /^\/api\/traces\/([^/]+)\/(.+)$/.exec(path);
  if (trace) return traceRoute(traces, trace[1], trace[2], query);
  const model = /^\/api\/models\/([^/]+)\/(.+)$/.exec(path);
  if (model) {
    const of = modelOf(model[1]);
    healthy(of, model[2]);
    if (model[2] === "positions") return { tables: positionTables() };
    if (model[2].startsWith("positions/")) return positionTable(decodeURIComponent(model[2].slice(10)));
    if (model[2] === "curves") return { rows: curves(of.id), finished: of.id !== "0" };
    if (model[2] === "evaluation") return evaluation;
    if (model[2] === "curves/live") {
      response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
      const tell = (name, data) => response.write(`event: ${name}\ndata: ${JSON.stringify(data)}\n\n`);
      const finished = of.id !== "0";
      tell("state", { finished });
      for (const one of curves(of.id)) tell("row", one);
      let i = 200;
      // What a test does to the run while the page is open.
      let gone = false;
      const told = (name, data) => {
        gone = name === "gone";
        tell(name, data);
      };
      if (!finished) traces.happenings.add(told);
      const timer = finished ? 0 : setInterval(() => gone || tell("row", row(i++)), 700);
      response.on("close", () => {
        clearInterval(timer);
        traces.happenings.delete(told);
      });
      return null;
    }
  }
  if (path === "/api/models") return { models: MODELS };
  if (path === "/api/traces") return makeTrace(traces, body);
  if (path === "/api/words/map") {
    healthy(modelOf(query.get("model")), "words/map");
    return answers.map((query.get("words") ?? "").split(" ").filter(Boolean));
  }
  const name = path.split("/").pop();
  if (method === "POST" && answers[name]) {
    healthy(modelOf(body.model), name);
    if (body.prefix?.some((token) => ["<s>", "</s>"].includes(token))) refuse(422, "prefix", "it has a mark", "Give text tokens only.");
    return answers[name](body);
  }
  return refuse(404, path, "is not known", "");
}

export function serve(port, assets = join(here, "..", "..", "src", "regard", "looking", "assets")) {
  const traces = new Map();
  traces.happenings = new Set();
  const server = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url, "http://mock");
    const chunks = [];
    request.on("data", (chunk) => chunks.push(chunk));
    request.on("end", () => {
      try {
        if (!pathname.startsWith("/api/")) {
          const file = join(assets, pathname === "/" ? "index.html" : pathname.slice(1).replaceAll("..", ""));
          if (!existsSync(file)) refuse(404, pathname, "is not here", "");
          response.writeHead(200, { "content-type": TYPES[extname(file)] ?? "text/plain", "content-security-policy": POLICY });
          return response.end(readFileSync(file));
        }
        const body = chunks.length ? JSON.parse(Buffer.concat(chunks).toString("utf8")) : null;
        const made = answer(traces, request.method, pathname, searchParams, body, response);
        if (made === null) return;
        const binary = Buffer.isBuffer(made);
        response.writeHead(200, { "content-type": binary ? "application/octet-stream" : "application/json", "cache-control": "no-store" });
        response.end(binary ? made : JSON.stringify(made));
      } catch (error) {
        const status = error.status ?? 500;
        const refusal = error.body ?? { error: { where: pathname, what: String(error.stack ?? error), todo: "Mend the mock." } };
        response.writeHead(status, { "content-type": "application/json" });
        response.end(JSON.stringify(refusal));
      }
    });
  });
  server.happen = (name, data) => traces.happenings.forEach((tell) => tell(name, data));
  // As if the server had been started anew.
  server.forget = () => traces.clear();
  return new Promise((resolve) => server.listen(port, "127.0.0.1", () => resolve(server)));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const port = Number(process.argv[2] ?? 8765);
  await serve(port);
  console.log(`http://127.0.0.1:${port}/`);
}
