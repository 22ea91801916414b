// Data from the server that sent this page.
import { Trouble, type Source } from "./source";
import type { Problem } from "./types";

const GONE: Problem = {
  where: "the server",
  what: "does not answer",
  todo: "Is `regard look` still running? Start it again and reload this page.",
};

export class ServerSource implements Source {
  readonly live = true;

  async get(path: string): Promise<unknown> {
    return (await this.ask(path)).json();
  }

  async post(path: string, body: unknown): Promise<unknown> {
    const answer = await this.ask(path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    return answer.json();
  }

  async bytes(path: string): Promise<ArrayBuffer> {
    return (await this.ask(path)).arrayBuffer();
  }

  follow(path: string, names: readonly string[], tell: (name: string, data: unknown) => void): () => void {
    const stream = new EventSource(path);
    for (const name of names) stream.addEventListener(name, (event) => tell(name, JSON.parse((event as MessageEvent<string>).data)));
    stream.onopen = () => tell("open", null);
    stream.onerror = () => tell("lost", GONE); // the browser tries again by itself
    return () => stream.close();
  }

  private async ask(path: string, options?: RequestInit): Promise<Response> {
    let answer: Response;
    try {
      answer = await fetch(path, options);
    } catch {
      throw new Trouble(GONE);
    }
    if (answer.ok) return answer;
    let problem: Problem = {
      where: path.split("?")[0],
      what: `the server answered ${answer.status}`,
      todo: "See the window in which `regard look` runs.",
    };
    try {
      const body = (await answer.json()) as { error?: Problem };
      if (body.error?.what) problem = { ...problem, ...body.error };
    } catch {
      // No JSON: the status says enough.
    }
    throw new Trouble(problem, answer.status);
  }
}
