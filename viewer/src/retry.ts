// "Try again": what is known is forgotten, and whatever failed is asked anew.
import { signal } from "@preact/signals";

/** Grows when everything is to be asked anew. */
export const attempt = signal(0);

const forgetters: (() => void)[] = [];

export function onTryAgain(forget: () => void): void {
  forgetters.push(forget);
}

export function tryAgain(): void {
  for (const forget of forgetters) forget();
  attempt.value++;
}
