import { generalCodes, validationCodes } from "@parley/http";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { read, root } from "./Fences.ts";

/** A table as the formatter leaves it: columns of equal width. */
const table = (head: ReadonlyArray<string>, rows: ReadonlyArray<ReadonlyArray<string>>): string => {
  const widths = head.map((name, at) =>
    Math.max(name.length, ...rows.map((row) => row[at]!.length)),
  );
  const line = (cells: ReadonlyArray<string>) =>
    `| ${cells.map((cell, at) => cell.padEnd(widths[at]!)).join(" | ")} |`;
  return [line(head), line(widths.map((width) => "-".repeat(width))), ...rows.map(line)].join("\n");
};

const endpoints: Readonly<Record<string, string>> = {
  "4221": "Create a chat",
  "4222": "Ask",
  "4223": "List chats",
  "4224": "Read a chat's history",
};

/** What the last words of a message say. */
const problems: ReadonlyArray<readonly [ending: string, means: string]> = [
  ["BODY_NOT_OBJECT", "The body is JSON, but no object."],
  ["NOT_PRESENT", "The value is missing, or `null`."],
  ["NOT_STRING", "The value is no string."],
  ["NOT_INTEGER", "The value is no integer, or is above 2^53 − 1."],
  ["NOT_BOOLEAN", "A value is neither `true` nor `false`."],
  ["NOT_A_FIELD", "A name is none of the returned fields."],
  ["NOT_ONE_PER_FIELD", "There are not as many values as fields in `orderBy`."],
  ["NOT_CANCEL_OR_FINISH", "The header is neither `cancel` nor `finish`."],
  ["NOT_PRINTABLE", "The header is not 1 to 255 printable ASCII characters."],
  [
    "NOT_STORABLE",
    "The text holds NUL or half of a surrogate pair, or is no percent-encoded UTF-8.",
  ],
  ["IDEMPOTENCY_KEY_REUSED", "The key was used for another request."],
  ["ORDER_BY_REPEATED", "A field is named twice."],
  ["REPEATED", "The parameter is given more than once."],
  ["OUT_OF_RANGE", "The number is too small or too large."],
  ["TOO_LONG", "The text has too many characters."],
  ["BLANK", "The text is empty or white space alone."],
];

const meaningOf = (message: string): string => {
  const found = problems.find(([ending]) => message.endsWith(ending));
  if (found === undefined) throw new Error(`What ${message} means is not told`);
  return found[1];
};

const general = Object.entries(generalCodes)
  .toSorted(([, a], [, b]) => a.status - b.status || a.code - b.code)
  .map(([message, { code, means, status }]) => [`${status}`, `${code}`, `\`${message}\``, means]);

const validation = Object.entries(endpoints).map(([prefix, endpoint]) => {
  const rows = Object.entries(validationCodes)
    .filter(([, code]) => String(code).startsWith(prefix))
    .map(([message, code]) => [`${code}`, `\`${message}\``, meaningOf(message)]);
  return `### ${endpoint}\n\n${table(["code", "message", "meaning"], rows)}\n`;
});

const page = `# Errors

Every code that a client can meet. A number keeps its meaning for ever, and is never used for another. The
shapes of the responses are in [the interface](interface.md#failures).

## General exceptions

\`INVALID_PATH\` comes in the endpoint-not-found shape, with \`method\` and \`path\`.

${table(["status", "code", "message", "meaning"], general)}

## Validation errors

The status is 422; \`path\` names the value.

${validation.join("\n")}`;

it("docs/errors.md is what the table of codes says (UPDATE_DOCS=1 writes it)", () => {
  if (process.env["UPDATE_DOCS"] === "1") writeFileSync(join(root, "docs/errors.md"), page);
  expect(read("docs/errors.md")).toBe(page);
});

it("shows every code", () => {
  for (const [message, code] of [
    ...Object.entries(generalCodes).map(([message, { code }]) => [message, code] as const),
    ...Object.entries(validationCodes),
  ]) {
    expect(page).toMatch(new RegExp(`\\| ${code} +\\| \`${message}\` `));
  }
});

it("uses each number once", () => {
  const codes = [
    ...Object.values(generalCodes).map(({ code }) => code),
    ...Object.values(validationCodes),
  ];
  expect(new Set(codes).size).toBe(codes.length);
});
