// A list of labelled bars with their numbers.
import { useEffect, useRef, useState } from "preact/hooks";
import { Num, Token } from "./basic";

export interface Bar {
  label: string;
  value: number;
  /** Drawn in the colour of a mark. */
  marked?: boolean;
}

export function Bars(props: {
  bars: Bar[];
  label: string;
  most?: number;
  digits?: number;
  onPick?: (index: number) => void;
  limit?: number;
}) {
  const box = useRef<HTMLOListElement>(null);
  const [all, setAll] = useState(false);
  const limit = props.limit ?? 60;
  const finite = props.bars.map((bar) => (Number.isFinite(bar.value) ? Math.abs(bar.value) : 0));
  const most = props.most ?? (finite.reduce((a, b) => Math.max(a, b), 0) || 1);
  const shown = all ? props.bars : props.bars.slice(0, limit);
  useEffect(() => {
    box.current?.querySelectorAll<HTMLElement>(".bar-fill").forEach((fill, index) => {
      fill.style.width = `${Math.min(100, (100 * finite[index]) / most)}%`;
    });
  });
  return (
    <>
      <ol class="bars" ref={box} aria-label={props.label}>
        {shown.map((bar, index) => (
          <li key={index} class={bar.marked ? "marked" : bar.value === -Infinity ? "struck" : undefined}>
            {props.onPick ? (
              <button type="button" class="bar-label" onClick={() => props.onPick!(index)}>
                <Token text={bar.label} length={18} />
              </button>
            ) : (
              <span class="bar-label">
                <Token text={bar.label} length={18} />
              </span>
            )}
            <span class="bar-room">
              <span class={bar.value < 0 ? "bar-fill below" : "bar-fill"} />
            </span>
            <Num value={bar.value} digits={props.digits ?? 3} />
          </li>
        ))}
      </ol>
      {props.bars.length > limit ? (
        <button type="button" class="plain" onClick={() => setAll(!all)}>
          {all ? "Show fewer" : `Show all ${props.bars.length}`}
        </button>
      ) : null}
    </>
  );
}
