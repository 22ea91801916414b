// Pictures of views, to be looked at: node tools/shots.mjs [NAME[:model[:more]] ...] -> shots/*.png
// ADDRESS=http://127.0.0.1:8020/ looks at a real server; ONLY=wide-dark,narrow-light; FULL=1 for whole pages.
import { chromium } from "playwright-core";
import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { serve } from "../mock/server.mjs";
import { settled } from "../tests/browser/tools.mjs";

const ALL = [
  "heads:0",
  "alignment:0",
  "steps:0",
  "pooling:0",
  "beam:0",
  "training:1",
  "language:3",
  "language:4",
  "positions:0",
  "evaluation:0",
  "recurrent:1",
  "ponder:5",
  "local:2",
  "convolution:6",
  "vectors:0",
  "compare:0",
  "local:0",
];
const only = (process.env.ONLY ?? "wide-light,wide-dark,narrow-light").split(",");
const wanted = process.argv.slice(2).length ? process.argv.slice(2) : ALL;
const folder = join(dirname(dirname(fileURLToPath(import.meta.url))), "shots");
mkdirSync(folder, { recursive: true });
const server = process.env.ADDRESS ? null : await serve(0);
const address = process.env.ADDRESS ?? `http://127.0.0.1:${server.address().port}/`;
const wait = Number(process.env.WAIT ?? 300);
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
for (const look of only) {
  const [size, theme] = look.split("-");
  const context = await browser.newContext({
    viewport: size === "wide" ? { width: 1280, height: 800 } : { width: 390, height: 800 },
    colorScheme: theme,
  });
  const page = await context.newPage();
  page.on("console", (message) => message.type() === "error" && console.log(look, message.text()));
  page.on("pageerror", (error) => console.log(look, error.message));
  for (const item of wanted) {
    const [view, model, more] = item.split(":");
    await page.goto("about:blank");
    await page.goto(`${address}#view=${view}&model=${model ?? 0}${more ? `&${more}` : ""}`);
    await settled(page);
    await page.waitForTimeout(wait);
    await page.screenshot({ path: join(folder, `${view}-${model ?? 0}-${look}.png`), fullPage: process.env.FULL === "1" });
  }
  await context.close();
}
await browser.close();
server?.close();
server?.closeAllConnections();
