/**
 * Error messages for values that do not match their schema. They name the field and never quote the value.
 */
import { Effect, Result, Schema, SchemaIssue } from "effect";
import { ArgumentInvalid } from "./Errors.ts";

const format = SchemaIssue.makeFormatterStandardSchemaV1();

interface Problem {
  readonly field: string;
  readonly message: string;
}

/** Lists the problems with a value. `field` is the dot-separated path of the field, empty for the value itself. */
export const listSchemaErrors = ({ issue }: Schema.SchemaError): ReadonlyArray<Problem> =>
  format(issue).issues.map(({ message, path = [] }) => ({
    field: path.map((part) => String(typeof part === "object" ? part.key : part)).join("."),
    message,
  }));

/** Describes all problems on one line, each preceded by the path of its field. */
export const describeSchemaError = (error: Schema.SchemaError): string =>
  listSchemaErrors(error)
    .map(({ field, message }) => (field === "" ? message : `${field}: ${message}`))
    .join("; ");

/** Makes a check that fails with `ArgumentInvalid` if an argument is invalid or unknown. */
export const makeCheck = <Rules extends Schema.Top>(rules: Rules) => {
  const decode = Schema.decodeUnknownResult(
    Schema.toType(rules as Schema.Top) as Schema.Decoder<Rules["Type"]>,
    { onExcessProperty: "error", errors: "all" },
  );
  return (values: Rules["Type"]): Effect.Effect<void, ArgumentInvalid> => {
    const result = decode(values);
    if (Result.isSuccess(result)) return Effect.void;
    const [{ field, message: reason }] = listSchemaErrors(result.failure) as [Problem];
    return Effect.fail(
      new ArgumentInvalid({ field, reason, message: `${describeSchemaError(result.failure)}.` }),
    );
  };
};
