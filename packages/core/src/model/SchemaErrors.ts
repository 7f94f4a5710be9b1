/**
 * Messages for a value that breaks the rules of its schema. They name the field and never quote the value.
 */
import { SchemaIssue, type Schema } from "effect";

const format = SchemaIssue.makeFormatterStandardSchemaV1();

/** The problems of a value. `field` is the path of the field, joined by dots; empty for the value itself. */
export const listSchemaErrors = ({ issue }: Schema.SchemaError) =>
  format(issue).issues.map(({ message, path = [] }) => ({
    field: path.map((part) => String(typeof part === "object" ? part.key : part)).join("."),
    message,
  }));

/** All problems on one line, each after the path of its field. */
export const describeSchemaError = (error: Schema.SchemaError): string =>
  listSchemaErrors(error)
    .map(({ field, message }) => (field === "" ? message : `${field}: ${message}`))
    .join("; ");
