// The list of views. Those that do not apply stay in the list, with the reason.
import { useEffect, useRef } from "preact/hooks";
import type { ViewName } from "./data/types";
import { changed, writeLink } from "./link";
import { go, link, model } from "./state";
import { applies, GROUPS } from "./views";

export function Navigation({ current }: { current: ViewName }) {
  const list = useRef<HTMLElement>(null);
  useEffect(() => {
    const chosen = list.current?.querySelector<HTMLElement>('[aria-current="page"]');
    const box = list.current;
    // On a narrow screen the list scrolls sideways: bring the chosen one into sight.
    if (chosen && box && box.scrollWidth > box.clientWidth) box.scrollLeft = chosen.offsetLeft - 40;
  }, [current]);
  return (
    <nav class="views" aria-label="Views" ref={list}>
      {GROUPS.map((group) => (
        <section key={group.title}>
          <h2>{group.title}</h2>
          <ul>
            {group.views.map((item) => {
              const reason = applies(model.value, item.name);
              const known = model.value !== null || item.name === "pooling";
              return (
                <li key={item.name}>
                  <a
                    href={writeLink(changed(link.value, { view: item.name }))}
                    aria-current={item.name === current ? "page" : undefined}
                    class={reason !== true && known ? "na" : undefined}
                    title={reason === true || !known ? item.question : reason}
                    onClick={(event) => {
                      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
                      event.preventDefault();
                      go({ view: item.name }, true);
                    }}
                  >
                    {item.title}
                    {reason !== true && known ? <small>{short(reason)}</small> : null}
                  </a>
                </li>
              );
            })}
          </ul>
        </section>
      ))}
    </nav>
  );
}

/** "not applicable to transformer: it has no gates" -> "it has no gates" */
function short(reason: string): string {
  const at = reason.indexOf(": ");
  return reason.startsWith("not applicable") && at > 0 ? reason.slice(at + 2) : reason;
}
