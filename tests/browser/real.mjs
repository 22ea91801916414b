// Opens every view of every model of a real viewer, and says what is on the page: node real.mjs ADDRESS, JSON on standard output.
import { createRequire } from "node:module";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

const viewer = fileURLToPath(new URL("../../viewer/", import.meta.url));
const { chromium } = createRequire(`${viewer}package.json`)("playwright-core");
const address = process.argv[2];
const executablePath = process.env.CHROMIUM ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser"].find(existsSync);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const page = await (await browser.newContext({ viewport: { width: 1280, height: 800 } })).newPage();
const errors = [], foreign = [];
page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
page.on("pageerror", (error) => errors.push(error.message));
page.on("request", (request) => !request.url().startsWith(address) && !/^(data|blob):/.test(request.url()) && foreign.push(request.url()));

async function go(state) {
  await page.goto(`${address}?${Math.random()}#${new URLSearchParams(state).toString().replaceAll("+", "%20")}`);
  await page.waitForSelector("main");
  await page.waitForFunction(
    () => document.querySelector("main")?.textContent?.trim() && !document.querySelector(".waiting") && !document.querySelector(".old"),
    null,
    { timeout: 60000 },
  );
}
const values = (selector) => page.locator(selector).evaluateAll((list) => list.map((item) => Number(item.dataset.value)));

await page.goto(address);
const { models } = await page.evaluate(() => fetch("/api/models").then((answer) => answer.json()));
const views = [];
for (const model of models)
  for (const view of Object.keys(model.views)) {
    const before = errors.length;
    await go({ view, model: model.id });
    const alert = page.locator("main [role=alert]");
    views.push({
      model: model.name, view, able: model.views[view],
      text: (await page.locator("main").innerText()).slice(0, 200),
      alert: (await alert.count()) ? await alert.first().innerText() : null,
      errors: errors.slice(before),
    });
  }
await go({ view: "alignment", model: "0", row: "3", col: "2" });
const alignment = (await values(".readout .big .num"))[0];
await go({ view: "steps", model: "0", part: "decoder.cross", layer: "1", head: "2", row: "3" });
const steps = {};
for (const name of ["softmax", "score", "scale"]) steps[name] = await values(`[data-step="${name}"] .num`);
console.log(JSON.stringify({ views, foreign, alignment, steps }));
await browser.close();
