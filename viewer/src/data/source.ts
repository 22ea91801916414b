// Where the page gets its data: a server, or the file itself.
import type { Problem } from "./types";

export interface Source {
  /** False for a saved page: its sentence is fixed. */
  readonly live: boolean;
  /** The link that a saved page opens with. */
  readonly start?: string;
  get(path: string): Promise<unknown>;
  post(path: string, body: unknown): Promise<unknown>;
  bytes(path: string): Promise<ArrayBuffer>;
  /** Tells of each event with one of these names, and of "lost" and "open", until the returned function is called. */
  follow(path: string, names: readonly string[], tell: (name: string, data: unknown) => void): () => void;
}

export class Trouble extends Error {
  constructor(
    readonly problem: Problem,
    readonly status = 0,
  ) {
    super(`${problem.where}: ${problem.what}`);
  }
}

export function problemOf(error: unknown): Problem {
  if (error instanceof Trouble) return error.problem;
  const what = error instanceof Error ? error.message : String(error);
  return { where: "the page", what, todo: "Reload the page. If it happens again, please report it." };
}

/** "/api/x" and {a: 1} -> "/api/x?a=1", names sorted so that one request has one spelling. */
export function withQuery(path: string, query: Record<string, string | number | undefined>): string {
  const names = Object.keys(query)
    .filter((name) => query[name] !== undefined)
    .sort();
  const parts = names.map((name) => `${name}=${encodeURIComponent(String(query[name]))}`);
  return parts.length ? `${path}?${parts.join("&")}` : path;
}
