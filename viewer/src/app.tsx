// The page: title, sentence, list of views, and the view itself.
import { useEffect, useErrorBoundary, useRef } from "preact/hooks";
import { Message, Waiting } from "./ui/basic";
import { Navigation } from "./navigation";
import { SentenceForm } from "./sentence";
import { model, models, modelsProblem, needsTrace, spoken, trace, traceProblem, tracing, view } from "./state";
import { dark, switchTheme } from "./theme";
import { applies, VIEWS, type View } from "./views";
import type { Model, Trace } from "./data/types";

export function App() {
  const current = VIEWS.find((item) => item.name === view.value) ?? VIEWS[0];
  useEffect(() => {
    document.title = `${current.title} · regard`;
  }, [current.title]);
  return (
    <>
      <a
        class="skip"
        href="#panel"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById("panel")?.focus();
        }}
      >
        To the picture
      </a>
      <header class="top">
        <h1>
          regard<span> look inside a model</span>
        </h1>
        <button type="button" class="theme" onClick={switchTheme} aria-label={dark.value ? "Switch to light" : "Switch to dark"}>
          {dark.value ? "☀ Light" : "☾ Dark"}
        </button>
      </header>
      <SentenceForm />
      <div class="body">
        <Navigation current={current.name} />
        <main id="panel" tabIndex={-1} aria-label={current.title}>
          <Panel key={current.name} current={current} />
        </main>
      </div>
      <div class="hidden" role="status" aria-live="polite">
        {spoken.value}
      </div>
    </>
  );
}

function Panel({ current }: { current: View }) {
  if (modelsProblem.value && current.name !== "pooling") return <Message problem={modelsProblem.value} />;
  if (!models.value && current.name !== "pooling") return <Waiting text="Opening the models…" />;
  const of = model.value;
  const reason = applies(of, current.name);
  if (reason !== true) return <NotApplicable current={current} reason={reason} />;
  if (needsTrace(current.name)) {
    if (traceProblem.value && !tracing.value) return <Message problem={traceProblem.value} />;
    if (!trace.value || trace.value.model !== of?.id) return <Waiting text="The model reads the sentence…" />;
  }
  return (
    <div class={tracing.value && needsTrace(current.name) ? "old" : "fresh"}>
      <Guarded key={`${of?.id} ${trace.value?.id}`} current={current} model={of as Model} trace={trace.value as Trace} />
    </div>
  );
}

/** A view that breaks says so; the rest of the page lives on. */
function Guarded({ current, model: of, trace: seen }: { current: View; model: Model; trace: Trace }) {
  const [error, reset] = useErrorBoundary();
  const once = useRef(current.name);
  useEffect(() => {
    if (once.current !== current.name) reset();
    once.current = current.name;
  }, [current.name]);
  if (error) {
    const what = error instanceof Error ? error.message : String(error);
    return (
      <Message problem={{ where: current.title, what: `this view broke: ${what}`, todo: "Choose another view, and please report this." }} />
    );
  }
  const View = current.component;
  return <View model={of} trace={seen} />;
}

function NotApplicable({ current, reason }: { current: View; reason: string }) {
  return (
    <div class="not-applicable">
      <h2>{current.title}</h2>
      <p class="reason">{reason.charAt(0).toUpperCase() + reason.slice(1)}.</p>
      <p>Choose another view, or another model above.</p>
    </div>
  );
}
