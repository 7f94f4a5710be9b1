/**
 * How the cost of each list grows with the rows: the same lists over a small and a large chatbot of one
 * database, alternating. Needs BENCH_DATABASE_URL of a database that it may fill and keep.
 *
 *   BENCH_DATABASE_URL=postgres://… npm run lists -- [--small 10000] [--large 10000000] [--runs 500]
 *
 * With --erased 100 one chat in a hundred was erased, all over, before it begins. Every figure is the median of
 * --rounds of so many runs: whatever else the machine does spoils some of them.
 */
import {
  ChatStore,
  newest,
  newestChats,
  type ChatQuery,
  type EntryQuery,
} from "../packages/core/src/index.ts";
import { layerPostgres } from "../packages/store-pg/src/index.ts";
import { fillSchema, filledChatbot } from "../packages/store-pg/test/fill.ts";
import { databaseUrl } from "./DatabaseUrl.ts";
import { Effect, Layer } from "effect";
import { parseArgs } from "node:util";

const { values: options } = parseArgs({
  options: {
    small: { type: "string", default: "10000" },
    large: { type: "string", default: "10000000" },
    runs: { type: "string", default: "500" },
    rounds: { type: "string", default: "7" },
    erased: { type: "string" },
  },
});
const url = databaseUrl();
const runs = Number(options.runs);
const rounds = Number(options.rounds);
const erased = options.erased === undefined ? undefined : Number(options.erased);

type List = readonly [
  name: string,
  read: (store: ChatStore["Service"], chats: number, n: number) => Effect.Effect<unknown, unknown>,
];

const chats = (name: string, query: (chats: number, n: number) => Partial<ChatQuery>): List => [
  name,
  (store, size, n) => store.listChats(filledChatbot, { ...newestChats, ...query(size, n) }),
];
const entries = (name: string, query: (entries: number) => Partial<EntryQuery>): List => [
  name,
  (store, size) =>
    store.listEntries(filledChatbot, 1, { ...newest, ...query(Math.min(size, 1_000_000)) }),
];
const by = (field: "name" | "userRef", descending = false) => ({
  orderBy: [{ field, descending }] as const,
});
/** How many of so many chats are left. */
const left = (size: number) => size - (erased === undefined ? 0 : Math.floor(size / erased));
const oldest = { orderBy: [{ field: "_createTime", descending: false }] } as const;

/** Lists whose p99 is at most one and a half times as high among many. */
const flat: ReadonlyArray<List> = [
  chats("default page", () => ({})),
  chats("middle page", (size) => ({ page: Math.floor(left(size) / 50) })),
  chats("last page", (size) => ({ page: Math.ceil(left(size) / 25) })),
  chats("oldest first, by time", () => oldest),
  chats("oldest first, middle page", (size) => ({ ...oldest, page: Math.floor(left(size) / 50) })),
  // As many different users and ids at both sizes, spread over all: what is read is equally warm.
  chats("one user's page, of 100 users", (size, n) => ({
    userRef: `user ${Math.floor(((n % 100) * size) / 10_000)}`,
  })),
  chats("one id, of 100", (size, n) => ({ id: 1 + Math.floor(((n % 100) * size) / 100) })),
  chats("one user's page, of all users", (size, n) => ({
    userRef: `user ${(n * 7919) % (size / 100)}`,
  })),
  chats("one id, of all", (size, n) => ({ id: 1 + ((n * 7919) % size) })),
  entries("history page", () => ({})),
  entries("history, middle page", (size) => ({ page: Math.floor(size / 50) })),
];
/** Lists that take so many milliseconds at most, at the median. */
const bounded: ReadonlyArray<readonly [List, most: number]> = [
  [chats("by name, first page", () => by("name")), 50],
  [
    chats("by name, 100,000 rows in", (size) => ({
      ...by("name"),
      page: Math.min(size, 100_000) / 25,
    })),
    50,
  ],
  [chats("by userRef, first page", () => by("userRef")), 50],
  [
    chats("by userRef, 100,000 rows in", (size) => ({
      ...by("userRef", true),
      page: Math.min(size, 100_000) / 25,
    })),
    50,
  ],
  ...(["name", "userRef"] as const).map(
    (field) =>
      [
        chats(`by ${field}, anywhere`, (size, n) => ({
          ...by(field),
          page: 1 + ((n * 7919) % (size / 25)),
        })),
        1000,
      ] as const,
  ),
  [chats("search, common word, counted", () => ({ search: "harbour" })), 10],
  [chats("search, rare, counted", () => ({ search: "pebble 77" })), 10],
];
/** Lists that take so many milliseconds at most, the first time. */
const dear: ReadonlyArray<readonly [List, most: number]> = [
  [chats("by name, middle", (size) => ({ ...by("name"), page: Math.floor(size / 50) })), 1000],
  [chats("search, common word, first count", () => ({ search: "antern" })), 2000],
  [chats("search, two characters, first count", () => ({ search: "nt" })), 5000],
  [chats("search, one character, first count", () => ({ search: "e" })), 5000],
  [chats("search, in no index, first count", () => ({ search: "zq" })), 5000],
  [chats("search, among the oldest, page 9", () => ({ search: " 1", page: 9 })), 5000],
  [chats("the same once more", () => ({ search: " 1", page: 9 })), 5000],
  [chats("search, among the newest, oldest first", () => ({ search: " 99", ...oldest })), 2000],
  [chats("search, rare, first count", (_, n) => ({ search: `low 12${n}` })), 2000],
];
/** The p99 of default pages while searches run without end, in milliseconds at most. */
const mostBeside = 10;

const quantile = (sorted: ReadonlyArray<number>, q: number) =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))]!;

const millis = (n: number) => n.toFixed(2).padStart(9);

const measured = Effect.fnUntraced(function* (
  [, read]: List,
  sizes: ReadonlyArray<{ readonly size: number; readonly store: ChatStore["Service"] }>,
  times: number,
  from = 0,
) {
  const taken = sizes.map((): Array<number> => []);
  for (let n = from; n < from + times; n++) {
    for (const [at, { size, store }] of sizes.entries()) {
      const start = performance.now();
      yield* read(store, size, n);
      taken[at]!.push(performance.now() - start);
    }
  }
  return taken.map((one) => one.toSorted((a, b) => a - b));
});

const program = Effect.gen(function* () {
  const sizes = yield* Effect.forEach(
    [Number(options.small), Number(options.large)],
    Effect.fnUntraced(function* (size) {
      const schema = `flat_${size}${erased === undefined ? "" : `_without_${erased}`}`;
      yield* fillSchema({ url, schema, chats: size, entries: Math.min(size, 1_000_000), erased });
      const services = yield* Layer.build(layerPostgres({ url, schema }));
      return { size, store: yield* Effect.provideContext(ChatStore, services) };
    }),
  );
  console.log(`milliseconds; ${sizes.map(({ size }) => size).join(" and ")} chats\n`);
  console.log(`${"".padEnd(38)}      p50      p50      p99      p99   ratio of p99`);
  const missed: Array<string> = [];
  for (const [list, most] of [...flat.map((list) => [list, null] as const), ...bounded]) {
    yield* measured(list, sizes, 20);
    const figures: Array<ReadonlyArray<number>> = [];
    for (let round = 0; round < rounds; round++) {
      const [small, large] = yield* measured(list, sizes, runs, round * runs);
      const [slowSmall, slowLarge] = [quantile(small!, 0.99), quantile(large!, 0.99)];
      figures.push([
        quantile(small!, 0.5),
        quantile(large!, 0.5),
        slowSmall,
        slowLarge,
        slowLarge / slowSmall,
      ]);
    }
    const medians = figures[0]!.map((_, at) =>
      quantile(
        figures.map((round) => round[at]!).toSorted((a, b) => a - b),
        0.5,
      ),
    );
    console.log(list[0].padEnd(38) + medians.map(millis).join(""));
    if (most === null ? medians[4]! > 1.5 : medians[1]! > most) missed.push(list[0]);
  }
  console.log("\nonce each, over the large one");
  for (const [list, most] of dear) {
    const [taken] = yield* measured(list, sizes.slice(1), 1);
    console.log(list[0].padEnd(38) + millis(taken![0]!));
    if (taken![0]! > most) missed.push(list[0]);
  }

  const large = sizes[1]!;
  const pages = Effect.map(measured(flat[0]!, [large], 1000), ([taken]) => quantile(taken!, 0.99));
  const alone = yield* pages;
  let refused = 0;
  const searching = yield* Effect.forkChild(
    Effect.forEach(
      Array.from({ length: 20 }, (_, n) => n),
      (n) =>
        large.store
          .listChats(filledChatbot, { ...newestChats, search: `${"abcdefghijklmnopqrst"[n]}o` })
          .pipe(
            Effect.catchTag("Overloaded", () => Effect.sync(() => refused++)),
            Effect.forever,
          ),
      { concurrency: 20, discard: true },
    ),
  );
  yield* Effect.sleep("500 millis");
  const beside = yield* pages;
  yield* Effect.sync(() => searching.interruptUnsafe());
  console.log(
    `\np99 of default pages: ${millis(alone)} alone, ${millis(beside)} beside 20 searches (${refused} refused)`,
  );
  if (beside > mostBeside) missed.push("default pages beside 20 searches");
  console.log(missed.length === 0 ? "\nno target missed" : `\nmissed: ${missed.join("; ")}`);
  process.exitCode = missed.length === 0 ? 0 : 1;
});

await Effect.runPromise(Effect.scoped(program));
