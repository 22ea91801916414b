// The sentence box and the choice of model.
import { useEffect, useRef, useState } from "preact/hooks";
import { source } from "./data/api";
import { count } from "./math";
import { tryAgain } from "./retry";
import { go, link, model, models, text, trace, traceProblem, tracing } from "./state";

const DOES: Record<string, string> = {
  translates: "translates",
  continues: "writes on",
  classifies: "sorts texts",
  tags: "tags words",
  fills: "fills gaps",
  embeds: "knows words",
  composes: "writes from a label",
};

const LONGEST = 400;

/** "de" -> "German"; what is no code of a language stays. */
function languageOf(code: string | undefined): string {
  if (!code) return "";
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code) ?? code;
  } catch {
    return code;
  }
}

export function SentenceForm() {
  const [typed, setTyped] = useState(text.value);
  const [target, setTarget] = useState(link.value.target ?? "");
  const box = useRef<HTMLTextAreaElement>(null);
  useEffect(() => setTyped(text.value), [text.value]);
  useEffect(() => setTarget(link.value.target ?? ""), [link.value.target]);
  useEffect(() => {
    const area = box.current;
    if (!area) return;
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight + 2, 140)}px`;
  }, [typed]);
  const look = () => {
    if (traceProblem.value) tryAgain();
    go({ text: typed, target: target.trim() === "" ? null : target, row: null, col: null, node: null }, true);
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    look();
  };
  const of = model.value;
  const translates = of?.does === "translates";
  const said = trace.value?.answer;
  return (
    <form
      class="sentence"
      onSubmit={(event) => {
        event.preventDefault();
        look();
      }}
    >
      <div class="row">
        <label class="field grow">
          <span>
            {of?.does === "composes" ? "Type a label" : "Type a sentence"}
            {of?.languages?.source ? ` in ${languageOf(of.languages.source)}` : ""}
          </span>
          <textarea
            id="sentence"
            ref={box}
            rows={1}
            value={typed}
            spellcheck={false}
            dir="auto"
            autocomplete="off"
            readOnly={!source.live}
            onInput={(event) => setTyped(event.currentTarget.value)}
            onKeyDown={onKey}
          />
        </label>
        <button type="submit" class="primary" disabled={!source.live} aria-busy={tracing.value}>
          {tracing.value ? "Looking…" : "Look"}
        </button>
        <label class="field">
          <span>Model</span>
          <select
            id="model"
            value={of?.id ?? ""}
            onChange={(event) =>
              go(
                {
                  model: event.currentTarget.value,
                  part: null,
                  layer: null,
                  head: null,
                  row: null,
                  col: null,
                  node: null,
                  target: null,
                  gate: null,
                  table: null,
                },
                true,
              )
            }
          >
            {(models.value ?? []).map((item) => (
              <option key={item.id} value={item.id}>
                {item.name} ({item.architecture})
              </option>
            ))}
          </select>
        </label>
      </div>
      {of ? (
        <p class="about">
          {of.architecture}, {count(of.parameters)} parameters, {DOES[of.does] ?? of.does}
          {translates && of.languages?.target ? ` into ${languageOf(of.languages.target)}` : ""}
          {source.live ? "" : ". This is a saved page: the sentence is fixed."}
        </p>
      ) : null}
      {translates && source.live ? (
        <details class="more" open={link.value.target ? true : undefined}>
          <summary>Give the translation yourself</summary>
          <label class="field grow">
            <span>The model then reads this translation instead of writing its own</span>
            <input id="target" type="text" value={target} dir="auto" onInput={(event) => setTarget(event.currentTarget.value)} />
          </label>
        </details>
      ) : null}
      {said ? (
        <p class="about answer" dir="auto">
          {link.value.target ? "It reads your translation:" : "It answers:"} <b>{said.length > LONGEST ? `${said.slice(0, LONGEST)}…` : said}</b>
        </p>
      ) : null}
    </form>
  );
}
