/**
 * Bundles the playground's page into one module that exports its files as texts: the server needs no file system, and
 * other bundlers take it along. Plain JavaScript, because an installation runs it on whichever Node there is.
 */
import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { rolldown } from "rolldown";

const here = (path) => new URL(path, import.meta.url);
const source = (name) => readFile(here(`src/playground/page/static/${name}`), "utf8");

const bundle = await rolldown({
  input: here("src/playground/page/main.tsx").pathname,
  platform: "browser",
  transform: { jsx: { runtime: "automatic", importSource: "preact" }, target: "es2022" },
});
const { output } = await bundle.generate({ format: "esm", minify: true });
await bundle.close();

const style = await source("style.css");
/** Named after their contents, so that browsers may cache them without end. */
const named = (name, text, ending) => [
  `${name}-${createHash("sha256").update(text).digest("hex").slice(0, 12)}.${ending}`,
  text,
];
const [script, sheet] = [named("page", output[0].code, "js"), named("page", style, "css")];
const icon = await source("icon.svg");
const html = (await source("index.html"))
  .replace("page.js", script[0])
  .replace("page.css", sheet[0]);

const licences = await Promise.all(
  [...new Set(output[0].moduleIds.map((id) => /^.*\/node_modules\/(@[^/]+\/)?[^/]+/.exec(id)?.[0]))]
    .filter((folder) => folder !== undefined)
    .map(async (folder) => {
      const name = (await readdir(folder)).find((name) => /^licen[cs]e/i.test(name));
      return `${folder.replace(/^.*\/node_modules\//, "")}\n\n${await readFile(`${folder}/${name}`)}`;
    }),
);

await mkdir(here("dist/playground"), { recursive: true });
const files = Object.fromEntries([["index.html", html], script, sheet, ["icon.svg", icon]]);
await writeFile(here("dist/playground/files.js"), `export default ${JSON.stringify(files)};\n`);
await writeFile(here("dist/playground/LICENSES.txt"), licences.join("\n---\n\n"));
await writeFile(
  here("dist/playground/files.d.ts"),
  "declare const files: Readonly<Record<string, string>>;\nexport default files;\n",
);
