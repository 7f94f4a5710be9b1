/**
 * Bundles the playground's page into one module that exports its files as texts: the server needs no file system, and
 * other bundlers take it along. Plain JavaScript, because `pnpm install` runs it on whichever Node there is.
 */
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

const licences = await Promise.all(
  [...new Set(output[0].moduleIds.map((id) => /^.*\/node_modules\/(@[^/]+\/)?[^/]+/.exec(id)?.[0]))]
    .filter((folder) => folder !== undefined)
    .map(async (folder) => {
      const name = (await readdir(folder)).find((name) => /^licen[cs]e/i.test(name));
      return `${folder.replace(/^.*\/node_modules\//, "")}\n\n${await readFile(`${folder}/${name}`)}`;
    }),
);

await mkdir(here("dist/playground"), { recursive: true });
const files = {
  "index.html": await source("index.html"),
  "page.js": output[0].code,
  "style.css": await source("style.css"),
  "icon.svg": await source("icon.svg"),
};
await writeFile(here("dist/playground/files.js"), `export default ${JSON.stringify(files)};\n`);
await writeFile(here("dist/playground/LICENSES.txt"), licences.join("\n---\n\n"));
await writeFile(
  here("dist/playground/files.d.ts"),
  "declare const files: Readonly<Record<string, string>>;\nexport default files;\n",
);
