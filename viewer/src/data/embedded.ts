// Data from the file itself: a page saved with its trace inside.
//
// <script type="application/json" id="regard-embedded">
//   {"answers": {"GET /api/models": {"json": ...}, "GET /api/traces/t1/weights?head=0&...": {"base64": "..."}}}
// Queries are sorted by name. A POST is found by its path and model ("POST /api/traces 0"), or by its path alone.
import { Trouble, type Source } from "./source";

interface Answer {
  json?: unknown;
  base64?: string;
}

export class EmbeddedSource implements Source {
  readonly live = false;

  constructor(
    private readonly answers: Record<string, Answer>,
    readonly start?: string,
  ) {}

  async get(path: string): Promise<unknown> {
    return this.find(`GET ${path}`).json;
  }

  async post(path: string, body: unknown): Promise<unknown> {
    const model = (body as { model?: string } | null)?.model;
    return this.find(`POST ${path} ${model}`, `POST ${path}`).json;
  }

  async bytes(path: string): Promise<ArrayBuffer> {
    return decode(this.find(`GET ${path}`, asU8(path)).base64 ?? "");
  }

  follow(): () => void {
    return () => undefined;
  }

  private find(...keys: (string | undefined)[]): Answer {
    for (const key of keys) {
      const answer = key === undefined ? undefined : this.answers[key];
      if (answer) return answer;
    }
    throw new Trouble(
      {
        where: "this saved page",
        what: "this part was not saved in the file",
        todo: "Open the model with `regard look` to see it.",
      },
      404,
    );
  }
}

/** Where the exact numbers were not saved, the rounded picture still is. */
function asU8(path: string): string | undefined {
  return path.includes("type=f32") ? `GET ${path.replace("type=f32", "type=u8")}` : undefined;
}

function decode(base64: string): ArrayBuffer {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes.buffer;
}

export function embedded(): EmbeddedSource | null {
  const holder = document.getElementById("regard-embedded");
  if (!holder?.textContent) return null;
  const data = JSON.parse(holder.textContent) as { answers: Record<string, Answer>; start?: string };
  return new EmbeddedSource(data.answers, data.start);
}
