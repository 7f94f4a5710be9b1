/**
 * The query parameters of the two lists (sections 4.3 and 4.4).
 */
import {
  chatFields,
  entryFields,
  Limit,
  newest,
  PageNumber,
  Text,
  type ChatQuery,
  type EntryQuery,
  type ListQuery,
  type OrderBy,
} from "@parley/core";
import { Schema, SchemaTransformation } from "effect";
import { readQuery, type Query } from "./QueryString.ts";
import { field, Problems } from "./ValidationErrors.ts";

const digits = Schema.String.check(
  Schema.isPattern(/^[0-9]+$/),
  Schema.makeFilter((text: string) => Number.isSafeInteger(Number(text)), { identifier: "safe" }),
);

const fromDigits = <S extends Schema.Codec<number, number>>(number: S) =>
  digits.pipe(
    Schema.decodeTo(
      number,
      SchemaTransformation.transform<number, string>({ decode: Number, encode: String }),
    ),
  );

const LimitText = fromDigits(Limit);
const PageNumberText = fromDigits(PageNumber);
const IdText = fromDigits(Schema.Int);

const order = <const Fields extends ReadonlyArray<string>>(fields: Fields) => ({
  orderBy: Schema.optionalKey(Schema.Array(Schema.Literals(fields))),
  desc: Schema.optionalKey(Schema.Array(Schema.Literals(["true", "false"]))),
});

/** As declared to clients. */
export const chatsQuery = {
  search: Schema.optionalKey(Text),
  userRef: Schema.optionalKey(Text),
  limit: Schema.optionalKey(LimitText),
  page: Schema.optionalKey(PageNumberText),
  ...order(chatFields),
  id: Schema.optionalKey(IdText),
};

/** As declared to clients. */
export const historyQuery = {
  limit: Schema.optionalKey(LimitText),
  page: Schema.optionalKey(PageNumberText),
  ...order(entryFields),
  id: Schema.optionalKey(IdText),
};

const text = field(Text, "NOT_STORABLE");
const limit = field(LimitText, "NOT_INTEGER");
const page = field(PageNumberText, "NOT_INTEGER");
const id = field(IdText, "NOT_INTEGER");

const single = <A>(
  problems: Problems,
  query: Query,
  name: string,
  decode: (problems: Problems, path: ReadonlyArray<string>, value: unknown) => A | undefined,
): A | undefined => {
  const values = query.get(name);
  if (values === undefined) return undefined;
  if (values.length === 1) return decode(problems, [name], values[0]);
  problems.add([name], "REPEATED");
  return undefined;
};

const orderOf = <Field extends string>(
  problems: Problems,
  query: Query,
  fields: ReadonlyArray<Field>,
): ListQuery<Field>["orderBy"] => {
  const names = query.get("orderBy");
  const directions = query.get("desc");
  const defaultOrder = newest.orderBy as unknown as ListQuery<Field>["orderBy"];
  if (names === undefined && directions === undefined) return defaultOrder;
  if (directions?.some((value) => value !== "true" && value !== "false")) {
    problems.add(["desc"], "NOT_BOOLEAN");
  }
  if (names?.some((name) => !fields.includes(name as Field))) {
    problems.add(["orderBy"], "NOT_A_FIELD");
  } else if (names !== undefined && new Set(names).size < names.length) {
    problems.add(["orderBy"], "REPEATED");
  }
  const by = names ?? ["id"];
  if (directions !== undefined && directions.length !== by.length) {
    problems.add(["desc"], "NOT_ONE_PER_FIELD");
  }
  const [first, ...rest] = by.map((name, at): OrderBy<Field> => ({
    field: name as Field,
    descending: directions?.[at] === "true",
  }));
  return first === undefined ? defaultOrder : [first, ...rest];
};

const arrays = ["orderBy", "desc"];

const listOf = <Field extends string>(
  problems: Problems,
  query: Query,
  fields: ReadonlyArray<Field>,
): ListQuery<Field> => ({
  limit: single(problems, query, "limit", limit) ?? newest.limit,
  page: single(problems, query, "page", page) ?? newest.page,
  orderBy: orderOf(problems, query, fields),
  id: single(problems, query, "id", id) ?? null,
});

/** The page of chats that a request's target asks for. */
export const readChatQuery = (problems: Problems, url: string): ChatQuery => {
  const query = readQuery(url, arrays);
  return {
    ...listOf(problems, query, chatFields),
    search: single(problems, query, "search", text) || null,
    userRef: single(problems, query, "userRef", text) ?? null,
  };
};

/** The page of entries that a request's target asks for. */
export const readEntryQuery = (problems: Problems, url: string): EntryQuery =>
  listOf(problems, readQuery(url, arrays), entryFields);
