/**
 * Bundles the files for browsers into one module that exports them as strings, so that the server needs no file system
 * and an application's own bundler includes them. This script is plain JavaScript, because `pnpm install` runs it with
 * whichever version of Node.js is installed.
 */
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { rolldown } from "rolldown";

const here = (path) => new URL(path, import.meta.url);
const source = (name) => readFile(here(`src/${name}`), "utf8");
const styles = async (...names) =>
  (await Promise.all(names.map(source)))
    .join("")
    .replace(/\/\*[^]*?\*\/|\s+/g, " ")
    .replace(/\s*([{};,]|:(?= ))\s*/g, "$1")
    .replaceAll(";}", "}");

/**
 * Reduces `marked` to its lexer for GitHub Flavored Markdown. Otherwise the bundle would also contain code that no page
 * uses: the renderer, the rules for original Markdown (the option `pedantic`), and the calls to extensions.
 */
const lexerOnly = {
  name: "lexer-only",
  transform: (code, id) => {
    if (!id.endsWith("/marked.esm.js")) return undefined;
    const lexer = code
      .replace(
        /var (\w+)=new \w+;function (\w+)\([\w,]+\)\{return \1\.parse\([^]*?(?=export\{)/,
        "",
      )
      .replace(/(?<=export\{).*(?=\};)/, (names) =>
        names.match(/\w+ as (Lexer|Tokenizer)\b/g).join(),
      )
      .replaceAll("this.options.pedantic", "false")
      .replaceAll(/this\.options\.(extensions|hooks)/g, "undefined")
      .replaceAll(/,pedantic:\w+(?=\})/g, "");
    return { code: lexer, map: null };
  },
};

const modules = new Set();
const bundleCode = async (path, format) => {
  const bundle = await rolldown({
    input: here(`src/${path}`).pathname,
    platform: "browser",
    plugins: [lexerOnly],
    transform: { jsx: { runtime: "automatic", importSource: "preact" }, target: "es2022" },
  });
  const { output } = await bundle.generate({
    format,
    minify: true,
    chunkFileNames: "highlight.js",
  });
  await bundle.close();
  const [code, highlight] = output.map(({ code }) => code.replaceAll("/* @__PURE__ */", ""));
  output[0].moduleIds.forEach((id) => modules.add(id));
  // All pages load the same colours.
  if (highlight !== undefined) files["highlight.js"] = highlight;
  return code;
};

const files = {};
Object.assign(files, {
  "page.js": await bundleCode("playground/page/PlaygroundPage.tsx", "esm"),
  "reference.js": await bundleCode("docs/page/Reference.tsx", "esm"),
  "guide.js": await bundleCode("docs/page/copyButtons.ts", "esm"),
  "window.js": await bundleCode("widget/page/WidgetWindow.tsx", "esm"),
  "widget.js": await bundleCode("widget/page/loader.ts", "iife"),
  "theme.js": await bundleCode("page/theme.ts", "iife"),
  "style.css": await styles("page/style.css", "page/places.css"),
  "widget.css": await styles("page/style.css", "widget/page/widget.css"),
  "icon.svg": await source("page/icon.svg"),
});
const licences = await Promise.all(
  [...new Set([...modules].map((id) => /^.*\/node_modules\/(@[^/]+\/)?[^/]+/.exec(id)?.[0]))]
    .filter((folder) => folder !== undefined)
    .map(async (folder) => {
      const name = (await readdir(folder)).find((name) => /^licen[cs]e/i.test(name));
      return `${folder.replace(/^.*\/node_modules\//, "")}\n\n${await readFile(`${folder}/${name}`)}`;
    }),
);

await mkdir(here("dist/page"), { recursive: true });
await writeFile(here("dist/page/files.js"), `export default ${JSON.stringify(files)};\n`);
await writeFile(here("dist/page/LICENSES.txt"), licences.join("\n---\n\n"));
await writeFile(
  here("dist/page/files.d.ts"),
  "declare const files: Readonly<Record<string, string>>;\nexport default files;\n",
);
