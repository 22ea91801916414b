// A hook for data that arrives later: the value last seen, the error, and whether it is loading.
import { useLayoutEffect, useState } from "preact/hooks";
import { attempt } from "../retry";
import { problemOf } from "./source";
import type { Problem } from "./types";

export interface Resource<T> {
  value: T | null;
  problem: Problem | null;
  busy: boolean;
}

/** While a new key loads, the old value stays, so that the page does not jump. */
export function useResource<T>(name: string | null, load: () => Promise<T>): Resource<T> {
  const key = name === null ? null : `${attempt.value} ${name}`;
  const [state, setState] = useState<{ key: string | null; value: T | null; problem: Problem | null }>({
    key: null,
    value: null,
    problem: null,
  });
  // Not after the next painting: the question leaves at once.
  useLayoutEffect(() => {
    if (key === null) return;
    let wanted = true;
    load().then(
      (value) => wanted && setState({ key, value, problem: null }),
      (error) => wanted && setState({ key, value: null, problem: problemOf(error) }),
    );
    return () => {
      wanted = false;
    };
  }, [key]);
  if (key === null) return { value: null, problem: null, busy: false };
  return { value: state.value, problem: state.key === key ? state.problem : null, busy: state.key !== key };
}
