/**
 * Checks the options of constructors and calls, so that a misspelt option fails at once instead of being ignored.
 */
import { ArgumentInvalid } from "./Errors.ts";

/** Returns the fields that are not `undefined`, or no fields if `fields` itself is `undefined`. */
export const withoutUndefined = <A extends object>(
  fields: A | undefined,
): { readonly [Name in keyof A]: Exclude<A[Name], undefined> } =>
  Object.fromEntries(
    Object.entries(fields ?? {}).filter(([, value]) => value !== undefined),
  ) as never;

/** Every option of `A`, and whether it is required. */
type Known<A> = {
  readonly [Name in keyof A]-?: undefined extends A[Name] ? false : true;
};

/**
 * Returns the options that are not `undefined`. Throws `ArgumentInvalid`, which names the call and its options, if
 * `options` is not an object, an option is unknown, or a required one is missing.
 */
export const optionsOf = <A extends object>(
  call: string,
  options: A | undefined,
  known: Known<A>,
): { readonly [Name in keyof A]: Exclude<A[Name], undefined> } => {
  const names = Object.keys(known);
  const all = names.length === 0 ? "no options" : `the options ${names.join(", ")}`;
  const refuse = (field: string, reason: string) =>
    new ArgumentInvalid({ field, reason, message: `${call}: ${`${field} ${reason}`.trim()}.` });
  if (options !== undefined && (typeof options !== "object" || Array.isArray(options) || !options))
    throw refuse("", `expects an object with ${all}`);
  const ownOptions = withoutUndefined(options);
  const unknown = Object.keys(ownOptions).find((name) => !Object.hasOwn(known, name));
  if (unknown !== undefined) throw refuse(unknown, `is unknown; ${call} has ${all}`);
  const missing = names.find((name) => known[name as keyof A] && !Object.hasOwn(ownOptions, name));
  if (missing !== undefined) throw refuse(missing, `is missing; ${call} has ${all}`);
  return ownOptions;
};

/** Returns the text. Throws `ArgumentInvalid` if it is not a string or is empty; `what` says what the call expects. */
export const textOf = (call: string, text: string, what: string): string => {
  if (typeof text === "string" && text !== "") return text;
  const reason = `expects ${what}`;
  throw new ArgumentInvalid({ field: "", reason, message: `${call}: ${reason}.` });
};
