/**
 * Lists that accept the same queries and have the same shape as those of `@parley/client`.
 */
import { Effect } from "effect";
import { ArgumentInvalid } from "../model/Errors.ts";
import type { Page } from "../model/ListQuery.ts";
import type * as api from "./Interface.ts";

/** Creates the list for a query; `read` reads one page of the list. */
export const makeList = <A, Query>(
  { desc, limit = 25, orderBy, page: first = 1, ...filters }: api.ListQuery<string>,
  read: (query: Query) => Effect.Effect<Page<A>, unknown>,
  run: <B>(effect: Effect.Effect<B, unknown>) => Promise<B>,
): api.List<A> => {
  const fields = [orderBy ?? "id"].flat();
  const directions = [desc ?? fields.map(() => orderBy === undefined)].flat();
  const order = fields.map((field, index) => ({ field, descending: directions[index] }));
  const readPage = async (page: number): Promise<api.Page<A>> => {
    const query = { id: null, ...withoutUndefined(filters), limit, page, orderBy: order } as Query;
    const { items, total } = await run(
      directions.length === fields.length ? read(query) : Effect.fail(wrongDirections),
    );
    return { data: items, total, page };
  };
  async function* pages() {
    for (let number = first; ; number++) {
      const page = await readPage(number);
      yield page;
      if (number * limit >= page.total) return;
    }
  }
  return {
    page: () => readPage(first),
    pages,
    async *[Symbol.asyncIterator]() {
      for await (const { data } of pages()) yield* data;
    },
  };
};

const reason = "needs one value for each field in orderBy";
const wrongDirections = new ArgumentInvalid({ field: "desc", reason, message: `desc: ${reason}.` });

/** Returns the fields that are not `undefined`, or no fields if `fields` itself is `undefined`. */
export const withoutUndefined = <A extends object>(
  fields: A,
): { readonly [Name in keyof A]: Exclude<A[Name], undefined> } =>
  Object.fromEntries(
    Object.entries(fields ?? {}).filter(([, value]) => value !== undefined),
  ) as never;
