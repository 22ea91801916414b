// Small pure functions on numbers and tokens.

export function softmax(scores: ArrayLike<number>): Float64Array {
  const out = Float64Array.from(scores as ArrayLike<number>);
  let largest = -Infinity;
  for (const score of out) largest = Math.max(largest, score);
  if (largest === -Infinity) return out.fill(0);
  let sum = 0;
  for (let i = 0; i < out.length; i++) sum += out[i] = Math.exp(out[i] - largest);
  for (let i = 0; i < out.length; i++) out[i] /= sum;
  return out;
}

export function sum(values: ArrayLike<number>): number {
  let total = 0;
  for (let i = 0; i < values.length; i++) total += values[i];
  return total;
}

/** Entropy in bits; a row of zeros has none. */
export function entropy(weights: ArrayLike<number>): number {
  let total = 0;
  for (let i = 0; i < weights.length; i++) if (weights[i] > 0) total -= weights[i] * Math.log2(weights[i]);
  return Math.abs(total);
}

export function extent(values: ArrayLike<number>): [number, number] {
  let low = Infinity;
  let high = -Infinity;
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (!Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [0, 0];
}

export function clamp(value: number, low: number, high: number): number {
  return Math.min(Math.max(value, low), high);
}

/** Indices of the largest values, largest first. */
export function largest(values: ArrayLike<number>, count: number): number[] {
  const order = Array.from({ length: values.length }, (_, i) => i);
  order.sort((a, b) => values[b] - values[a] || a - b);
  return order.slice(0, count);
}

/** A number for people: `digits` after the point; very small ones (where three digits are wanted) and large ones with an exponent. */
export function show(value: number | null | undefined, digits = 3): string {
  if (value === null || value === undefined) return "–";
  if (Number.isNaN(value)) return "not a number";
  if (value === Infinity) return "∞";
  if (value === -Infinity) return "−∞";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e9) return minus(String(value));
  if ((digits >= 3 && size < 0.5 * 10 ** -digits) || size >= 1e6) return minus(value.toExponential(1));
  return minus(value.toFixed(size >= 100 ? 1 : digits));
}

const minus = (text: string) => text.replaceAll("-", "−");

export function percent(value: number): string {
  return value > 0 && value < 0.001 ? "<0.1%" : `${(100 * value).toFixed(1)}%`;
}

/** A count for people: 6700000 -> "6.7 M". */
export function count(value: number): string {
  for (const [size, name] of [
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ] as const)
    if (value >= size) return `${(value / size).toFixed(value >= 10 * size ? 0 : 1)} ${name}`;
  return String(value);
}

/** A token cut to `length` characters, without the mark of a space; controls become visible. Whole characters are never split. */
export function cut(whole: string, length = 16): string {
  if (whole === "▁" || whole === "Ġ") return "␣";
  if (whole === "Ċ") return "⏎";
  const token = whole.length > 1 && "▁Ġ".includes(whole[0]) ? whole.slice(1) : whole;
  const head = Array.from(token.slice(0, 4 * length + 4));
  const short = head.length > length || token.length > 4 * length + 4;
  const text = (short ? head.slice(0, length - 1).join("") + "…" : head.join(""))
    .replaceAll("\n", "⏎")
    .replaceAll("\t", "⇥")
    .replace(/[\u0000-\u001f\u007f\u202a-\u202e\u2066-\u2069]/g, "�");
  return text.trim() === "" ? (text === "" ? "∅" : text.replaceAll(" ", "␣")) : text;
}

/** The word inside a subword token: without the marks of tokenizers, in lower case. */
export function bare(token: string): string {
  return token.replace(/^[▁Ġ\s]+|^##|(@@|<\/w>)$/g, "").toLowerCase();
}

/** Row `index` of a row-major matrix. */
export function rowOf<T extends Float32Array | Uint8Array>(numbers: T, columns: number, index: number): T {
  return numbers.subarray(index * columns, (index + 1) * columns) as T;
}

/** Mean of several equally long arrays. */
export function meanOf(arrays: ArrayLike<number>[]): Float32Array {
  const out = new Float32Array(arrays[0]?.length ?? 0);
  for (const array of arrays) for (let i = 0; i < out.length; i++) out[i] += array[i] / arrays.length;
  return out;
}

/** Round numbers for an axis between low and high. */
export function ticks(low: number, high: number, wanted = 5): number[] {
  if (!(high > low)) return [low];
  const raw = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5, 10].find((m) => m * power >= raw) ?? 10);
  const out: number[] = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) out.push(Number((i * step).toPrecision(12)));
  return out;
}
