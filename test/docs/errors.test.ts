import * as errors from "@parley/core/promise";
import { generalCodes, validationCodes } from "@parley/http/contract";
import { Cause } from "effect";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { toErrorResponse } from "../../packages/http/src/serve/ErrorResponses.ts";
import { read, root, sectionOf, table } from "./Fences.ts";

const endpoints: Readonly<Record<string, string>> = {
  "4221": "Create a chat",
  "4222": "Ask",
  "4223": "List chats",
  "4224": "Read a chat's history",
  "4225": "Rename a chat",
  "4226": "Rate an entry",
  "4227": "Post an entry",
  "4228": "Stop an ask",
};

const notStorableInQuery =
  "The text contains NUL or a lone surrogate, or is not percent-encoded UTF-8.";

/** What each ending of a message means. */
const problems: ReadonlyArray<readonly [ending: string, means: string]> = [
  ["BODY_NOT_OBJECT", "The body is not a JSON object."],
  ["NOT_PRESENT", "The value is missing, or `null`."],
  ["NOT_STRING", "The value is not a string."],
  ["NOT_INTEGER", "The value is not an integer up to 2^53 − 1."],
  ["NOT_BOOLEAN", "A value is neither `true` nor `false`."],
  ["INCLUDE_NOT_A_FIELD", "A word is none that the returned rows know."],
  ["NOT_A_FIELD", "A name is not one of the returned fields."],
  ["NOT_ONE_PER_FIELD", "The number of values differs from the number of fields in `orderBy`."],
  ["NOT_CANCEL_OR_FINISH", "The header is neither `cancel` nor `finish`."],
  ["NOT_GOOD_OR_BAD", "The value is neither `good` nor `bad` nor `null`."],
  ["AUTHOR_INVALID", "The `author` is not a string of at most 60 characters, without NUL."],
  ["METADATA_NOT_OBJECT", "The value is not a JSON object."],
  ["METADATA_TOO_LARGE", "The object is larger than 16 KiB."],
  [
    "METADATA_NOT_STORABLE",
    "A string or key contains NUL or a lone surrogate, a number is too large, or the object has more than 100 levels.",
  ],
  ["NOT_PRINTABLE", "The header is not 1 to 255 printable ASCII characters."],
  ["CHATS_DTO_SEARCH_NOT_STORABLE", notStorableInQuery],
  ["CHATS_DTO_USER_REF_NOT_STORABLE", notStorableInQuery],
  ["NOT_STORABLE", "The text contains NUL or a lone surrogate."],
  ["IDEMPOTENCY_KEY_REUSED", "The key was used for another request."],
  ["ORDER_BY_REPEATED", "A field occurs twice."],
  ["REPEATED", "The parameter occurs more than once."],
  ["OUT_OF_RANGE", "The number is too small or too large."],
  ["TOO_LONG", "The text has too many characters."],
  ["BLANK", "The text is empty or only white space."],
];

const meaningOf = (message: string): string => {
  const problem = problems.find(([ending]) => message.endsWith(ending));
  if (problem === undefined) throw new Error(`${message} has no meaning in the documentation`);
  return problem[1];
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

Every code that a client can receive. A code keeps its meaning and is never reused.
[The interface](interface.md#failures) describes the shapes of the responses.

## General exceptions

\`INVALID_PATH\` has the endpoint-not-found shape, with \`method\` and \`path\`.

${table(["status", "code", "message", "meaning"], general)}

## Validation errors

The status is 422. \`path\` names the offending field.

${validation.join("\n")}`;

it("docs/errors.md matches the table of codes (UPDATE_DOCS=1 writes it)", () => {
  if (process.env["UPDATE_DOCS"] === "1") writeFileSync(join(root, "docs/errors.md"), page);
  expect(read("docs/errors.md")).toBe(page);
});

it("docs/errors.md shows every code, and no two errors have the same", () => {
  const codes = [
    ...Object.entries(generalCodes).map(([message, { code }]) => [message, code] as const),
    ...Object.entries(validationCodes),
  ];
  for (const [message, code] of codes)
    expect(page).toMatch(new RegExp(`\\| ${code} +\\| \`${message}\` `));
  expect(new Set(codes.map(([, code]) => code)).size).toBe(codes.length);
});

it("docs/library/embedding.md gives each error the status that it has over HTTP", () => {
  const rows = sectionOf(read("docs/library/embedding.md"), "## Errors").matchAll(
    /^\| `(\w+)` +\| (\d+) /gm,
  );
  const documented = Object.fromEntries(
    [...rows].map(([, name, status]) => [name, Number(status)]),
  );
  const statuses = Object.keys(documented).map((name) => {
    const error = new (errors as unknown as Record<string, new (fields: object) => never>)[name]!(
      {},
    );
    return [name, toErrorResponse(Cause.fail(error)).body.status];
  });
  // Over HTTP, a request's values are checked before the core sees them.
  expect({ ...Object.fromEntries(statuses), ArgumentInvalid: 422 }).toEqual(documented);
});
