// A sentence as a row of words: pick one, and see the others shaded by their weight.
import { colourOf, inkOn, type Scale } from "../colours";
import { cut, show } from "../math";
import { dark } from "../theme";
import { useEffect, useRef } from "preact/hooks";

/** Longer sentences show the numbers in the tooltip only. */
const MANY = 160;

export function Strip(props: {
  label: string;
  tokens: string[];
  weights?: ArrayLike<number> | null;
  picked?: number | null;
  onPick?: (index: number) => void;
  scale?: Scale;
  /** Begin and end of each word: its pieces are drawn together. */
  words?: [number, number][];
}) {
  const box = useRef<HTMLDivElement>(null);
  const isDark = dark.value;
  const { weights, onPick } = props;
  const scale: Scale = props.scale ?? { map: "weights", low: 0, high: Math.max(largestOf(weights), 1e-9), power: 1 };
  const inside = insideOf(props.words);
  const painted = useRef<(string | null)[]>([]);
  useEffect(() => {
    // Only what changed is set: a sentence may have hundreds of words.
    const parts = box.current?.children ?? [];
    for (let index = 0; index < parts.length; index++) {
      const colour = weights ? colourOf(scale, weights[index], isDark) : null;
      if (painted.current[index] === colour) continue;
      painted.current[index] = colour;
      const { style } = parts[index] as HTMLElement;
      style.backgroundColor = colour ?? "";
      style.color = weights ? inkOn(scale, weights[index], isDark) : "";
    }
    painted.current.length = parts.length;
  });
  const move = (event: KeyboardEvent, index: number) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -props.tokens.length, End: props.tokens.length }[
      event.key
    ];
    if (!step || !onPick) return;
    event.preventDefault();
    const next = Math.min(Math.max(index + step, 0), props.tokens.length - 1);
    onPick(next);
    box.current?.querySelectorAll<HTMLElement>(".word")[next]?.focus();
  };
  return (
    <div class="strip" ref={box} role="group" aria-label={props.label}>
      {props.tokens.map((token, index) => {
        const weight = weights ? weights[index] : undefined;
        const exact = weight === undefined ? undefined : String(weight);
        const content = (
          <>
            <bdi>{cut(token, 18)}</bdi>
            {weight !== undefined && props.tokens.length <= MANY ? (
              <small class="num" data-value={exact}>
                {show(weight, 2)}
              </small>
            ) : null}
          </>
        );
        const shared = {
          key: index,
          title: exact === undefined ? token : `${token}\n${exact}`,
          class: inside.has(index) ? "word inside" : "word",
        };
        return onPick ? (
          <button
            {...shared}
            type="button"
            aria-pressed={index === props.picked}
            tabIndex={index === (props.picked ?? 0) ? 0 : -1}
            onClick={() => onPick(index)}
            onKeyDown={(event) => move(event, index)}
          >
            {content}
          </button>
        ) : (
          <span {...shared}>
            {content}
          </span>
        );
      })}
    </div>
  );
}

function largestOf(weights: ArrayLike<number> | null | undefined): number {
  let most = 0;
  for (let i = 0; i < (weights?.length ?? 0); i++) most = Math.max(most, weights![i]);
  return most;
}

/** The tokens that go on with the word of the token before them. */
export function insideOf(words: [number, number][] | undefined): Set<number> {
  const found = new Set<number>();
  for (const [begin, end] of words ?? []) for (let at = begin + 1; at < end; at++) found.add(at);
  return found;
}
