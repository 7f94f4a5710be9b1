/**
 * What is wrong with a value that somebody wrote, for people.
 */
import { SchemaIssue, type Schema } from "effect";

const format = SchemaIssue.makeFormatterStandardSchemaV1();

/** What is wrong with a field; with the whole where `field` is "". */
export interface Problem {
  /** Its path, joined by dots. */
  readonly field: string;
  /** Does not tell the value. */
  readonly message: string;
}

export const listProblems = ({ issue }: Schema.SchemaError): ReadonlyArray<Problem> =>
  format(issue).issues.map(({ message, path = [] }) => ({
    field: path.map((part) => String(typeof part === "object" ? part.key : part)).join("."),
    message,
  }));

/** On one line, each problem after the path of its field. The values are not told. */
export const problemsOf = (error: Schema.SchemaError): string =>
  listProblems(error)
    .map(({ field, message }) => (field === "" ? message : `${field}: ${message}`))
    .join("; ");
