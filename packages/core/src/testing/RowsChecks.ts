/**
 * Checks of a store's rows: what the ports do not show.
 */
import { Cause, Effect, Exit, Fiber, Stream } from "effect";
import { defaultSettings } from "../model/Chatbot.ts";
import { idempotencyKeyLifetime } from "../model/IdempotencyKey.ts";
import type { ChatbotId } from "../model/Ids.ts";
import { makeChatArchive } from "../store/Archive.ts";
import { makeChats } from "../store/StoredChats.ts";
import type { ColdRows, ColdTx, Rows, Tx } from "../store/Rows.ts";
import { makeTurnStore } from "../store/Turns.ts";
import { check, failsWith, same, type Check } from "./Check.ts";
import { after, bare, chatRecord, entryRecord, keyOf } from "./Fixtures.ts";
import { fresh } from "./StoreUnderTest.ts";

/** An import with ids above this one. The ids of its entries are not in order. */
const recordsAbove = (id: number) =>
  Array.from({ length: 70 }, (_, n) => [
    chatRecord(id + n, new Date(n)),
    ...(n === 0 ? [] : [1, 2, 3]).map((k) =>
      entryRecord(id + n, id + 300 - 3 * n + k, new Date(n)),
    ),
  ]).flat();

/**
 * Checks that a transaction whose body does not succeed leaves nothing, and that the next one works; and that an import
 * is complete, however many records a transaction stores. If the rows have all verbs of `Tx`, also checks that old
 * idempotency keys are deleted.
 */
export const rowsChecks = (rows: ColdRows): ReadonlyArray<Check<never>> => {
  const write = <A, E>(body: (tx: ColdTx) => Effect.Effect<A, E>) =>
    rows.write({ _tag: "Registry" }, body);
  const insertChatbot = write((tx) => {
    const fields = { name: fresh("Chatbot"), description: "", settings: defaultSettings };
    return tx.insertChatbot({ workspaceName: "Rows", ...fields });
  });
  const hasAllVerbs = write((tx) => Effect.succeed("nextId" in tx));
  const inChatbot = <A>(chatbot: ChatbotId, body: (tx: Tx) => Effect.Effect<A, unknown>) =>
    rows.write({ _tag: "Chatbot", chatbot }, (tx) => body(tx as Tx));

  /** Registers a chatbot, and ends the body as given. Returns its exit, and what a later body finds of the chatbot. */
  const writeThen = <E>(end: Effect.Effect<unknown, E>) =>
    Effect.gen(function* () {
      const name = fresh("Chatbot");
      const fields = { workspaceName: "Rows", name, description: "", settings: defaultSettings };
      const insert = (tx: ColdTx) =>
        Effect.gen(function* () {
          const chatbot = yield* tx.insertChatbot(fields);
          yield* tx.setChatbot({ id: chatbot, ...fields, description: "changed" });
          yield* tx.audit([{ actor: name, chatbot, action: "create", detail: name }]);
        });
      const fiber = yield* Effect.forkChild(
        Effect.exit(write((tx) => Effect.andThen(insert(tx), end))),
      );
      // A body that may wait has begun its transaction by then.
      const exit = yield* Fiber.join(fiber).pipe(
        Effect.raceFirst(Effect.as(after(300), Exit.interrupt())),
        Effect.ensuring(Fiber.interrupt(fiber)),
      );
      const rest = yield* write((tx) =>
        Effect.gen(function* () {
          const id = yield* tx.chatbotNamed("Rows", name);
          const entries = yield* tx.auditLog(100);
          return { id, entries: entries.filter(({ actor }) => actor === name).length };
        }),
      );
      return { exit, hasRow: rest.id !== null, entries: rest.entries };
    });

  let waiting = 0;
  const wait = Effect.suspend(() => {
    waiting++;
    return Effect.ensuring(
      after(60_000),
      Effect.sync(() => waiting--),
    );
  });
  const ends = {
    "succeeds is stored": { end: Effect.void, result: "success", entries: 1 },
    "fails leaves nothing": { end: Effect.fail("no"), result: "no", entries: 0 },
    "dies leaves nothing": { end: Effect.die("mistake"), result: "mistake", entries: 0 },
    // It is interrupted, or ends with a defect.
    "waits leaves nothing": { end: wait, result: null, entries: 0 },
  };
  const transactionChecks = Object.entries(ends).map(([name, { end, entries, result }]) =>
    check(`a transaction whose body ${name}`, function* () {
      const { exit, ...rest } = yield* writeThen(end);
      const ending = Exit.isSuccess(exit) ? "success" : Cause.squash(exit.cause);
      if (result === null) yield* same("the body succeeds", Exit.isSuccess(exit), false);
      else yield* same("the body's end", ending, result);
      yield* same("what is stored", rest, { entries, hasRow: entries > 0 });
      yield* same("the number of bodies that still wait", waiting, 0);
    }),
  );

  const limit = rows.recordsAtOnce;
  // A store that takes all records at once can also take them one by one, from a stream that waits for nothing.
  const sizes =
    limit === null ? [null] : [1, Math.min(100, limit), ...(limit === Infinity ? [null] : [])];
  const importChecks = sizes.map((recordsAtOnce, n) =>
    check(`an import is complete, ${recordsAtOnce ?? "all"} records at a time`, function* () {
      const chatbot = yield* insertChatbot;
      const actor = fresh("actor");
      let transactions = 0;
      const archive = makeChatArchive({
        ...rows,
        recordsAtOnce,
        write: (scope, body) => (transactions++, rows.write(scope, body)),
      });
      const firstId = 1_000_000 * (n + 1);
      const records = recordsAbove(firstId);
      const importAll = archive.import(chatbot, Stream.fromIterable(records), actor);
      if (limit === null) {
        const twice = [...records, entryRecord(firstId + 69, firstId + 298, new Date(70))];
        const importTwice = archive.import(chatbot, Stream.fromIterable(twice), actor);
        yield* failsWith("two entries with one id", "ImportRefused", importTwice);
      }
      transactions = 0;
      yield* same("the number of chats", yield* importAll, 70);
      // Of whole chats, after one that only looks whether there are chats.
      const expected = { 1: 71, 100: 4 }[recordsAtOnce ?? 0];
      if (expected !== undefined) yield* same("the transactions", transactions, expected);
      yield* same("the records", yield* Stream.runCollect(rows.records(chatbot, null)), records);
      yield* failsWith("a second import", "ImportRefused", importAll);
      const log = yield* write((tx) => tx.auditLog(100));
      const details = log.flatMap((line) => (line.actor === actor ? line.detail : []));
      yield* same("the audit log", details, ["70 chats"]);
      if (!(yield* hasAllVerbs)) return;
      const ids = yield* inChatbot(chatbot, (tx) =>
        Effect.all([tx.nextId("chat"), tx.nextId("entry")]),
      );
      yield* same("later ids", [ids[0] > firstId + 69, ids[1] > firstId + 300], [true, true]);
    }),
  );

  const keyCheck = check("a request with a key deletes the keys of a day ago", function* () {
    if (!(yield* hasAllVerbs)) return;
    const chatbot = yield* insertChatbot;
    const { createChat } = makeChats(rows as unknown as Rows);
    const { take } = makeTurnStore(rows as unknown as Rows);
    const { chat } = yield* createChat(chatbot, bare, null);
    const margins = [0, 60_000];
    const row = { fingerprint: "", turn: null, turnUntil: null, entryId: null, isStopped: false };
    const addKeys = inChatbot(chatbot, (tx) =>
      Effect.forEach(margins, (margin) =>
        tx.setIdempotencyKey(chatbot, `key ${margin}`, {
          ...row,
          chatId: chat.id,
          madeAt: tx.now - idempotencyKeyLifetime + margin,
        }),
      ),
    );
    const keptKeys = inChatbot(chatbot, (tx) =>
      Effect.filter(margins, (margin) =>
        Effect.map(tx.idempotencyKey(chatbot, `key ${margin}`), (key) => key !== null),
      ),
    );
    for (const request of [
      createChat(chatbot, bare, keyOf("creation")),
      take(chatbot, chat.id, keyOf("ask")),
    ]) {
      yield* addKeys;
      yield* request;
      yield* same("the keys that stay", yield* keptKeys, [60_000]);
    }
  });

  return [...transactionChecks, ...importChecks, keyCheck];
};
