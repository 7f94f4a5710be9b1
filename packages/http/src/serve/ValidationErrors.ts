/**
 * The errors of a request's values.
 */
import { SchemaIssue } from "effect";

/** The path of a value, `[]` for the whole body, and the end of the message about it. */
export type Problem = readonly [path: ReadonlyArray<string>, problem: string];

/** Everything that is wrong with one request, so that its client learns of every value and not only of the first. */
export class ValidationErrors {
  readonly problems: ReadonlyArray<Problem>;
  constructor(problems: ReadonlyArray<Problem>) {
    this.problems = problems;
  }
}

/** How messages name the value at a path. */
export const toFieldName = ([name = "body"]: ReadonlyArray<string>): string =>
  name
    .replace(/[a-z](?=[A-Z])/g, "$&_")
    .replaceAll("-", "_")
    .toUpperCase();

/** The first problem of each value: of the members of `body`, and of all others. */
export const toProblems = (issue: SchemaIssue.Issue): ReadonlyArray<Problem> => {
  const found = new Map<string | undefined, Problem>();
  for (const { message, path } of format(issue).issues) {
    const [name] = (path![0] === "body" ? path!.slice(1) : path!) as ReadonlyArray<string>;
    const value = name === undefined ? [] : [name];
    if (!found.has(name)) found.set(name, [value, message]);
  }
  return [...found.values()];
};

/** Formats an issue as the name of its problem. */
const format = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) => {
    if (issue._tag === "InvalidType" && issue.ast._tag === "Objects") return "NOT_OBJECT";
    const isAbsent =
      issue._tag === "MissingKey" || (SchemaIssue.hasInput(issue) && issue.input === null);
    return isAbsent ? "NOT_PRESENT" : "NOT_STRING";
  },
  checkHook: ({ filter }) => {
    const { identifier, representation } = (filter.annotations ?? {}) as {
      readonly identifier?: string;
      readonly representation?: { readonly id: string };
    };
    return endings[identifier ?? representation?.id ?? ""];
  },
});

/** The problem that a broken check is, by the check's identifier. */
const endings: Readonly<Record<string, string>> = {
  text: "NOT_STORABLE",
  notBlank: "BLANK",
  printable: "NOT_PRINTABLE",
  digits: "NOT_INTEGER",
  "effect/schema/isInt": "NOT_INTEGER",
  "effect/schema/isMaxCodePoints": "TOO_LONG",
  "effect/schema/isBetween": "OUT_OF_RANGE",
  "effect/schema/isUnique": "REPEATED",
};
