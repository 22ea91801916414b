// Every view in light and dark, wide and narrow; and what is shown when something is wrong.
import { it } from "node:test";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { serve } from "../../mock/server.mjs";
import { settled, VIEWS, watched } from "./tools.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Axe is put in by the test tool, past the policy of the page. */
async function serious(page, rules) {
  await page.evaluate(axe);
  const found = await page.evaluate(
    (only) => globalThis.axe.run(document, { resultTypes: ["violations"], ...(only ? { runOnly: only } : {}) }),
    rules,
  );
  return found.violations
    .filter((item) => ["serious", "critical"].includes(item.impact))
    .map((item) => `${item.id}: ${item.nodes[0].html.slice(0, 160)} ${item.nodes[0].failureSummary}`);
}

export function looks(place) {
  it("every view: something to see, no console error, no foreign request, axe", async () => {
    const { page, seen, go, context } = await watched(place);
    for (const [view, model] of VIEWS) {
      await go({ view, model });
      assert.equal(await page.locator("main [role=alert]").count(), 0, `${view} shows an error`);
      assert.ok((await page.locator("main").innerText()).length > 40, `${view} is blank`);
      assert.deepEqual(await serious(page), [], `axe on ${view}`);
      assert.deepEqual(seen.errors, [], `console on ${view}`);
    }
    assert.deepEqual(seen.foreign, []);
    await context.close();
  });

  it("dark and narrow: axe, and no page that is wider than the screen", async () => {
    const { page, seen, go, context } = await watched(place, { viewport: { width: 390, height: 800 }, colorScheme: "dark" });
    for (const [view, model] of VIEWS) {
      await go({ view, model });
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${view} is wider than 390 pixels`);
      assert.deepEqual(await serious(page, ["color-contrast", "scrollable-region-focusable"]), [], `axe on ${view}, dark`);
    }
    assert.deepEqual(seen.errors, []);
    await context.close();
  });

  it("each model and view: a picture, or the reason why there is none", async () => {
    const { page, seen, go, context } = await watched(place);
    await go({ view: "pooling" });
    const { models } = await page.evaluate(() => fetch("/api/models").then((answer) => answer.json()));
    for (const model of models.filter((item) => item.id !== "8"))
      for (const view of Object.keys(model.views)) {
        await page.evaluate((hash) => (location.hash = hash), `view=${view}&model=${model.id}`);
        await settled(page);
        const text = await page.locator("main").innerText();
        assert.ok(text.length > 30, `${model.name} ${view}`);
        if (model.views[view] !== true) assert.match(text, /Not applicable to/);
      }
    assert.deepEqual(seen.errors, []);
    await context.close();
  });

  it("errors are messages: broken run, refused sentence, empty, too long", async () => {
    const { page, seen, go, context } = await watched(place);
    seen.expected = /Failed to load resource/;
    for (const view of [
      "heads",
      "alignment",
      "steps",
      "beam",
      "language",
      "recurrent",
      "local",
      "ponder",
      "convolution",
      "positions",
      "vectors",
      "training",
      "evaluation",
    ]) {
      await go({ view, model: "8" });
      assert.match(await page.locator("[role=alert]").first().innerText(), /run folder is gone/, view);
    }
    for (const [text, wanted] of [
      ["error", /could not read/],
      [" ", /is empty/],
      ["word ".repeat(10000), /10000 tokens/],
    ]) {
      await go({ view: "heads", model: "0" });
      await page.fill("#sentence", text);
      await page.press("#sentence", "Enter");
      await page.waitForSelector("[role=alert]");
      assert.match(await page.locator("[role=alert]").innerText(), wanted);
    }
    await page.route("**/api/**", (route) => route.abort());
    await page.fill("#sentence", "the server is gone");
    await page.press("#sentence", "Enter");
    await page.waitForFunction(() => /does not answer/.test(document.querySelector("[role=alert]")?.textContent ?? ""));
    await page.unroute("**/api/**");
    await page.locator("[role=alert] button", { hasText: "Try again" }).click();
    await page.waitForSelector(".says");
    assert.deepEqual(seen.errors, []);
    await context.close();
  });

  it("a server that was started anew: no number of an old trace is shown", async () => {
    const server = await serve(0);
    const address = `http://127.0.0.1:${server.address().port}/`;
    const { page, go, seen, context } = await watched({ browser: place.browser, address });
    seen.expected = /Failed to load resource/;
    const values = () => page.locator(".bars .num").evaluateAll((list) => list.map((item) => item.dataset.value));
    const look = async (text) => {
      await page.fill("#sentence", text);
      await page.press("#sentence", "Enter");
      await page.waitForFunction((wanted) => decodeURIComponent(location.hash).includes(wanted), text);
      await settled(page);
    };
    await go({ view: "alignment", model: "0", text: "one two three four" });
    const first = await values();
    server.forget();
    await look("five six seven eight");
    const second = await values();
    assert.notDeepEqual(second, first);
    server.forget();
    await page.locator('.views a[href*="view=beam"]').click();
    await page.waitForSelector("[role=alert]");
    await page.locator("[role=alert] button").click();
    await page.waitForSelector(".tree canvas");
    await page.locator('.views a[href*="view=alignment"]').click();
    await settled(page);
    assert.deepEqual(await values(), second);
    await context.close();
    server.closeAllConnections();
    server.close();
  });
}
