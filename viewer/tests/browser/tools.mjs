// What the browser tests share: the mock, the browser, a page that watches itself.
import { chromium } from "playwright-core";
import { existsSync } from "node:fs";
import { serve } from "../../mock/server.mjs";

export const VIEWS = [
  ["heads", "0"],
  ["alignment", "0"],
  ["steps", "0"],
  ["beam", "0"],
  ["language", "3"],
  ["language", "4"],
  ["recurrent", "1"],
  ["local", "2"],
  ["ponder", "5"],
  ["convolution", "6"],
  ["convolution", "9"],
  ["compare", "0"],
  ["positions", "0"],
  ["vectors", "4"],
  ["training", "0"],
  ["evaluation", "0"],
  ["pooling", "0"],
];

export async function open() {
  const server = await serve(0);
  const executablePath = process.env.CHROMIUM ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser"].find(existsSync);
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--enable-precise-memory-info"] });
  const address = `http://127.0.0.1:${server.address().port}/`;
  return {
    address,
    browser,
    async close() {
      await browser.close();
      server.closeAllConnections();
      server.close();
    },
  };
}

/** A page that notes console errors and requests to other places. */
export async function watched({ browser, address }, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  const seen = { errors: [], foreign: [], dialogs: [], expected: /never/ };
  page.on("console", (message) => message.type() === "error" && !seen.expected.test(message.text()) && seen.errors.push(message.text()));
  page.on("pageerror", (error) => seen.errors.push(error.message));
  page.on(
    "request",
    (request) => !request.url().startsWith(address) && !/^(data|blob):/.test(request.url()) && seen.foreign.push(request.url()),
  );
  page.on("dialog", (dialog) => {
    seen.dialogs.push(dialog.message());
    dialog.dismiss();
  });
  const go = async (state) => {
    const hash = new URLSearchParams(state).toString().replaceAll("+", "%20");
    await page.goto(`${address}?${Math.random()}#${hash}`);
    await settled(page);
  };
  return { page, context, seen, go };
}

/** Until nothing says that it is waiting. */
export async function settled(page) {
  await page.waitForSelector("main");
  await page.waitForFunction(
    () => document.querySelector("main")?.textContent?.trim() && !document.querySelector(".waiting") && !document.querySelector(".old"),
  );
}
