/**
 * The queries of the two lists (sections 4.3 and 4.4).
 */
import type { ChatField, EntryField, OrderBy } from "@parley/core";
import { Effect, type Schema } from "effect";
import { ChatsQuery, HistoryQuery } from "../contract/Values.ts";
import { makeDecoder, ValidationErrors } from "./ValidationErrors.ts";

const arrays = ["orderBy", "desc"];

/**
 * The values of each parameter in a request's target. `name[]` and `name[0]` are spellings of an array's `name`;
 * indexed values follow the others, in the order of their index.
 */
const parseQuery = (target: string): ReadonlyMap<string, ReadonlyArray<string>> => {
  const start = target.indexOf("?");
  const pairs = start === -1 ? [] : target.slice(start + 1).split("&");
  const parameters = pairs.map((pair) => {
    const [, name = "", value = ""] = /^([^=]*)=?(.*)$/s.exec(pair)!;
    const parameter = { name: decodeText(name), index: -1, value: decodeText(value) };
    const [, array, index] = /^(.*)\[(\d{0,6})\]$/s.exec(parameter.name) ?? [];
    if (array === undefined || !arrays.includes(array)) return parameter;
    return { ...parameter, name: array, index: index === "" ? -1 : Number(index) };
  });
  const values = new Map<string, Array<string>>();
  for (const { name, value } of parameters.toSorted((a, b) => a.index - b.index)) {
    const known = values.get(name);
    if (known === undefined) values.set(name, [value]);
    else known.push(value);
  }
  return values;
};

const decodeText = (text: string): string => {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    // No percent-encoded UTF-8: every rule refuses NUL.
    return "\0";
  }
};

/** A decoder of the query in a request's target; an absent parameter is absent in its result. */
const makeQueryDecoder = <
  Field extends string,
  Values extends {
    readonly orderBy?: ReadonlyArray<Field>;
    readonly desc?: ReadonlyArray<"true" | "false">;
  },
>(
  dto: string,
  schema: Schema.Codec<Values, unknown> & { readonly fields: object },
) => {
  const decode = makeDecoder(schema);
  return (target: string) => {
    const errors = new ValidationErrors(dto);
    const parameters = parseQuery(target);
    const input: Record<string, unknown> = {};
    for (const name of Object.keys(schema.fields)) {
      const values = parameters.get(name);
      if (values === undefined) continue;
      if (arrays.includes(name)) input[name] = values;
      else if (values.length === 1) input[name] = values[0];
      else errors.add([name], "REPEATED");
    }
    const decoded = decode(errors, input);
    const directions = parameters.get("desc")?.length;
    if (directions !== undefined && directions !== (parameters.get("orderBy")?.length ?? 1)) {
      errors.add(["desc"], "NOT_ONE_PER_FIELD");
    }
    if (decoded === undefined || errors.found.length > 0) return Effect.fail(errors);
    const { desc, orderBy = desc && ["id" as Field], ...values } = decoded;
    const [first, ...rest] = (orderBy ?? []).map((field, at): OrderBy<Field> => ({
      field,
      descending: desc?.[at] === "true",
    }));
    return Effect.succeed({ ...values, ...(first && { orderBy: [first, ...rest] as const }) });
  };
};

export const decodeChatsQuery = makeQueryDecoder<ChatField, typeof ChatsQuery.Type>(
  "CHATS_DTO",
  ChatsQuery,
);
export const decodeHistoryQuery = makeQueryDecoder<EntryField, typeof HistoryQuery.Type>(
  "HISTORY_DTO",
  HistoryQuery,
);
