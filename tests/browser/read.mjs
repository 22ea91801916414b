// Reads numbers off the page of a real viewer: node read.mjs ADDRESS, a list of what is wanted on standard input, JSON on standard output.
// {"state": the link, "click": selectors to click first, "save": ["CSV" | "JSON", which], "values": selector, "hover": selector}
import { createRequire } from "node:module";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const viewer = fileURLToPath(new URL("../../viewer/", import.meta.url));
const { chromium } = createRequire(`${viewer}package.json`)("playwright-core");
const address = process.argv[2];
const wanted = JSON.parse(readFileSync(0, "utf8"));
const executablePath = process.env.CHROMIUM ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser"].find(existsSync);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, acceptDownloads: true });
const page = await context.newPage();

const settled = () =>
  page.waitForFunction(
    () => document.querySelector("main")?.textContent?.trim() && !document.querySelector(".waiting") && !document.querySelector(".old"),
    null,
    { timeout: 60000 },
  );
async function saved([kind, which]) {
  const button = page.locator("main .exports button", { hasText: new RegExp(`^${kind}$`) }).nth(which);
  const [download] = await Promise.all([page.waitForEvent("download"), button.click()]);
  const chunks = [];
  for await (const chunk of await download.createReadStream()) chunks.push(chunk);
  return Buffer.concat(chunks).toString("utf8");
}
const found = {};
for (const [key, { state, click = [], save, values, hover }] of Object.entries(wanted)) {
  try {
    await page.goto(`${address}?${Math.random()}#${new URLSearchParams(state).toString().replaceAll("+", "%20")}`);
    await page.waitForSelector("main");
    await settled();
    for (const selector of click) {
      await page.locator(selector).first().click();
      await settled();
    }
    found[key] = {};
    if (save) found[key].file = await saved(save);
    if (hover) {
      const box = await page.locator(hover).first().boundingBox();
      await page.mouse.move(box.x + 0.6 * box.width, box.y + 0.6 * box.height);
      await page.waitForTimeout(100);
      found[key].place = await page.locator(".readout").first().evaluate((item) => [Number(item.dataset.row), Number(item.dataset.column)]);
    }
    if (values)
      found[key].values = await page.locator(values).evaluateAll((list) => list.map((item) => item.dataset.value ?? null));
  } catch (error) {
    const text = await page.locator("main").innerText().catch(() => "");
    found[key] = { error: `${error}\n${text.slice(0, 400)}` };
  }
}
console.log(JSON.stringify(found));
await browser.close();
