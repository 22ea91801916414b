// The state of the page as a link: "#view=heads&model=0&text=...".

export type Link = Readonly<Record<string, string>>;

export function readLink(hash: string): Link {
  const out: Record<string, string> = {};
  for (const [name, value] of new URLSearchParams(hash.replace(/^#/, ""))) out[name] = value;
  return out;
}

export function writeLink(link: Link): string {
  const parts = Object.keys(link).map((name) => `${encodeURIComponent(name)}=${encodeURIComponent(link[name])}`);
  return "#" + parts.join("&");
}

/** The link with some names changed; null removes a name. */
export function changed(link: Link, change: Record<string, string | number | null>): Link {
  const out: Record<string, string> = { ...link };
  for (const [name, value] of Object.entries(change)) {
    if (value === null) delete out[name];
    else out[name] = String(value);
  }
  return out;
}

/** A whole number from the link, kept within bounds. */
export function wholeNumber(link: Link, name: string, fallback: number, low: number, high: number): number {
  const value = /^\d{1,9}$/.test(link[name] ?? "") ? Number(link[name]) : fallback;
  return Math.min(Math.max(value, low), Math.max(low, high));
}

/** "all", "3" or "0.2.5" -> the chosen heads, at least one. */
export function chosenHeads(text: string | undefined, heads: number, fallback: number[]): number[] {
  if (text === "all") return Array.from({ length: heads }, (_, i) => i);
  const wanted = (text ?? "")
    .split(".")
    .filter((item) => /^\d+$/.test(item))
    .map(Number);
  const valid = [...new Set(wanted)].filter((head) => head < heads).sort((a, b) => a - b);
  return valid.length ? valid : fallback;
}
