// Keyboard, numbers, hostile tokens, links, files.
import { it } from "node:test";
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { serve } from "../../mock/server.mjs";
import { settled, VIEWS, watched } from "./tools.mjs";

export function behaviour(place) {
  it("it opens on attention, on a sentence and on a word of it, however long the models take", async () => {
    const { page, seen, context } = await watched(place);
    let open;
    const opened = new Promise((done) => (open = done));
    await page.route("**/api/models", (route) => opened.then(() => route.continue()));
    await page.goto(place.address);
    await page.waitForSelector("main .waiting");
    assert.match(await page.locator(".views [aria-current]").getAttribute("href"), /view=heads/);
    open();
    await settled(page);
    assert.match(await page.locator("#sentence").inputValue(), /^The animal didn't cross the street because it was too tired/);
    assert.match(await page.locator(".says").innerText(), /^it looks most at \S+/);
    assert.deepEqual(seen.errors, []);
    await context.close();
  });

  it("keyboard alone reaches every view and moves in it", async () => {
    const { page, go, context } = await watched(place);
    await go({ model: "0" });
    const reached = new Set();
    for (let i = 0; i < 60 && reached.size < 15; i++) {
      await page.keyboard.press("Tab");
      const found = await page.evaluate(() => {
        const here = document.activeElement;
        const look = getComputedStyle(here);
        return {
          view: here
            .closest(".views a")
            ?.getAttribute("href")
            ?.match(/view=(\w+)/)?.[1],
          seen: look.outlineStyle !== "none" || look.boxShadow !== "none",
          tag: here.outerHTML.slice(0, 80),
        };
      });
      assert.ok(found.seen, `focus is not visible on ${found.tag}`);
      if (found.view) reached.add(found.view);
    }
    assert.equal(reached.size, 15);
    await page.locator('.views a[href*="view=alignment"]').focus();
    await page.keyboard.press("Enter");
    await settled(page);
    await page.locator("main canvas[tabindex]").first().focus();
    const at = () =>
      page
        .locator(".readout")
        .first()
        .evaluate((element) => [element.dataset.row, element.dataset.column]);
    const before = await at();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowRight");
    const after = await at();
    assert.equal(Number(after[0]), Number(before[0]) + 1);
    assert.equal(Number(after[1]), Math.min(Number(before[1]) + 1, 11));
    assert.match(page.url(), /row=1/);
    await context.close();
  });

  it("numbers on the page are the numbers of the server", async () => {
    const { page, go, context } = await watched(place);
    await go({ view: "alignment", model: "0", row: "3", col: "2" });
    const shown = Number(await page.locator(".readout .big .num").getAttribute("data-value"));
    const sent = await page.evaluate(async () => {
      const trace = await fetch("/api/traces", {
        method: "POST",
        body: JSON.stringify({ model: "0", text: document.querySelector("#sentence").value, target: null, beam: null }),
      }).then((a) => a.json());
      const buffer = await fetch(`/api/traces/${trace.id}/alignment?type=f32&merge=tokens`).then((a) => a.arrayBuffer());
      const length = new DataView(buffer).getUint32(0, true);
      return new Float32Array(buffer, 4 * Math.ceil((4 + length) / 4))[3 * trace.source.tokens.length + 2];
    });
    assert.equal(shown, sent);
    await go({ view: "steps", model: "3", row: "2" });
    const weights = await page.locator('[data-step="softmax"] .num').evaluateAll((list) => list.map((item) => Number(item.dataset.value)));
    assert.ok(Math.abs(weights.reduce((a, b) => a + b, 0) - 1) < 1e-6);
    const masked = await page.locator('[data-step="mask"] .num').evaluateAll((list) => list.map((item) => item.dataset.value));
    assert.ok(masked.includes("-Infinity"));
    assert.match(await page.locator('[data-step="mask"]').innerText(), /−∞/);
    await context.close();
  });

  it("hostile tokens are text", async () => {
    const { page, seen, go, context } = await watched(place);
    const text = `<img src=x onerror=alert(1)> <script>alert(2)</script> שלום العربية 👩‍👩‍👧‍👦 \u202Eevil ${"x".repeat(10240)} it`;
    for (const [view, model] of [
      ["heads", "0"],
      ["alignment", "0"],
      ["steps", "0"],
      ["beam", "0"],
      ["language", "3"],
      ["compare", "0"],
      ["convolution", "6"],
      ["ponder", "5"],
      ["local", "2"],
      ["recurrent", "1"],
    ]) {
      await go({ view, model, text });
      assert.equal(await page.locator("main img, main script").count(), 0, view);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${view} is wider than the screen`);
    }
    await go({ view: "heads", model: "0", text });
    assert.match(await page.locator(".strip").first().innerText(), /onerror/);
    const long = page.locator(".strip .word").filter({ hasText: "xxxx" }).first();
    assert.ok((await long.innerText()).length < 40);
    assert.ok((await long.getAttribute("title")).length > 10000);
    assert.deepEqual([seen.errors, seen.foreign, seen.dialogs], [[], [], []]);
    await context.close();
  });

  it("beam: the best path ends in the mark of the end; the translation goes on from before it", async () => {
    const { page, seen, go, context } = await watched(place);
    await go({ view: "beam", model: "0" });
    assert.match(await page.locator(".node-panel table").first().innerText(), /on the best path/);
    await page.locator("button", { hasText: "Translate again" }).click();
    await page.waitForSelector('section[aria-label="From here"] td');
    await page.locator(".tree canvas").focus();
    // The parent has the same prefix; its parent another.
    await page.keyboard.press("ArrowLeft");
    await page.keyboard.press("ArrowLeft");
    assert.match(page.url(), /node=/);
    await page.waitForFunction(() => !document.querySelector('section[aria-label="From here"] td'));
    assert.deepEqual(seen.errors, []);
    await context.close();
  });

  it("training: marks that come while the page is open, a folder that goes and comes back", async (t) => {
    const server = await serve(0);
    t.after(() => server.close().closeAllConnections());
    const address = `http://127.0.0.1:${server.address().port}/`;
    const { page, seen, go, context } = await watched({ browser: place.browser, address });
    await go({ view: "training", model: "0" });
    const facts = page.locator("main .facts").first();
    const until = (pattern) =>
      page.waitForFunction((source) => new RegExp(source).test(document.querySelector("main")?.innerText ?? ""), pattern);
    await until("● live");
    assert.match(await facts.innerText(), /resumed: 1 \(step 9100\); batches skipped, loss or gradient not finite: 1 \(step 14100\)/);
    server.happen("row", { step: 15000, event: "resumed" });
    server.happen("row", { step: 16000, loss: 2, skipped: 3, last_skipped_step: 15500 });
    await until("resumed: 2 \\(step 9100, step 15000\\)");
    await until("step 15500");
    server.happen("row", { step: 16100, loss: 2 });
    server.happen("gone", { where: "run", what: "it is not there any more", todo: "Bring it back" });
    await page.waitForTimeout(1000); // it stays, whatever came before it
    assert.match(await page.locator("main [role=alert]").innerText(), /not there any more/);
    assert.ok(await page.locator("section.chart").count(), "what was known stays to be seen");
    server.happen("again", {});
    server.happen("row", { step: 1, loss: 9 });
    await page.waitForFunction(() => !document.querySelector("main [role=alert]"));
    await until(", \\d rows");
    assert.deepEqual(seen.errors, []);
    await context.close();
  });

  it("every state has a link, and every picture can be saved", async () => {
    const { page, go, context } = await watched(place, { acceptDownloads: true });
    await go({ view: "heads", model: "0" });
    await page.locator(".overview-grid button").nth(19).click();
    await page.locator(".strip .word").nth(2).click();
    assert.match(page.url(), /layer=2/);
    assert.match(page.url(), /head=3/);
    assert.match(page.url(), /row=2/);
    await settled(page);
    const says = await page.locator(".says").first().innerText();
    await page.goto(page.url().replace("?", "?again&"));
    await settled(page);
    assert.equal(await page.locator(".says").first().innerText(), says);
    for (const name of ["PNG", "SVG", "CSV", "JSON"]) {
      const [download] = await Promise.all([
        page.waitForEvent("download"),
        page.locator(".exports button", { hasText: name }).first().click(),
      ]);
      assert.match(download.suggestedFilename(), new RegExp(`\\.${name.toLowerCase()}$`));
      const chunks = [];
      for await (const chunk of await download.createReadStream()) chunks.push(chunk);
      const content = Buffer.concat(chunks);
      assert.ok(content.length > 200);
      if (name === "PNG") assert.equal(content.subarray(1, 4).toString(), "PNG");
      if (name === "SVG") assert.match(content.toString(), /^<svg xmlns[\s\S]*<path[\s\S]*<\/svg>\s*$/);
      if (name === "JSON") assert.equal(JSON.parse(content.toString()).rows.length, 12);
    }
    await context.close();
  });

  it("every view gives pictures and numbers as files", async () => {
    const { page, seen, go, context } = await watched(place, { acceptDownloads: true });
    for (const [view, model] of VIEWS) {
      await go({ view, model });
      const kinds = new Set();
      for (const button of await page.locator("main .exports button", { hasText: /^(PNG|SVG|CSV|JSON)$/ }).all()) {
        const kind = await button.innerText();
        await page.waitForTimeout(120); // chromium drops the eleventh download of a second
        const [download] = await Promise.all([page.waitForEvent("download"), button.click()]);
        const chunks = [];
        for await (const chunk of await download.createReadStream()) chunks.push(chunk);
        const content = Buffer.concat(chunks).toString("utf8");
        assert.ok(content.length > 20, `${view}: ${kind} is empty`);
        if (kind === "SVG") assert.doesNotMatch(content, /NaN|undefined/, `${view}: ${kind}`);
        if (kind === "JSON") JSON.parse(content);
        kinds.add(kind);
      }
      assert.ok(kinds.has("PNG") && kinds.has("SVG"), `${view} (model ${model}) gives no picture`);
      assert.ok(kinds.has("CSV") || kinds.has("JSON"), `${view} (model ${model}) gives no numbers`);
    }
    assert.deepEqual(seen.errors, []);
    await context.close();
  });

  it("a saved page works from a file, without a server", async () => {
    const { page, go, context } = await watched(place);
    await go({ view: "heads", model: "0" });
    // The page says what it asks for; the answers become the file.
    const answers = await page.evaluate(async () => {
      const body = { model: "0", text: document.querySelector("#sentence").value, target: null, beam: null };
      const trace = await fetch("/api/traces", { method: "POST", body: JSON.stringify(body) }).then((a) => a.json());
      const { models } = await fetch("/api/models").then((a) => a.json());
      const out = { "GET /api/models": { json: { models: models.slice(0, 1) } }, "POST /api/traces": { json: trace } };
      const part = trace.parts[0];
      const paths = [
        `/api/traces/${trace.id}/overview?part=${part.name}&size=48`,
        `/api/traces/${trace.id}/alignment?merge=tokens&type=u8`,
      ];
      for (let head = 0; head < part.heads; head++)
        paths.push(`/api/traces/${trace.id}/weights?head=${head}&layer=5&part=${part.name}&type=u8`);
      for (const path of paths) {
        const bytes = new Uint8Array(await fetch(path).then((a) => a.arrayBuffer()));
        out[`GET ${path}`] = { base64: btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join("")) };
      }
      return out;
    });
    await context.close();
    const asset = (name) => fetch(place.address + name).then((answer) => answer.text());
    const data = JSON.stringify({ answers }).replaceAll("<", "\\u003c");
    const html = `<!doctype html><html lang="en"><meta charset="utf-8"><title>saved</title><style>${await asset("app.css")}</style><div id="page"></div><script type="application/json" id="regard-embedded">${data}</script><script>${await asset("app.js")}</script></html>`;
    const folder = mkdtempSync(join(tmpdir(), "regard-saved-"));
    writeFileSync(join(folder, "saved.html"), html);
    const saved = await watched({ browser: place.browser, address: "file://" });
    await saved.page.goto(`file://${folder}/saved.html`);
    await settled(saved.page);
    assert.match(await saved.page.locator(".says").innerText(), /looks most at/);
    assert.match(await saved.page.locator(".sentence").innerText(), /saved page/);
    await saved.page.locator(".strip .word").nth(1).click();
    await saved.page.locator('.views a[href*="view=alignment"]').click();
    await settled(saved.page);
    assert.match(await saved.page.locator("main").innerText(), /Rounded to 1\/255/);
    await saved.page.locator('.views a[href*="view=beam"]').click();
    await saved.page.waitForSelector("[role=alert]");
    assert.match(await saved.page.locator("[role=alert]").innerText(), /not saved in the file/);
    assert.deepEqual([saved.seen.errors, saved.seen.foreign], [[], []]);
    await saved.context.close();
    rmSync(folder, { recursive: true });
  });
}
