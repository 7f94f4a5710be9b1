/**
 * Decoding the values of a request, field by field, so that a client is told of every one that
 * breaks a rule and not only of the first.
 */
import { Result, Schema, type SchemaIssue } from "effect";
import type { ValidationMessage } from "../contract/Codes.ts";
import type { Problem } from "./ErrorResponses.ts";

/** Collects what is wrong with one request; `dto` starts every message. */
export class Problems {
  readonly found: Array<Problem> = [];
  readonly dto: string;
  constructor(dto: string) {
    this.dto = dto;
  }
  add(path: ReadonlyArray<string>, problem: string): void {
    const field = (path[0] ?? "body").replace(/[a-z](?=[A-Z])/g, "$&_").replaceAll("-", "_");
    const message = `${this.dto}_${field}_${problem}`.toUpperCase() as ValidationMessage;
    this.found.push({ message, path });
  }
}

/** A decoder of one field, which tells the problem's name in place of the value it cannot give. */
export const field = <A>(schema: Schema.Codec<A, unknown>, notOfType: string) => {
  const decode = Schema.decodeUnknownResult(schema);
  return (problems: Problems, path: ReadonlyArray<string>, value: unknown): A | undefined => {
    const result = decode(value);
    if (Result.isSuccess(result)) return result.success;
    problems.add(path, problemOf(result.failure.issue) ?? notOfType);
    return undefined;
  };
};

const problemNames: Readonly<Record<string, string>> = {
  text: "NOT_STORABLE",
  notBlank: "BLANK",
  printable: "NOT_PRINTABLE",
  "effect/schema/isMaxCodePoints": "TOO_LONG",
  "effect/schema/isBetween": "OUT_OF_RANGE",
};

/** The name of the first check that failed; `undefined` when the value is of another type. */
const problemOf = (issue: SchemaIssue.Issue): string | undefined => {
  switch (issue._tag) {
    case "Filter": {
      const { identifier, representation } = (issue.filter.annotations ?? {}) as {
        readonly identifier?: string;
        readonly representation?: { readonly id: string };
      };
      return problemNames[identifier ?? representation?.id ?? ""];
    }
    case "Encoding":
    case "Pointer":
      return problemOf(issue.issue);
    case "Composite":
    case "AnyOf":
      return issue.issues.map(problemOf).find((name) => name !== undefined);
    default:
      return undefined;
  }
};
