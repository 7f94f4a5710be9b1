import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { settingRows } from "../../apps/server/src/Settings.ts";
import { documents, read, root, sectionOf, table } from "./Fences.ts";

const path = "docs/settings.md";
const names = Object.keys(settingRows);

const rows = Object.entries(settingRows).map(
  ([name, [value, meaning, unset = "not set"]]: readonly [
    string,
    readonly [string | null, string, string?],
  ]) => [`\`${name}\``, value === null ? unset : `\`${value}\``, meaning],
);
const section = `\n## All settings\n\n${table(["setting", "default", "meaning"], rows)}\n`;

if (process.env["UPDATE_DOCS"] === "1") {
  const text = read(path);
  writeFileSync(
    join(root, path),
    text.replace(sectionOf(text, "## All settings"), () => section),
  );
}

it(`${path} has the table of the settings that the server reads (UPDATE_DOCS=1 writes it)`, () => {
  expect(sectionOf(read(path), "## All settings")).toBe(section);
});

it("the server has at most 35 settings", () => {
  expect(names.length).toBeLessThanOrEqual(35);
});

it(`${path} names no setting that the server does not read`, () => {
  const text = read(path);
  expect(
    text.match(/\b(?:PARLEY_[A-Z_]+|DATABASE_URL)\b/g)!.filter((name) => !names.includes(name)),
  ).toEqual([]);
});

it("a default that a document repeats is the default in the table", () => {
  const defaults = documents.flatMap((document) => [
    ...read(document).matchAll(/`((?:PARLEY|DATABASE)_\w+)` \(`?([^`(),]+)`? by\s+default/g),
  ]);
  expect(defaults.length).toBeGreaterThan(5);
  for (const [, name, value] of defaults)
    expect([name, settingRows[name as keyof typeof settingRows][0]]).toEqual([name, value]);
});

it.each(names)(`${path} has an example of %s`, (name) => {
  expect(read(path)).toMatch(new RegExp(`^(?:export )?(?:\\w+=\\S+ )*${name}=\\S+`, "m"));
});
