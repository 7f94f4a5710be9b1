/**
 * Validation of a request's values (section 7.3).
 */
import { Result, Schema, SchemaIssue } from "effect";
import { validationCodes, type ValidationMessage } from "../contract/Codes.ts";

/** Everything that is wrong with one request, so that its client learns of every value and not only of the first. */
export class ValidationErrors {
  readonly found: Array<{
    readonly code: number;
    readonly message: ValidationMessage;
    readonly path: ReadonlyArray<string>;
  }> = [];
  readonly dto: string;
  /** `dto` starts every message. */
  constructor(dto: string) {
    this.dto = dto;
  }
  /** Adds the problem of a value; the whole body has the path `[]`. */
  add(path: ReadonlyArray<string>, problem: string): this {
    const message = `${this.dto}_${toFieldName(path)}_${problem}` as ValidationMessage;
    this.found.push({ code: validationCodes[message], message, path });
    return this;
  }
}

/** How messages name the value at a path. */
export const toFieldName = ([name = "body"]: ReadonlyArray<string>): string =>
  name
    .replace(/[a-z](?=[A-Z])/g, "$&_")
    .replaceAll("-", "_")
    .toUpperCase();

/** A decoder of values, each at its name. It adds one problem for each value that breaks a rule. */
export const makeDecoder = <A>(schema: Schema.Codec<A, unknown>) => {
  const decode = Schema.decodeUnknownResult(schema, { errors: "all", reportInput: true });
  return (errors: ValidationErrors, values: object): A | undefined => {
    const result = decode(values);
    if (Result.isSuccess(result)) return result.success;
    const seen = new Set<PropertyKey>();
    for (const { message, path } of format(result.failure.issue).issues) {
      const name = String(path![0]);
      if (!seen.has(name)) errors.add([name], message);
      seen.add(name);
    }
    return undefined;
  };
};

/** Formats an issue as the name of its problem. */
const format = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) => {
    const isAbsent =
      issue._tag === "MissingKey" || (SchemaIssue.hasInput(issue) && issue.input === null);
    return isAbsent ? "NOT_PRESENT" : "NOT_STRING";
  },
  checkHook: ({ filter }) => {
    const { identifier, representation } = (filter.annotations ?? {}) as {
      readonly identifier?: string;
      readonly representation?: { readonly id: string };
    };
    return problems[identifier ?? representation?.id ?? ""];
  },
});

/** The problem that a broken check is, by the check's identifier. */
const problems: Readonly<Record<string, string>> = {
  text: "NOT_STORABLE",
  notBlank: "BLANK",
  printable: "NOT_PRINTABLE",
  digits: "NOT_INTEGER",
  "effect/schema/isInt": "NOT_INTEGER",
  "effect/schema/isMaxCodePoints": "TOO_LONG",
  "effect/schema/isBetween": "OUT_OF_RANGE",
  "effect/schema/isUnique": "REPEATED",
};
