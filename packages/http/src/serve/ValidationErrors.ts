/**
 * Validation errors in a request: the path of each invalid value, and the public message about it.
 */
import { Data, SchemaIssue, type SchemaAST } from "effect";
import type { ValidationMessage } from "../contract/Codes.ts";

/** The path of an invalid value (`[]` for the whole body), and the ending of the message about that value. */
export type Problem = readonly [path: ReadonlyArray<string>, problem: string];

/** All problems in a request, so that the client learns of every invalid value and not just the first. */
export class ValidationFailed extends Data.TaggedError("ValidationFailed")<{
  readonly problems: ReadonlyArray<Problem>;
}> {}

/** Returns the name that messages use for the value at a path. */
export const toFieldName = ([name = "body"]: ReadonlyArray<string>): string =>
  name
    .replace(/[a-z](?=[A-Z])/g, "$&_")
    .replaceAll("-", "_")
    .toUpperCase();

/** Returns the message about a value, `<DTO>_<FIELD>_<PROBLEM>`. `dto` is the endpoint's prefix. */
export const toMessage = (dto: string, [path, problem]: Problem) =>
  `${dto}_${toFieldName(path)}_${problem}` as ValidationMessage;

/** Returns the first problem of each value. A value is a member of `body`, a header or a query parameter. */
export const toProblems = (issue: SchemaIssue.Issue): ReadonlyArray<Problem> => {
  const problems = new Map<string | undefined, Problem>();
  for (const { message, path } of format(issue).issues) {
    const [name] = (path![0] === "body" ? path!.slice(1) : path!) as ReadonlyArray<string>;
    const value = name === undefined ? [] : [name];
    if (!problems.has(name)) problems.set(name, [value, message]);
  }
  return [...problems.values()];
};

/** Formats an issue as the name of its problem. */
const format = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) => {
    if (issue._tag === "InvalidType" && issue.ast._tag === "Objects") return "NOT_OBJECT";
    const isAbsent =
      issue._tag === "MissingKey" || (SchemaIssue.hasInput(issue) && issue.input === null);
    return isAbsent ? "NOT_PRESENT" : "NOT_STRING";
  },
  checkHook: ({ filter }) => problemOf(filter),
});

export const problemOf = ({ annotations }: Pick<SchemaAST.Check<never>, "annotations">) =>
  annotations?.["problem"] as string | undefined;
