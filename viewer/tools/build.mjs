// Builds the page into src/regard/looking/assets. Two builds of one tree are byte-equal.
import { build } from "esbuild";
import { readFileSync, writeFileSync, mkdirSync, copyFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = dirname(dirname(fileURLToPath(import.meta.url)));
const out = process.argv[2] ?? join(here, "..", "src", "regard", "looking", "assets");
const LIMIT = 80_000;

mkdirSync(out, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "iife",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  charset: "utf8",
  logLevel: "warning",
});
copyFileSync(join(here, "src", "index.html"), join(out, "index.html"));

const bundled = ["preact", "@preact/signals", "@preact/signals-core", "uplot"];
const notices = bundled.map((name) => {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const text = readFileSync(join(folder, "LICENSE"), "utf8").replaceAll("\r\n", "\n").trim();
  return `${name} ${version} (${license})\n\n${text}\n`;
});
const rule = "\n" + "-".repeat(78) + "\n\n";
writeFileSync(join(out, "THIRD-PARTY.txt"), "app.js and app.css hold code of these packages.\n" + rule + notices.join(rule));

const sizes = ["app.js", "app.css"].map((name) => gzipSync(readFileSync(join(out, name)), { level: 9 }).length);
const total = sizes[0] + sizes[1];
console.log(`gzip: app.js ${sizes[0]}, app.css ${sizes[1]}, together ${total} bytes (limit ${LIMIT})`);
if (total > LIMIT) process.exit(1);
