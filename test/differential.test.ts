/**
 * The memory store, PostgreSQL and SQLite give the same answers to random commands, ids and times aside. fast-check
 * shrinks a failing run to a few commands.
 *
 * `PARLEY_RANDOM_REQUESTS` sets roughly how many commands run, and `PARLEY_RANDOM_SEED` which; test:system runs about
 * 10,000.
 */
import { ChatbotId, ChatId, defaultSettings, plainKey } from "@parley/core";
import {
  ChatArchive,
  ChatbotDirectory,
  ChatbotRegistry,
  ChatStore,
  chatFields,
  entryFields,
  idempotencyKeyLifetime,
  TurnStore,
  type ArchiveRecord,
  type Erasable,
  type ListQuery,
  type IdempotencyKey,
  type Store,
  type Turn,
} from "@parley/core/ports";
import { StoreUnderTest, storeUnderTest, type StoreServices } from "@parley/core/testing";
import { layerMemoryOf, makeMemory } from "@parley/store-memory";
import { sqlite } from "@parley/store-sqlite";
import { Context, Effect, Layer, Result, Scope, Stream } from "effect";
import { TestClock } from "effect/testing";
import fc from "fast-check";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { layerPostgresUnderTest } from "../packages/store-pg/test/PostgresUnderTest.ts";

const count = Number(process.env["PARLEY_RANDOM_REQUESTS"] ?? 2_000);
const seed = Number(process.env["PARLEY_RANDOM_SEED"] ?? Date.now() % 2 ** 31);
const longest = 80;

// Commands. Their numbers name keys, and select among the existing rows, turns and chatbots.

const texts = [
  "",
  "a",
  "A",
  "a ",
  "ab",
  "Äb",
  "äB",
  "%",
  "_",
  "\\",
  "ß",
  "SS",
  "Σς",
  "\uffee",
  "😀",
];
const text = fc.constantFrom(...texts);
const maybe = <A>(value: fc.Arbitrary<A>) => fc.option(value, { freq: 2 });
const small = fc.nat(9);
const key = fc.nat(3);
const name = fc.constantFrom("a", "b", "A");
const past = [1960, 1965, 1970].map((year) => new Date(Date.UTC(year, 0)));
const future = [2201, 2202].map((year) => new Date(Date.UTC(year, 0)));
const when = maybe(fc.constantFrom(...future));

/** Orders that put `createTime` last, where it sorts as ids would, because times differ between the stores. */
const orderOf = <Field extends string>(fields: ReadonlyArray<Field>) =>
  fc
    .shuffledSubarray(fields.filter((field) => field !== "createTime"))
    .chain((some) =>
      fc.tuple(
        ...[...some, "createTime" as Field].map((field) =>
          fc.record({ field: fc.constant(field), descending: fc.boolean() }),
        ),
      ),
    ) as unknown as fc.Arbitrary<ListQuery<Field>["orderBy"]>;
const chatOrder = orderOf(chatFields);
const entryOrder = orderOf(entryFields);

const page = { limit: fc.integer({ min: 1, max: 7 }), page: fc.integer({ min: 1, max: 4 }) };
const anyOf = <A>(...some: ReadonlyArray<A>) => fc.constantFrom(...some);
const optional = { requiredKeys: [] };

/** A command; `second` tells which instance runs it. */
const on = <Tag extends string, Fields extends object>(
  tag: Tag,
  fields: { readonly [Name in keyof Fields]: fc.Arbitrary<Fields[Name]> },
  weight = 1,
) => ({
  weight,
  arbitrary: fc.record({ ...fields, _tag: fc.constant(tag), second: fc.boolean() }) as fc.Arbitrary<
    Fields & { readonly _tag: Tag; readonly second: boolean }
  >,
});

const command = fc.oneof(
  on("Create", { name: maybe(text), userRef: maybe(text), hello: maybe(text), key: maybe(key) }, 4),
  on("Ask", { chat: maybe(small), key: maybe(key), question: text }, 6),
  on("Take", { chat: maybe(small), key: maybe(key) }, 4),
  on("Append", { turn: small, question: text }, 2),
  on("Renew", { turn: small }),
  on("Release", { turn: small }),
  on("Earlier", { turn: small, entry: small }),
  on(
    "List",
    { ...page, orderBy: chatOrder, id: maybe(small), search: maybe(text), userRef: maybe(text) },
    4,
  ),
  on("History", { ...page, orderBy: entryOrder, chat: small, id: maybe(small) }, 2),
  on("Erase", {
    which: anyOf<Erasable["_tag"]>("Chat", "UserRef", "IdleSince", "All"),
    chat: small,
    userRef: text,
    limit: anyOf(...past, future[0]!),
  }),
  on("Copy", { to: small }),
  on("Import", { times: fc.array(fc.nat(2), { maxLength: 4 }), entries: fc.nat(2) }),
  on("Usage", {}),
  on("Pass", { millis: anyOf(3_500, 11_000, 46_800_000, 90_000_000) }, 2),
  on("Switch", { chatbot: small }, 2),
  on("Register", { workspace: name, name, keys: fc.array(key, { maxLength: 2 }) }),
  on("Change", {
    change: fc.record({ name, workspace: name, description: text, model: maybe(text) }, optional),
  }),
  on("Delete", {}),
  on("AddKey", { key, when }),
  on("ChangeKey", {
    key,
    change: fc.record(
      {
        name: maybe(text),
        expiresAt: when,
        ratePerMinute: maybe(fc.constantFrom(1, 60)),
        tokensPerDay: maybe(fc.constantFrom(1, 1_000)),
        origins: fc.subarray(["https://a.example", "https://b.example"]),
      },
      optional,
    ),
  }),
  on("RevokeKey", { key }),
  on("UseKeys", { keys: fc.array(key, { maxLength: 2 }) }),
  on("OpenKey", { key }),
  on("Registered", {}),
  on("Audit", {}),
);
type Command = typeof command extends fc.Arbitrary<infer A> ? A : never;

// One store, and how it answers a command

const hash = Uint8Array.from({ length: 32 }, (_, n) => n);
const usage = {
  provider: "p",
  model: "m",
  promptTokens: 3,
  completionTokens: 5,
  attempts: 2,
  latencyMillis: 7,
};
const entryOf = (question: string) => ({
  question,
  answer: `Answer to ${question}`,
  moderation: question === "%" ? "hate" : "none",
  flagged: question === "%",
  usage: question === "ß" ? null : usage,
});

/** Starts a run on a store; returns a function that answers a command, with numbers in place of ids. */
const subject = Effect.fnUntraced(function* (run: number) {
  const directory = yield* ChatbotDirectory;
  const under = yield* StoreUnderTest;
  const first = {
    chats: yield* ChatStore,
    turns: yield* TurnStore,
    archive: yield* ChatArchive,
    registry: yield* ChatbotRegistry,
  };
  const nowhere = Number.MAX_SAFE_INTEGER;
  const workspace = (name: string) => `${run} ${name}`;
  const register = (
    registry: typeof first.registry,
    at: string,
    name: string,
    keys: ReadonlyArray<number> = [],
  ) =>
    registry.create(
      {
        workspaceName: workspace(at),
        name,
        description: "",
        settings: defaultSettings,
        keys: keys.map((key) => keyRecord(key, null)),
      },
      "tester",
    );
  const keyId = (key: number) => `${run} key ${key}`;
  const keyRecord = (key: number, expiresAt: Date | null) =>
    ({
      id: keyId(key),
      hash,
      scopes: ["read"],
      ...plainKey,
      // Every other key signs visitors' tokens.
      signingSecret: key % 2 === 0 ? "a".repeat(64) : null,
      expiresAt,
    }) as const;
  const toIdempotencyKey = (key: number | null, request: string): IdempotencyKey | null =>
    key === null ? null : { key: `key ${key}`, fingerprint: request };

  /** Ids in order of first occurrence. `rows` has them by chatbot, because a copy keeps its ids. */
  const chatbots: Array<number> = [];
  const turns: Array<Turn> = [];
  /** The milliseconds that have passed in total, and that had passed when each turn was taken. */
  let elapsed = 0;
  const takenAt = new Map<Turn, number>();
  const rows = new Map<string, Array<number>>();
  const idsOf = (kind: string, chatbot: number) => {
    const name = `${kind} ${chatbot}`;
    if (!rows.has(name)) rows.set(name, []);
    return rows.get(name)!;
  };
  const place = (ids: Array<number>, id: number): string => {
    if (id === nowhere) return "nowhere";
    if (!ids.includes(id)) ids.push(id);
    return `#${ids.indexOf(id)}`;
  };
  const pick = (ids: ReadonlyArray<number>, n: number) =>
    ids.at(-1 - (n % Math.max(1, ids.length))) ?? nowhere;

  chatbots.push((yield* register(first.registry, "a", "a")).id);
  let chatbot = ChatbotId.make(chatbots[0]!);

  /** The value without ids and times. */
  const plain = (value: unknown): unknown => {
    if (value instanceof Uint8Array) return "bytes";
    if (value instanceof Date)
      return future.concat(past).some((date) => +date === +value) ? value : "time";
    if (Array.isArray(value)) return value.map(plain);
    if (typeof value !== "object" || value === null) return value;
    const fields = Object.entries(value).map(([name, item]): readonly [string, unknown] => {
      if (typeof item === "number" && name === "chatId")
        return [name, place(idsOf("chat", chatbot), item)];
      if (typeof item === "number" && name === "chatbot") return [name, place(chatbots, item)];
      if (typeof item === "number" && name === "id") {
        const ids =
          "question" in value
            ? idsOf("entry", chatbot)
            : "userRef" in value
              ? idsOf("chat", chatbot)
              : chatbots;
        return [name, place(ids, item)];
      }
      if (name === "id" && "newest" in value) return [name, "turn"];
      if (name === "turnId" && typeof item === "string") {
        return [name, turns.findIndex(({ id }) => id === item)];
      }
      if (name === "chat" && typeof item === "number")
        return [name, place(idsOf("chat", chatbot), item)];
      if (name === "forMillis") return [name, "some"];
      if (name === "expiresInMillis") return [name, item === null ? null : "some"];
      if (name === "nowMillis") return [name, typeof item];
      if (name === "message") return [name, String(item).replaceAll(/\d+/g, "n")];
      // The detail of erasing a single chat contains its id.
      if (name === "detail") return [name, String(item).replace(/^chat \d+$/, "chat")];
      return [name, plain(item)];
    });
    return Object.fromEntries(fields.toSorted(([a], [b]) => (a < b ? -1 : 1)));
  };

  const answer = (command: Command): Effect.Effect<unknown, unknown> => {
    const { archive, chats, registry, turns: turnStore } = command.second ? under.second : first;
    const chatOf = (n: number) => ChatId.make(pick(idsOf("chat", chatbot), n));
    const entryId = (n: number) => pick(idsOf("entry", chatbot), n);
    const turnOf = (n: number) => turns.at(-1 - (n % Math.max(1, turns.length)));
    const onTurn = (n: number, f: (turn: Turn) => Effect.Effect<unknown, unknown>) => {
      const turn = turnOf(n);
      if (turn?.chatbot !== chatbot) return Effect.succeed("no turn");
      // From a day after the take, a store may forget the key and its turn at any time.
      const isOld =
        turn.idempotencyKey !== null && elapsed - takenAt.get(turn)! >= idempotencyKeyLifetime;
      return isOld ? Effect.succeed("an old turn") : f(turn);
    };
    const take = (chat: ChatId | null, key: IdempotencyKey | null) =>
      Effect.tap(turnStore.take(chatbot, chat, key), (result) =>
        Effect.sync(() => {
          if (result._tag !== "TurnTaken") return;
          turns.push(result.turn);
          takenAt.set(result.turn, elapsed);
        }),
      );
    switch (command._tag) {
      case "Create": {
        const { hello, key, name, userRef } = command;
        const chat = { name, userRef, helloMessage: hello };
        return chats.createChat(chatbot, chat, toIdempotencyKey(key, `create ${name}`));
      }
      case "Take":
      case "Ask": {
        const chat = command.chat === null ? null : chatOf(command.chat);
        const takeTurn = take(chat, toIdempotencyKey(command.key, `ask ${command.chat === null}`));
        if (command._tag === "Take") return takeTurn;
        return Effect.flatMap(takeTurn, (result): Effect.Effect<unknown, unknown> =>
          result._tag === "TurnTaken"
            ? turnStore.append(result.turn, entryOf(command.question))
            : Effect.succeed(result),
        );
      }
      case "Append":
        return onTurn(command.turn, (turn) => turnStore.append(turn, entryOf(command.question)));
      case "Renew":
        return onTurn(command.turn, turnStore.renew);
      case "Release":
        return onTurn(command.turn, turnStore.release);
      case "Earlier":
        return onTurn(command.turn, (turn) => turnStore.earlier(turn, entryId(command.entry)));
      case "List": {
        const { limit, orderBy, page, search, userRef } = command;
        const id = command.id === null ? null : chatOf(command.id);
        return chats.listChats(chatbot, { limit, page, orderBy, id, search, userRef });
      }
      case "History": {
        const { chat, limit, orderBy, page } = command;
        const id = command.id === null ? null : entryId(command.id);
        return chats.listEntries(chatbot, chatOf(chat), { limit, page, orderBy, id });
      }
      case "Erase": {
        const { chat, limit, userRef } = command;
        const which = { _tag: command.which, id: chatOf(chat), limit, userRef } as Erasable;
        return archive.erase(chatbot, which, "tester");
      }
      case "Copy": {
        const to = ChatbotId.make(pick(chatbots, command.to));
        return Effect.gen(function* () {
          const records = yield* Stream.runCollect(archive.export(chatbot, "tester"));
          const copied = yield* archive.import(to, Stream.fromIterable(records), "tester");
          for (const kind of ["chat", "entry"]) {
            if (to !== chatbot) rows.set(`${kind} ${to}`, [...idsOf(kind, chatbot)]);
          }
          return copied;
        });
      }
      case "Import": {
        // An import requires times that ascend with the ids.
        const times = command.times.toSorted();
        const records = times.flatMap((time, n): Array<ArchiveRecord> => {
          const [id, createTime] = [ChatId.make(n + 1), past[time]!];
          const { usage, ...texts } = entryOf("a");
          return [
            { _tag: "Chat", chat: { id, name: texts.question, userRef: null, createTime } },
            ...Array.from({ length: command.entries }, (_, m): ArchiveRecord => ({
              _tag: "Entry",
              entry: { ...texts, id: n * 10 + m + 1, chatId: id, createTime },
              usage,
            })),
          ];
        });
        return Effect.tap(archive.import(chatbot, Stream.fromIterable(records), "tester"), () =>
          Effect.sync(() =>
            plain(records.map((record) => ("chat" in record ? record.chat : record.entry))),
          ),
        );
      }
      case "Usage":
        return Effect.map(archive.usage(chatbot, past[0]!), (sums) =>
          sums.toSorted((a, b) => ((a.model ?? "") < (b.model ?? "") ? -1 : 1)),
        );
      case "Pass":
        elapsed += command.millis;
        return under.pass(command.millis);
      case "Switch":
        chatbot = ChatbotId.make(pick(chatbots, command.chatbot));
        return Effect.void;
      case "Register":
        return register(registry, command.workspace, command.name, command.keys);
      case "Change": {
        const { model, workspace: at, ...change } = command.change;
        return registry.change(
          chatbot,
          {
            ...change,
            ...(at !== undefined && { workspaceName: workspace(at) }),
            ...(model !== undefined && { settings: { model } }),
          },
          "tester",
        );
      }
      case "Delete":
        return registry.delete(chatbot, "tester");
      case "AddKey":
        return registry.addKey(chatbot, keyRecord(command.key, command.when), "tester");
      case "ChangeKey":
        return registry.changeKey(chatbot, keyId(command.key), command.change, "tester");
      case "RevokeKey":
        return registry.revokeKey(chatbot, keyId(command.key), "tester");
      case "UseKeys":
        return directory.recordUse(command.keys.map(keyId));
      case "OpenKey":
        return directory.find(keyId(command.key));
      case "Registered":
        return Effect.map(registry.list, (all) =>
          all
            .filter((entry) => chatbots.includes(entry.chatbot.id))
            .map(({ chatbot, keys }) => [chatbot, keys.toSorted((a, b) => (a.id < b.id ? -1 : 1))]),
        );
      case "Audit":
        return Effect.map(registry.audit(500), (lines) =>
          lines.filter((line) => chatbots.includes(line.chatbot)).slice(0, 20),
        );
    }
  };
  return (command: Command) =>
    Effect.map(Effect.result(answer(command)), (result) =>
      JSON.stringify(
        plain(
          Result.isSuccess(result)
            ? { success: result.success }
            : { failure: { ...(result.failure as object) } },
        ),
      ),
    );
});

// The stores

const folder = mkdtempSync(join(tmpdir(), "parley-differential-"));
const scope = Scope.makeUnsafe();
afterAll(async () => {
  await Effect.runPromise(Scope.close(scope, { _tag: "Success", value: undefined } as never));
  rmSync(folder, { recursive: true });
});
let contexts: ReadonlyArray<Context.Context<StoreServices>> = [];

beforeAll(async () => {
  const build = <A, E>(layer: Layer.Layer<A, E>) =>
    Effect.runPromise(Layer.buildWithScope(layer, scope));
  const onTestClock = (store: Store) =>
    build(storeUnderTest(store).pipe(Layer.provideMerge(TestClock.layer())));
  contexts = [
    await onTestClock(layerMemoryOf(makeMemory())),
    await build(layerPostgresUnderTest() as never),
    await onTestClock(sqlite(join(folder, "chats.db"))),
  ];
  for (const context of [contexts[0], contexts[2]]) {
    await Effect.runPromiseWith(context as Context.Context<never>)(TestClock.setTime(Date.now()));
  }
});

let runs = 0;

it("all stores give the same answers to random commands", { timeout: 600_000 }, async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(command, { minLength: 1, maxLength: longest, size: "max" }),
      async (commands) => {
        const run = ++runs;
        const [memory, ...others] = await Promise.all(
          contexts.map(async (context) => {
            const answer = await Effect.runPromiseWith(context)(subject(run));
            return (command: Command) => Effect.runPromiseWith(context)(answer(command));
          }),
        );
        for (const command of commands) {
          const expected = await memory!(command);
          for (const other of others)
            expect(await other(command), JSON.stringify(command)).toBe(expected);
        }
      },
    ),
    { seed, numRuns: Math.ceil((2 * count) / longest) },
  );
});
