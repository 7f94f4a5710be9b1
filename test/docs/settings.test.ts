import { expect, it } from "vitest";
import { read, sectionOf } from "./Fences.ts";

const namesIn = (text: string): ReadonlyArray<string> =>
  [...new Set(text.match(/\b(?:PARLEY_[A-Z_]+|DATABASE_URL)\b/g))].sort();

const source = namesIn(read("apps/server/src/Settings.ts"));

it("this test finds the settings in the server's source", () =>
  expect(source).toContain("PARLEY_PORT"));

it("README.md's table names exactly the settings that the server reads", () => {
  const rows = [...sectionOf(read("README.md"), "## Settings").matchAll(/^\| `([A-Z_]+)`/gm)].map(
    (match) => match[1]!,
  );
  expect(rows.toSorted()).toEqual(source);
});

it("docs/settings.md names exactly the settings that the server reads", () => {
  expect(namesIn(read("docs/settings.md"))).toEqual(source);
});

it.each(source)("docs/settings.md has an example of %s", (name) => {
  expect(read("docs/settings.md")).toMatch(
    new RegExp(`^(?:export )?(?:\\w+=\\S+ )*${name}=\\S+`, "m"),
  );
});
