/**
 * Decoded queries for lists of chats and entries.
 */
import { Schema } from "effect";
import { Text } from "./Text.ts";

/** The fields by which chats can be sorted. */
export const chatFields = ["id", "name", "userRef", "createTime", "lastEntryTime"] as const;
export type ChatField = (typeof chatFields)[number];

/** The fields by which entries can be sorted. */
export const entryFields = [
  "id",
  "chatId",
  "question",
  "answer",
  "moderation",
  "flagged",
  "createTime",
] as const;
export type EntryField = (typeof entryFields)[number];

/** What a list of chats adds to each chat on request: `lastEntryTime` and `entries`. */
export const chatIncludes = ["activity"] as const;

/** What a list of entries adds to each entry on request: `metadata`; `rating` and `comment`. */
export const entryIncludes = ["metadata", "feedback"] as const;
export type EntryInclude = (typeof entryIncludes)[number];

/** A field to sort by. */
export interface OrderBy<Field extends string> {
  readonly field: Field;
  readonly descending: boolean;
}

/**
 * A query for a page of a list. In ascending order, text is sorted by code point (`compareText`), `false` precedes
 * `true`, and absent values come last; descending order is the reverse. Rows that tie on every field of `orderBy` are
 * sorted by `id`, in the direction of the last field.
 */
export interface ListQuery<Field extends string> {
  /** Rows per page, 1 to 100. */
  readonly limit: number;
  /** The page number, starting at 1. */
  readonly page: number;
  /** At least one field, without duplicates. */
  readonly orderBy: readonly [OrderBy<Field>, ...Array<OrderBy<Field>>];
  /** Selects only the row with this id; `null` for all rows. */
  readonly id: number | null;
}

const from1to = (maximum: number) =>
  Schema.Number.check(
    Schema.isInt({ problem: "NOT_INTEGER" }),
    Schema.isBetween({ minimum: 1, maximum }, { problem: "OUT_OF_RANGE" }),
  );

/** Rows per page, 1 to 100. */
export const Limit = from1to(100);

/** A page number, starting at 1. */
export const PageNumber = from1to(Number.MAX_SAFE_INTEGER);

const rules = <const Fields extends ReadonlyArray<string>>(fields: Fields) => ({
  limit: Limit,
  page: PageNumber,
  orderBy: Schema.NonEmptyArray(
    Schema.Struct({ field: Schema.Literals(fields), descending: Schema.Boolean }),
  ).check(
    Schema.makeFilter(
      (order) =>
        new Set(order.map(({ field }) => field)).size === order.length || "repeats a field",
    ),
  ),
  id: Schema.NullOr(Schema.Int),
});

/** A query for a page of a chatbot's chats. The schema validates values from outside. */
export const ChatQuery = Schema.Struct({
  ...rules(chatFields),
  /** Only chats whose name literally contains this string, both folded by {@link fold}; `null` or `""` for all. */
  search: Schema.NullOr(Text),
  /** Only chats with exactly this `userRef`; `null` for all. */
  userRef: Schema.NullOr(Text),
  include: Schema.Array(Schema.Literals(chatIncludes)),
});
export interface ChatQuery extends Schema.Schema.Type<typeof ChatQuery> {}

/** A query for a page of a chat's entries. The schema validates values from outside. */
export const EntryQuery = Schema.Struct({
  ...rules(entryFields),
  /** Only entries with greater ids; `null` for all. */
  after: Schema.NullOr(Schema.Int),
  include: Schema.Array(Schema.Literals(entryIncludes)),
});
export interface EntryQuery extends Schema.Schema.Type<typeof EntryQuery> {}

/** A page of rows, and the total number of rows that match the filters, both from one snapshot. */
export interface Page<A> {
  readonly items: ReadonlyArray<A>;
  readonly total: number;
}

const newest = {
  limit: 25,
  page: 1,
  orderBy: [{ field: "id", descending: true }],
  id: null,
  include: [],
} as const satisfies ListQuery<"id"> & { readonly include: readonly [] };

/** The default query for entries: the newest 25. */
export const defaultEntryQuery: EntryQuery = { ...newest, after: null };

/** The default query for chats: the newest 25. */
export const defaultChatQuery: ChatQuery = { ...newest, search: null, userRef: null };
