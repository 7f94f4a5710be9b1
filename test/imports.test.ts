import { expect, it } from "vitest";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";

const root = join(import.meta.dirname, "..");

const browser = [/^preact(\/hooks)?$/, /^@preact\/signals$/, /^marked$/, /^@parley\/client$/];

/** What each package's sources may import besides their own files. */
const mayImport: Readonly<Record<string, ReadonlyArray<RegExp>>> = {
  "packages/core/src": [/^effect$/, /^effect\/crypto$/],
  "packages/core/src/testing": [/^effect$/, /^effect\/testing$/, /^\.\.\//],
  "packages/core/src/testing/random": [/^effect$/, /^effect\/testing$/, /^\.\.\//, /^fast-check$/],
  "packages/client/src": [/^ai$/],
  "packages/http/src": [/^@parley\/core(\/ports)?$/, /^effect$/, /^effect\//, /^jose(\/|$)/],
  // For hosts that use Node's own request and response objects.
  "packages/http/src/node": [
    /^@parley\/core(\/ports)?$/,
    /^effect$/,
    /^effect\//,
    /^node:/,
    /^\.\.\/(contract|serve)\//,
  ],
  "packages/pages/src": [
    /^@parley\/http(\/contract)?$/,
    /^effect$/,
    /^effect\/http$/,
    /^marked$/,
    /^#files$/,
  ],
  // Code that is bundled for browsers: the parts that all pages share, and the three pages.
  "packages/pages/src/page": browser,
  "packages/pages/src/playground/page": [
    ...browser,
    /^\.\.\/\.\.\/page\//,
    /^\.\.\/PlaygroundConfig\.ts$/,
  ],
  "packages/pages/src/docs/page": [...browser, /^\.\.\/\.\.\/page\//],
  "packages/pages/src/widget/page": [...browser, /^\.\.\/\.\.\/page\//, /^\.\.\/WidgetConfig\.ts$/],
  "packages/store-memory/src": [/^@parley\/core\/ports$/, /^effect$/],
  "packages/store-pg/src": [
    /^@parley\/core\/ports$/,
    /^effect$/,
    /^effect\/(sql|encoding|reactivity)$/,
    /^@effect\/sql-pg/,
  ],
  "packages/store-sqlite/src": [
    /^@parley\/core\/ports$/,
    /^effect$/,
    /^node:(sqlite|worker_threads)$/,
  ],
  "packages/llm/src": [
    /^@parley\/core\/ports$/,
    /^effect$/,
    /^effect\/(ai|http|persistence\/CircuitBreaker)$/,
    /^@effect\/platform-node\/Node(FileSystem|Path)$/,
    /^marked$/,
  ],
  "apps/server/src": [
    /^@parley\//,
    /^effect$/,
    /^effect\//,
    /^@effect\/(platform-node|sql-pg)/,
    /^node:/,
    // The server's version.
    /^\.\.\/package\.json$/,
  ],
};

const sources = (folder: string): ReadonlyArray<string> =>
  readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((file) => /\.tsx?$/.test(file))
    .map((file) => `${folder}/${file}`)
    .filter(
      (file) =>
        !Object.keys(mayImport).some((other) => other > folder && file.startsWith(`${other}/`)),
    )
    .map((file) => join(root, file));

const importsOf = (file: string): ReadonlyArray<string> =>
  [
    ...readFileSync(file, "utf8").matchAll(
      /^(?:import|export)\s[^"]*?from "([^"]+)"|^import "([^"]+)"|\bimport\("([^"]+)"\)/gm,
    ),
  ].map((match) => match[1] ?? match[2] ?? match[3]!);

/** Whether a relative import stays inside the folder. */
const isOwn = (folder: string, file: string, name: string): boolean =>
  name.startsWith(".") && resolve(dirname(file), name).startsWith(`${join(root, folder)}/`);

it.each(Object.keys(mayImport))("%s imports only what it may", (folder) => {
  const files = sources(folder);
  expect(files.length).toBeGreaterThan(0);
  const wrong = files.flatMap((file) =>
    importsOf(file)
      .filter((name) => !isOwn(folder, file, name))
      .filter((name) => !mayImport[folder]!.some((ok) => ok.test(name)))
      .map((name) => `${file.slice(root.length + 1)} imports ${name}`),
  );
  expect(wrong).toEqual([]);
});
