// Bundles tests/unit/*.test.ts and runs them with node's own test runner.
import { build } from "esbuild";
import { readdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { spawnSync } from "node:child_process";

const here = dirname(dirname(fileURLToPath(import.meta.url)));
const out = join(here, ".test");
const tests = readdirSync(join(here, "tests", "unit")).filter((name) => name.endsWith(".test.ts"));
rmSync(out, { recursive: true, force: true });
await build({
  absWorkingDir: here,
  entryPoints: tests.map((name) => join("tests", "unit", name)),
  outdir: out,
  outExtension: { ".js": ".mjs" },
  bundle: true,
  platform: "node",
  format: "esm",
  logLevel: "warning",
});
const done = spawnSync(process.execPath, ["--test", ...tests.map((name) => join(out, name.replace(/ts$/, "mjs")))], { stdio: "inherit" });
process.exit(done.status ?? 1);
