"use strict";
// The page of `regard serve`. It asks this server only, through the same interfaces as everybody else.
const $ = (id) => document.getElementById(id);
const WAIT = 350; // milliseconds after the last key
const TRIES = 3; // while the server is busy
let key = "", pairs = [], writers = [], asked = 0, timer = 0, running = null, writing = null;

const headers = () => ({ "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) });
const pause = (seconds, signal) => new Promise((done, fail) => {
  const waiting = setTimeout(done, seconds * 1000);
  signal?.addEventListener("abort", () => { clearTimeout(waiting); fail(new DOMException("", "AbortError")); });
});

function say(text, bad = false) {
  $("said").textContent = text;
  $("said").classList.toggle("bad", bad);
}

class Refused extends Error {
  constructor(status, text) { super(text); this.status = status; }
}

async function ask(path, body, signal) {
  for (let tries = 1; ; tries++) {
    const answer = await fetch(path, body === undefined ? { headers: headers(), signal } : { method: "POST", headers: headers(), body: JSON.stringify(body), signal });
    if (answer.ok) return answer;
    const busy = answer.status === 503 || answer.status === 429;
    const seconds = Number(answer.headers.get("Retry-After")) || 1;
    if (busy && tries < TRIES) {
      say(`The server is busy. Trying again in ${seconds} s …`);
      await pause(Math.min(seconds, 10), signal);
      continue;
    }
    const { error } = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, error?.message ?? error ?? `The server answered ${answer.status}.`);
  }
}

function fill(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, name]) => new Option(name, value, false, value === chosen)));
}

function show(name) {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const on = tab.dataset.panel === name;
    tab.setAttribute("aria-selected", on);
    tab.tabIndex = on ? 0 : -1;
    $(tab.dataset.panel).hidden = !on;
  }
  say("");
}

function makeTabs(names) {
  $("tabs").replaceChildren(...names.map(([panel, title]) => {
    const tab = document.createElement("button");
    Object.assign(tab, { type: "button", id: `tab-${panel}`, textContent: title });
    tab.dataset.panel = panel;
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", panel);
    tab.addEventListener("click", () => show(panel));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const all = [...document.querySelectorAll("[role=tab]")];
      const next = all[(all.indexOf(tab) + step + all.length) % all.length];
      next.focus();
      next.click();
    });
    return tab;
  }));
  if (names.length) show(names[0][0]);
  $("none").hidden = names.length > 0;
}

// --- translating

function targets() {
  const language = pairs.find((one) => one.code === $("source").value);
  const before = $("target").value;
  const names = Object.fromEntries(pairs.map((one) => [one.code, one.name]));
  fill($("target"), (language?.targets ?? []).map((code) => [code, names[code] ?? code]), before);
  const back = pairs.find((one) => one.code === $("target").value);
  $("swap").disabled = !back?.targets.includes($("source").value);
}

async function translate() {
  clearTimeout(timer);
  running?.abort();
  const text = $("text").value, mine = ++asked;
  $("count").textContent = text ? `${text.length} characters` : "";
  if (!text.trim()) {
    $("result").textContent = $("took").textContent = "";
    $("alternatives").replaceChildren();
    say("");
    return;
  }
  running = new AbortController();
  $("result").classList.add("old");
  const began = performance.now();
  try {
    const body = { q: text, source: $("source").value, target: $("target").value, format: $("markup").checked ? "html" : "text", alternatives: Number($("others").value) };
    if (!$("model-box").hidden && $("model").value) body.model = $("model").value;
    const found = await (await ask("translate", body, running.signal)).json();
    if (mine !== asked) return;
    $("result").textContent = found.translatedText;
    $("alternatives").replaceChildren(...(found.alternatives ?? []).map((one) => {
      const item = document.createElement("li");
      item.dir = "auto";
      item.textContent = one;
      return item;
    }));
    $("took").textContent = `${((performance.now() - began) / 1000).toFixed(2)} s`;
    say("");
  } catch (error) {
    if (error.name !== "AbortError" && mine === asked) failed(error);
  } finally {
    if (mine === asked) $("result").classList.remove("old");
  }
}

function soon() {
  $("count").textContent = $("text").value ? `${$("text").value.length} characters` : "";
  clearTimeout(timer);
  if ($("live").checked) timer = setTimeout(translate, WAIT);
}

async function copy(from) {
  try {
    await navigator.clipboard.writeText($(from).textContent);
    say("Copied.");
  } catch {
    getSelection().selectAllChildren($(from));
    say("Selected: press Ctrl+C to copy.");
  }
}

// --- writing

async function goOn() {
  writing?.abort();
  const mine = (writing = new AbortController());
  const prompt = $("prompt").value, seed = $("seed").value;
  const body = { model: $("writer").value, prompt, stream: true, max_tokens: Number($("tokens").value) || 16, temperature: Number($("heat").value), stream_options: { include_usage: true } };
  if (seed !== "") body.seed = Number(seed);
  $("story").textContent = prompt;
  $("wrote").textContent = "";
  $("stop").disabled = false;
  try {
    const answer = await ask("v1/completions", body, mine.signal);
    say("");
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let waiting = ""; ; ) {
      const { value, done } = await reader.read();
      if (done) break;
      const events = (waiting + value).split("\n\n");
      waiting = events.pop();
      for (const event of events) {
        if (!event.startsWith("data: ") || event === "data: [DONE]") continue;
        const found = JSON.parse(event.slice(6));
        if (found.error) throw new Refused(0, found.error.message);
        for (const choice of found.choices) $("story").append(choice.text);
        if (found.usage) $("wrote").textContent = `${found.usage.completion_tokens} tokens`;
      }
    }
  } catch (error) {
    if (error.name !== "AbortError") failed(error);
  } finally {
    if (writing === mine) $("stop").disabled = true;
  }
}

function failed(error) {
  say(error instanceof TypeError ? "The server does not answer." : error.message, true);
}

// --- the beginning

async function open() {
  try {
    const [languages, models] = await Promise.all(["languages", "v1/models"].map(async (path) => (await ask(path)).json()));
    pairs = languages;
    writers = models.data.filter((one) => one.task === "language");
    const translators = models.data.filter((one) => one.task === "translation");
    const sources = pairs.filter((one) => one.targets.length);
    fill($("source"), sources.map((one) => [one.code, one.name]));
    fill($("model"), [["", "the first"], ...translators.map((one) => [one.id, one.id])]);
    $("model-box").hidden = translators.length < 2;
    fill($("writer"), writers.map((one) => [one.id, one.id]));
    targets();
    makeTabs([...(sources.length ? [["translate", "Translate"]] : []), ...(writers.length ? [["write", "Write"]] : [])]);
    $("locked").hidden = true;
  } catch (error) {
    if ([400, 401, 403].includes(error.status)) {
      $("locked").hidden = false;
      say(key ? error.message : "", true);
    } else failed(error);
  }
}

$("locked").addEventListener("submit", (event) => { event.preventDefault(); key = $("key").value.trim(); open(); });
$("source").addEventListener("change", () => { targets(); translate(); });
for (const id of ["target", "model", "markup", "others"]) $(id).addEventListener("change", () => { if (id === "target") targets(); translate(); });
$("swap").addEventListener("click", () => {
  const [from, to] = [$("source").value, $("target").value];
  $("source").value = to;
  targets();
  $("target").value = from;
  targets();
  $("text").value = $("result").textContent || $("text").value;
  translate();
});
$("text").addEventListener("input", soon);
$("go").addEventListener("click", translate);
$("clear").addEventListener("click", () => { $("text").value = ""; translate(); $("text").focus(); });
$("copy").addEventListener("click", () => copy("result"));
$("copy-story").addEventListener("click", () => copy("story"));
$("continue").addEventListener("click", goOn);
$("stop").addEventListener("click", () => writing?.abort());
for (const [id, act] of [["text", translate], ["prompt", goOn]])
  $(id).addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); act(); } });
open();
