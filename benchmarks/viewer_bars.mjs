// Times the viewer's page in chromium: node viewer_bars.mjs ADDRESS, {"text", "target"} on standard input, JSON on standard output.
import { createRequire } from "node:module";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const viewer = fileURLToPath(new URL("../viewer/", import.meta.url));
const { chromium } = createRequire(`${viewer}package.json`)("playwright-core");
const address = process.argv[2];
const { text, target } = JSON.parse(readFileSync(0, "utf8"));
const executablePath = process.env.CHROMIUM ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser"].find(existsSync);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const page = await (await browser.newContext({ viewport: { width: 1280, height: 800 } })).newPage();
const errors = [];
page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
page.on("pageerror", (error) => errors.push(error.message));

const devtools = await page.context().newCDPSession(page);
await devtools.send("Performance.enable", { timeDomain: "threadTicks" });
/** Milliseconds for which the page's thread has used a processor. */
async function used() {
  const { metrics } = await devtools.send("Performance.getMetrics");
  return 1000 * metrics.find((item) => item.name === "TaskDuration").value;
}
/** Milliseconds from a click to the next painting of a canvas that waits for nothing more: by the clock, and of the processor. */
async function timed(canvas, button) {
  const before = await used();
  const clock = await clicked(canvas, button);
  return { clock, processor: (await used()) - before };
}
const clicked = (canvas, button) =>
  page.evaluate(
    async ([wanted, press]) => {
      const old = document.querySelector(wanted)?.dataset.painted;
      const start = performance.now();
      document.querySelector(press).click();
      for (;;) {
        await new Promise((done) => requestAnimationFrame(done));
        const painted = document.querySelector(wanted)?.dataset.painted;
        if (painted && painted !== old && !document.querySelector(".old") && !document.querySelector(".waiting"))
          return performance.now() - start;
        if (performance.now() - start > 60000) throw new Error(`nothing was painted after ${press}`);
      }
    },
    [canvas, button],
  );

const state = new URLSearchParams({ view: "alignment", text, target }).toString().replaceAll("+", "%20");
const begun = Date.now();
await page.goto(`${address}#${state}`);
await page.waitForFunction(() => document.querySelector(".matrix canvas")?.dataset.painted && !document.querySelector(".waiting"), null, {
  timeout: 300000,
});
const trace = Date.now() - begun;
const parts = {};
// Of the first part from the click on the view, of the others from the click on the part.
parts[0] = await timed(".overview canvas", 'a[href*="view=heads"]');
const heads = [];
for (const at of [9, 26, 47, 3, 18]) heads.push(await timed(".lines canvas", `.overview-grid button:nth-child(${at})`));
for (const part of [1, 2]) {
  parts[part] = await timed(".overview canvas", `[aria-label="Part"] button:nth-child(${part + 1})`);
  for (const at of [9, 26, 47]) heads.push(await timed(".lines canvas", `.overview-grid button:nth-child(${at})`));
}
// Objects, elements and the numbers of arrays, which lie outside V8's own heap.
const usage = await devtools.send("Runtime.getHeapUsage");
const heap = (usage.usedSize + (usage.embedderHeapUsedSize ?? 0) + (usage.backingStorageSize ?? 0)) / 2 ** 20;
console.log(JSON.stringify({ trace, overviews: Object.values(parts), heads, heap, usage, errors }));
await browser.close();
