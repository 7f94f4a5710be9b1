import { expect, it } from "vitest";
import { read } from "./Fences.ts";

const sections = read("docs/security.md")
  .split(/^## /m)
  .slice(1)
  .map((section) => ({ section, title: section.split("\n")[0]! }));

it("docs/security.md has the ten risks", () => {
  expect(sections.map(({ title }) => title.split(":")[0])).toEqual(
    Array.from({ length: 10 }, (_, n) => `API${n + 1}`),
  );
});

it.each(sections)("each test that docs/security.md names is there: $title", ({ section }) => {
  const tests = [...section.matchAll(/^- `(.+)`\n((?: {2}- `.+`\n)+)/gm)].flatMap(
    ([, file, names]) => [...names!.matchAll(/- `(.+)`/g)].map(([, name]) => [file!, name!]),
  );
  expect(tests).not.toEqual([]);
  expect(tests.filter(([file, name]) => !isNamed(read(file!), name!))).toEqual([]);
});

/** Whether the source has the name as a whole string: of a test, or in the table of its cases. */
const isNamed = (source: string, name: string): boolean =>
  ['"', "`"].some((quote) => source.includes(quote + name + quote));
