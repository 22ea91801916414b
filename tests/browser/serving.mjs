// Works with the page of a real `regard serve`, and says what was seen: node serving.mjs ADDRESS SHOTS, JSON on standard output.
import { createRequire } from "node:module";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const viewer = fileURLToPath(new URL("../../viewer/", import.meta.url));
const require = createRequire(`${viewer}package.json`);
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const [address, locked, shots] = process.argv.slice(2);
const executablePath = process.env.CHROMIUM ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser"].find(existsSync);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const seen = { foreign: [], errors: [], axe: {} };

async function open(colorScheme, url, size = { width: 1100, height: 760 }) {
  const context = await browser.newContext({ viewport: size, colorScheme });
  await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: new URL(url).origin });
  const page = await context.newPage();
  page.on("console", (message) => message.type() === "error" && seen.errors.push(message.text()));
  page.on("pageerror", (error) => seen.errors.push(error.message));
  page.on("request", (request) => !request.url().startsWith(new URL(url).origin) && !/^(data|blob):/.test(request.url()) && seen.foreign.push(request.url()));
  await page.goto(url);
  return page;
}
async function check(page, name) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  seen.axe[name] = violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).join(" ").slice(0, 200)}`);
  await page.screenshot({ path: `${shots}/${name}.png` });
}
const text = (page, id) => page.locator(`#${id}`).innerText();
const filled = (page, id) => page.waitForFunction((id) => document.getElementById(id).textContent && !document.getElementById(id).classList.contains("old"), id);

for (const scheme of ["light", "dark"]) {
  const page = await open(scheme, address);
  await page.waitForSelector("#translate:not([hidden])");
  await page.fill("#text", "Good morning, my friend.");
  await filled(page, "result"); // as one types
  seen[`${scheme}Result`] = await text(page, "result");
  await page.selectOption("#others", "2");
  await page.waitForSelector("#alternatives li");
  seen[`${scheme}Others`] = await page.locator("#alternatives li").allInnerTexts();
  await check(page, `translate-${scheme}`);
  if (scheme === "light") {
    await page.click("#copy");
    await page.waitForFunction(() => document.getElementById("said").textContent === "Copied.");
    seen.copied = await page.evaluate(() => navigator.clipboard.readText());
    await page.check("#markup");
    await page.fill("#text", "<i>Good</i> <b>night</b>.");
    await page.waitForFunction(() => document.getElementById("result").textContent.includes("<b>"));
    seen.markup = await text(page, "result");
    seen.injected = await page.locator("#result b").count();
    await page.uncheck("#live");
    await page.fill("#text", "Good <img src=x onerror=alert(1)> night.");
    await page.waitForTimeout(600);
    seen.waited = (await text(page, "result")) === seen.markup; // nothing is asked until somebody says so
    await page.keyboard.press("Control+Enter");
    await page.waitForFunction(() => document.getElementById("result").textContent.includes("onerror"));
    seen.hostile = await page.locator("#result img").count();
    await page.route("**/translate", (route) => route.fulfill({ status: 503, headers: { "Retry-After": "1" }, json: { error: "Too much." } }));
    await page.click("#go");
    await page.waitForFunction(() => document.getElementById("said").textContent.includes("busy"));
    seen.busy = await text(page, "said");
    await page.waitForFunction(() => document.getElementById("said").classList.contains("bad"), null, { timeout: 10000 });
    seen.failed = await text(page, "said");
    await page.unroute("**/translate");
    await page.click("#go");
    await page.waitForFunction(() => document.getElementById("said").textContent === "");
    await page.fill("#text", "x".repeat(20001));
    await page.click("#go");
    await page.waitForFunction(() => document.getElementById("said").textContent.includes("20,001"));
    seen.tooLong = await text(page, "said");
  }
  await page.click("#tab-write");
  await page.fill("#prompt", "The cat sat");
  await page.fill("#seed", "3");
  await page.fill("#tokens", "20");
  const answer = page.waitForResponse((response) => response.url().endsWith("/v1/completions"));
  await page.focus("#prompt");
  await page.keyboard.press("Control+Enter");
  seen.streamed = (await answer).headers()["content-type"];
  await page.waitForFunction(() => document.getElementById("wrote").textContent.includes("tokens"));
  seen[`${scheme}Story`] = await page.locator("#story").evaluate((node) => node.textContent);
  await check(page, `write-${scheme}`);
  if (scheme === "dark") {
    await page.focus("#tab-write");
    await page.keyboard.press("ArrowRight");
    seen.tabbed = await page.locator("#translate").isVisible();
    seen.background = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    await page.goto(`${address}/docs`);
    await check(page, "docs-dark");
  }
  await page.context().close();
}
const narrow = await open("light", address, { width: 390, height: 800 });
await narrow.waitForSelector("#translate:not([hidden])");
seen.sideways = await narrow.evaluate(() => document.documentElement.scrollWidth > innerWidth);
await check(narrow, "narrow-light");
await narrow.context().close();

const errors = seen.errors.length;
const closed = await open("light", locked);
await closed.waitForSelector("#locked:not([hidden])");
await check(closed, "locked-light");
await closed.fill("#key", "wrong-key");
await closed.keyboard.press("Enter");
await closed.waitForFunction(() => document.getElementById("said").textContent.includes("invalid"));
await closed.fill("#key", "right-key");
await closed.keyboard.press("Enter");
await closed.waitForSelector("#translate:not([hidden])");
await closed.fill("#text", "Good night.");
await filled(closed, "result");
seen.opened = await text(closed, "result");
seen.errors = seen.errors.slice(0, errors); // a browser tells of each 4xx
console.log(JSON.stringify(seen));
await browser.close();
