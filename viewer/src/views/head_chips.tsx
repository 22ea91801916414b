// One button per head, in its colour.
import { useEffect, useRef } from "preact/hooks";
import { headColour } from "../colours";
import { go } from "../state";
import { dark } from "../theme";

export function HeadChips({ heads, chosen }: { heads: number; chosen: number[] }) {
  const box = useRef<HTMLDivElement>(null);
  const isDark = dark.value;
  useEffect(() => {
    box.current?.querySelectorAll<HTMLElement>(".chip").forEach((chip, head) => chip.style.setProperty("--head", headColour(head, isDark)));
  });
  const toggle = (head: number) => {
    const next = chosen.includes(head) ? chosen.filter((item) => item !== head) : [...chosen, head].sort((a, b) => a - b);
    if (next.length) go({ head: next.join(".") });
  };
  const all = chosen.length === heads;
  return (
    <div class="field" role="group" aria-label="Heads">
      <span aria-hidden="true">Heads</span>
      <div class="chips" ref={box}>
        {Array.from({ length: heads }, (_, head) => (
          <button
            key={head}
            type="button"
            class="chip"
            aria-pressed={chosen.includes(head)}
            aria-label={`Head ${head + 1}`}
            title="Click: on or off. Double click: this one alone."
            onClick={() => toggle(head)}
            onDblClick={() => go({ head })}
          >
            {head + 1}
          </button>
        ))}
        {heads > 1 ? (
          <button type="button" class="plain" onClick={() => go({ head: all ? 0 : "all" })}>
            {all ? "Only one" : "All"}
          </button>
        ) : null}
      </div>
    </div>
  );
}
