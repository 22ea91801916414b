// Small pieces that every view uses.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { source } from "../data/api";
import type { Resource } from "../data/resource";
import type { Problem } from "../data/types";
import { cut, show } from "../math";
import { tryAgain } from "../retry";

/** A number on the page; `data-value` holds all its digits. */
export function Num({ value, digits = 3, unit }: { value: number | null | undefined; digits?: number; unit?: string }) {
  const exact = value === null || value === undefined ? undefined : String(value);
  return (
    <span class="num" data-value={exact} title={exact}>
      {show(value, digits)}
      {unit ? ` ${unit}` : ""}
    </span>
  );
}

/** A token or a word, as text; the whole of a long one is in the tooltip. */
export function Token({ text, length = 16 }: { text: string; length?: number }) {
  return (
    <bdi class="token" title={text}>
      {cut(text, length)}
    </bdi>
  );
}

export function Message({ problem }: { problem: Problem }) {
  return (
    <div class="message" role="alert">
      <p class="message-what">
        <strong>{problem.where}</strong>: {problem.what}
      </p>
      <p>{problem.todo}</p>
      {source.live ? (
        <button type="button" class="plain" onClick={tryAgain}>
          Try again
        </button>
      ) : null}
    </div>
  );
}

export function Waiting({ text = "Working…" }: { text?: string }) {
  return (
    <p class="waiting" role="status">
      {text}
    </p>
  );
}

/** Shows the value of a resource, or why there is none. */
export function Loaded<T>({
  from,
  idle,
  waiting,
  children,
}: {
  from: Resource<T>;
  idle?: boolean;
  waiting?: string;
  children: (value: T) => ComponentChildren;
}) {
  if (idle) return null;
  if (from.problem) return <Message problem={from.problem} />;
  if (from.value === null) return <Waiting text={waiting} />;
  return <div class={from.busy ? "old" : "fresh"}>{children(from.value)}</div>;
}

export function Choice<T extends string>(props: {
  label: string;
  value: T;
  options: readonly (readonly [T, string])[];
  onChange: (value: T) => void;
}) {
  return (
    <label class="field">
      <span>{props.label}</span>
      <select value={props.value} onChange={(event) => props.onChange(event.currentTarget.value as T)}>
        {props.options.map(([value, title]) => (
          <option key={value} value={value}>
            {title}
          </option>
        ))}
      </select>
    </label>
  );
}

/** A row of buttons of which one is on. */
export function Switch<T extends string>(props: {
  label: string;
  value: T;
  options: readonly (readonly [T, string])[];
  onChange: (value: T) => void;
}) {
  return (
    <div class="field" role="group" aria-label={props.label}>
      <span aria-hidden="true">{props.label}</span>
      <div class="switch">
        {props.options.map(([value, title]) => (
          <button key={value} type="button" aria-pressed={value === props.value} onClick={() => props.onChange(value)}>
            {title}
          </button>
        ))}
      </div>
    </div>
  );
}

export function Slider(props: {
  label: string;
  value: number;
  low: number;
  high: number;
  step: number;
  onChange: (value: number) => void;
}) {
  return (
    <label class="field slider">
      <span>
        {props.label} <output>{show(props.value, 3)}</output>
      </span>
      <input
        type="range"
        min={props.low}
        max={props.high}
        step={props.step}
        value={props.value}
        onInput={(event) => props.onChange(Number(event.currentTarget.value))}
      />
    </label>
  );
}

export function Tick(props: { label: string; on: boolean; onChange: (on: boolean) => void }) {
  return (
    <label class="tick">
      <input type="checkbox" checked={props.on} onChange={(event) => props.onChange(event.currentTarget.checked)} />
      {props.label}
    </label>
  );
}

/** Numbers as 1, 2, 3 for people; the link counts from 0. */
export function counted(length: number): [string, string][] {
  return Array.from({ length }, (_, i) => [String(i), String(i + 1)]);
}

export function Title({ name, children }: { name: string; children?: ComponentChildren }) {
  return (
    <header class="view-title">
      <h2>{name}</h2>
      {children ? <p>{children}</p> : null}
    </header>
  );
}

/** The width of an element, kept up to date. */
export function useWidth(): [{ current: HTMLDivElement | null }, number] {
  const ref = useRef<HTMLDivElement | null>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = ref.current;
    if (!element) return;
    const measure = () => setWidth(Math.floor(element.clientWidth));
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  return [ref, width];
}
