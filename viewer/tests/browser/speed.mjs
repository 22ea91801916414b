// How fast the page is, and how much memory it takes.
import assert from "node:assert/strict";
import { watched } from "./tools.mjs";

/** Milliseconds from a click to the next painting of a canvas. */
function timed(page, canvas, button) {
  return page.evaluate(
    async ([target, press]) => {
      const old = document.querySelector(target)?.dataset.painted;
      const start = performance.now();
      document.querySelector(press).click();
      for (;;) {
        await new Promise((done) => requestAnimationFrame(done));
        const painted = document.querySelector(target)?.dataset.painted;
        if (painted && painted !== old && !document.querySelector(".old") && !document.querySelector(".waiting"))
          return performance.now() - start;
      }
    },
    [canvas, button],
  );
}

export async function speed(t, place) {
  const { page, go, context } = await watched(place);
  const text = Array.from({ length: 511 }, (_, i) => ["the", "cat", "saw", "a", "red", "house"][i % 6]).join(" ");
  await go({ view: "pooling", model: "0", text });
  // The mock computes the trace once, so that the page is measured and not the mock.
  await page.evaluate(
    (sentence) =>
      fetch("/api/traces", { method: "POST", body: JSON.stringify({ model: "0", text: sentence, target: null, beam: null }) }).then((a) =>
        a.json(),
      ),
    text,
  );
  const overview = await timed(page, ".overview canvas", 'a[href*="view=heads"]');
  t.diagnostic(`overview of 512 tokens, 6 x 8 heads, from the click on: ${overview.toFixed(0)} ms`);
  const heads = [];
  for (const at of [9, 26, 47, 3, 18]) heads.push(await timed(page, ".lines canvas", `.overview-grid button:nth-child(${at})`));
  t.diagnostic(`one head: ${heads.map((ms) => ms.toFixed(0)).join(", ")} ms`);
  const heap = await page.evaluate(() => performance.memory.usedJSHeapSize / 2 ** 20);
  t.diagnostic(`heap: ${heap.toFixed(0)} MiB`);
  // Other work on the machine may delay one of them; the middle one counts.
  const middle = heads.sort((a, b) => a - b)[2];
  assert.ok(overview < 1000 && middle < 200 && heap < 300);
  await go({ view: "pooling", model: "0", text: "many nodes" });
  await page.evaluate(() =>
    fetch("/api/traces", { method: "POST", body: JSON.stringify({ model: "0", text: "many nodes", target: null, beam: null }) }),
  );
  const tree = await timed(page, ".tree canvas", 'a[href*="view=beam"]');
  t.diagnostic(`beam tree of 1,000 nodes: ${tree.toFixed(0)} ms`);
  assert.ok(tree < 500);
  assert.match(await page.locator(".tree canvas").getAttribute("aria-label"), /1000 nodes/);
  await context.close();
}
