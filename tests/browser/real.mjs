// Opens every view of every model of a real viewer, and says what is on the page: node real.mjs ADDRESS SAVED-PAGE NOTEBOOK-CELL, JSON on standard output.
import { createRequire } from "node:module";
import { existsSync, readFileSync } from "node:fs";
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

const link = (state) => new URLSearchParams(state).toString().replaceAll("+", "%20");
const settled = () =>
  page.waitForFunction(
    () => document.querySelector("main")?.textContent?.trim() && !document.querySelector(".waiting") && !document.querySelector(".old"),
    null,
    { timeout: 60000 },
  );
async function go(state) {
  await page.goto(`${address}?${Math.random()}#${link(state)}`);
  await page.waitForSelector("main");
  await settled();
}
/** Another view of the same page. */
async function turn(state) {
  await page.evaluate((hash) => (location.hash = hash), link(state));
  await page.waitForFunction((view) => document.querySelector(".views [aria-current]")?.href.includes(`view=${view}`), state.view);
  await settled();
}
/** Whether the page fits on a narrow screen. */
async function fits() {
  await page.setViewportSize({ width: 390, height: 800 });
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  // Charts are drawn anew for the new width, which on a busy machine takes some frames.
  const narrow = page.waitForFunction(() => document.documentElement.scrollWidth <= innerWidth, null, { timeout: 3000 });
  const good = await narrow.then(() => true, () => false);
  await page.setViewportSize({ width: 1280, height: 800 });
  return good;
}
const values = (selector) => page.locator(selector).evaluateAll((list) => list.map((item) => Number(item.dataset.value)));

await page.goto(address);
const { models } = await page.evaluate(() => fetch("/api/models").then((answer) => answer.json()));
const views = [];
for (const model of models) {
  await go({ view: "pooling", model: model.id });
  for (const view of Object.keys(model.views)) {
    const before = errors.length;
    await turn({ view, model: model.id });
    const alert = page.locator("main [role=alert]");
    views.push({
      model: model.name, view, able: model.views[view],
      text: (await page.locator("main").innerText()).slice(0, 200),
      alert: (await alert.count()) ? await alert.first().innerText() : null,
      errors: errors.slice(before),
      fits: await fits(),
    });
  }
}
await go({ view: "alignment", model: "0", row: "3", col: "2" });
const alignment = (await values(".readout .big .num"))[0];
await go({ view: "steps", model: "0", part: "decoder.cross", layer: "1", head: "2", row: "3" });
const steps = {};
for (const name of ["softmax", "score", "scale"]) steps[name] = await values(`[data-step="${name}"] .num`);
// Texts that would like to be more than text, and those that cannot be read.
const dialogs = [];
page.on("dialog", (dialog) => {
  dialogs.push(dialog.message());
  dialog.dismiss();
});
const text = "<img src=x onerror=alert(1)> <script>alert(2)</script> \u05e9\u05dc\u05d5\u05dd \ud83d\udc69\u200d\ud83d\udc67 \u202Eevil it";
const hostile = {};
await go({ view: "pooling", model: "0", text });
for (const view of ["heads", "alignment", "steps", "beam", "compare"]) {
  await turn({ view, model: "0", text });
  hostile[view] = { injected: await page.locator("main img, main script").count(), fits: await fits() };
}
const messages = {};
for (const [name, typed] of Object.entries({ empty: " ", long: "word ".repeat(3000), huge: "x ".repeat(20000) })) {
  await go({ view: "heads", model: "0" });
  await page.fill("#sentence", typed);
  await page.press("#sentence", "Enter");
  await page.waitForSelector("main [role=alert]", { timeout: 60000 });
  messages[name] = await page.locator("main [role=alert]").first().innerText();
}
// A page that was saved, from its file, without a network; and as a notebook shows it.
const saved = { views: {}, errors: [], asked: [] };
const offline = await browser.newContext({ viewport: { width: 1280, height: 800 }, offline: true });
const file = await offline.newPage();
file.on("console", (message) => message.type() === "error" && saved.errors.push(message.text()));
file.on("pageerror", (error) => saved.errors.push(error.message));
file.on("request", (request) => !/^(data|blob|file):/.test(request.url()) && saved.asked.push(request.url()));
await file.goto(`file://${process.argv[3]}`);
for (const view of ["heads", "alignment", "steps", "beam", "positions", "pooling"]) {
  await file.locator(`.views a[href*="view=${view}"]`).click();
  await file.waitForFunction(() => document.querySelector("main h2") && !document.querySelector(".waiting, .old"));
  saved.views[view] = {
    text: (await file.locator("main").innerText()).length,
    alerts: await file.locator("main [role=alert]").count(),
    pictures: await file.locator("main canvas, main svg.plane").count(),
  };
}
await file.locator('.views a[href*="view=alignment"]').click();
saved.alignment = await file.locator(".readout .big .num").first().evaluate((item) => Number(item.dataset.value));
const notebook = await offline.newPage();
notebook.on("pageerror", (error) => saved.errors.push(error.message));
await notebook.setContent(readFileSync(process.argv[4], "utf8"));
await notebook.frameLocator("iframe").locator(".says").waitFor({ timeout: 30000 });
saved.notebook = await notebook.frameLocator("iframe").locator(".says").innerText();
console.log(JSON.stringify({ saved, views, foreign, alignment, steps, hostile, dialogs, messages }));
await browser.close();
