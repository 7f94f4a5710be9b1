/**
 * What is wrong with a value that somebody wrote, for people.
 */
import { SchemaIssue, type Schema } from "effect";

const format = SchemaIssue.makeFormatterStandardSchemaV1();

/** On one line, each problem after the path of its field. The values are not told. */
export const problemsOf = ({ issue }: Schema.SchemaError): string =>
  format(issue)
    .issues.map(({ message, path = [] }) => {
      const field = path.map((part) => String(typeof part === "object" ? part.key : part));
      return field.length === 0 ? message : `${field.join(".")}: ${message}`;
    })
    .join("; ");
