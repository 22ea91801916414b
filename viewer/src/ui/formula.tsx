// A formula in plain text with its indices lowered: "q · k_j", "W_Q", "x_{t-1}", "x^2".
import type { ComponentChildren } from "preact";

const INDEX = /([_^])(?:\{([^}]*)\}|([\p{L}\p{N}]+))/gu;

export function Formula({ text }: { text: string }) {
  const parts: ComponentChildren[] = [];
  let end = 0;
  for (const found of text.matchAll(INDEX)) {
    parts.push(text.slice(end, found.index));
    const inner = found[2] ?? found[3];
    parts.push(found[1] === "_" ? <sub>{inner}</sub> : <sup>{inner}</sup>);
    end = found.index + found[0].length;
  }
  parts.push(text.slice(end));
  return <span class="formula">{parts}</span>;
}
