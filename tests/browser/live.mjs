// A run that is watched while things happen to its folder: node live.mjs ADDRESS FOLDER, JSON on standard output.
import { createRequire } from "node:module";
import { appendFileSync, existsSync, renameSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const viewer = fileURLToPath(new URL("../../viewer/", import.meta.url));
const { chromium } = createRequire(`${viewer}package.json`)("playwright-core");
const [, , address, folder] = process.argv;
const executablePath = process.env.CHROMIUM ?? ["/usr/bin/chromium", "/usr/bin/chromium-browser"].find(existsSync);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const page = await (await browser.newContext({ viewport: { width: 1280, height: 800 } })).newPage();
const errors = [];
page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
page.on("pageerror", (error) => errors.push(error.message));
const until = (pattern) =>
  page.waitForFunction((source) => new RegExp(source).test(document.querySelector("main")?.innerText ?? ""), pattern, { timeout: 30000 });
const facts = () => page.locator("main .facts").first().innerText();
const log = (row) => appendFileSync(`${folder}/metrics.jsonl`, `${JSON.stringify(row)}\n`);
const said = {};

await page.goto(`${address}#view=training`);
await until("last step 8");
said.begin = await facts();
log({ step: 9, loss: 0.5, skipped: 2, last_skipped_step: 9 });
appendFileSync(`${folder}/resumed.jsonl`, '{"step": 8, "event": "resumed"}\n');
await until("step 9\\b[\\s\\S]*resumed: 1 \\(step 8\\)");
said.marked = await facts();
renameSync(folder, `${folder}.away`);
await page.waitForSelector("main [role=alert]", { timeout: 30000 });
said.gone = await page.locator("main [role=alert]").innerText();
said.kept = await page.locator("section.chart").count();
renameSync(`${folder}.away`, folder);
await page.waitForFunction(() => !document.querySelector("main [role=alert]"), null, { timeout: 30000 });
log({ step: 10, loss: 0.4 });
await until("last step 10");
said.back = await facts();
// As a run that is taken up again does it: what came after the checkpoint goes, and comes anew.
writeFileSync(`${folder}/metrics.jsonl`, '{"step": 1, "loss": 5}\n{"step": 2, "loss": 4}\n');
appendFileSync(`${folder}/resumed.jsonl`, '{"step": 2, "event": "resumed"}\n');
await until("last step 8, |, 3 rows");
await until("resumed: 2 \\(step 2, step 8\\)");
said.again = await facts();
writeFileSync(`${folder}/run.json`, '{"status": "finished"}');
await until("Finished");
console.log(JSON.stringify({ ...said, errors }));
await browser.close();
