/**
 * Checks of a store's rows: what the ports do not show.
 */
import { Cause, Effect, Exit, Fiber, Stream } from "effect";
import { defaultSettings } from "../model/Chatbot.ts";
import { idempotencyKeyLifetime } from "../model/IdempotencyKey.ts";
import type { ChatbotId } from "../model/Ids.ts";
import { makeChatArchive } from "../store/Archive.ts";
import { makeChats } from "../store/Chats.ts";
import type { ColdRows, ColdTx, Rows, Tx } from "../store/Rows.ts";
import { makeTurnStore } from "../store/Turns.ts";
import { check, failsWith, same, type Check } from "./Check.ts";
import { after, bare, chatRecord, entryRecord, keyOf } from "./Fixtures.ts";
import { fresh } from "./StoreUnderTest.ts";

/** More records than a transaction of an import stores at a time. The ids of entries are not in order. */
const records = Array.from({ length: 70 }, (_, n) => [
  chatRecord(1_000_000 + n, new Date(n)),
  ...(n === 0 ? [] : [1, 2, 3]).map((k) =>
    entryRecord(1_000_000 + n, 2_000_000 - 3 * n + k, new Date(n)),
  ),
]).flat();

/**
 * Checks that a transaction whose body does not succeed leaves nothing, and that the next one works; that an import
 * stores all or nothing, however many records a transaction stores; and that old idempotency keys do not stay.
 */
export const rowsChecks = (rows: ColdRows | Rows): ReadonlyArray<Check<never>> => {
  const write = <A, E>(body: (tx: ColdTx) => Effect.Effect<A, E>) =>
    (rows as ColdRows).write({ _tag: "Registry" }, body);
  const insertChatbot = write((tx) => {
    const fields = { name: fresh("Chatbot"), description: "", settings: defaultSettings };
    return tx.insertChatbot({ workspaceName: "Rows", ...fields });
  });
  /** Whether the rows are those of a store without ports of its own. */
  const isWhole = write((tx) => Effect.succeed("nextId" in tx));
  const inChatbot = <A>(chatbot: ChatbotId, body: (tx: Tx) => Effect.Effect<A, unknown>) =>
    (rows as Rows).write({ _tag: "Chatbot", chatbot }, body);

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

  const ends = {
    "succeeds is stored": { end: Effect.void, result: "success", entries: 1 },
    "fails leaves nothing": { end: Effect.fail("no"), result: "no", entries: 0 },
    "dies leaves nothing": { end: Effect.die("mistake"), result: "mistake", entries: 0 },
    // It is interrupted, or ends with a defect.
    "waits leaves nothing": { end: after(60_000), result: null, entries: 0 },
  };
  const transactionChecks = Object.entries(ends).map(([name, { end, entries, result }]) =>
    check(`a transaction whose body ${name}`, function* () {
      const { exit, ...rest } = yield* writeThen(end);
      const ending = Exit.isSuccess(exit) ? "success" : Cause.squash(exit.cause);
      if (result === null) yield* same("the body succeeds", Exit.isSuccess(exit), false);
      else yield* same("the body's end", ending, result);
      yield* same("what is stored", rest, { entries, hasRow: entries > 0 });
    }),
  );

  // A body that waits for nothing runs in every store.
  const sizes = rows.recordsAtOnce === null ? [null] : [null, 1, 100];
  const importChecks = sizes.map((recordsAtOnce) =>
    check(`an import ${recordsAtOnce ?? "of all records"} at once is complete`, function* () {
      const chatbot = yield* insertChatbot;
      const actor = fresh("actor");
      let writes = 0;
      const countedRows: ColdRows = {
        ...(rows as ColdRows),
        recordsAtOnce,
        write: (scope, body) =>
          Effect.ensuring(
            (rows as ColdRows).write(scope, body),
            Effect.sync(() => writes++),
          ),
      };
      const archive = makeChatArchive(countedRows);
      const importAll = (all: typeof records) =>
        archive.import(chatbot, Stream.fromIterable(all), actor);
      const twice = [...records, entryRecord(1_000_069, 2_000_000, new Date(70))];
      // Only a store that has `null` must find these by itself.
      if (recordsAtOnce !== null || rows.recordsAtOnce === null)
        yield* failsWith("two entries with one id", "ImportRefused", importAll(twice));
      writes = 0;
      yield* same("the number of chats", yield* importAll(records), 70);
      // In parts, the first transaction only looks whether the chatbot has chats. Each part has whole chats.
      const most = { 1: 71, 100: 4 }[recordsAtOnce ?? 0] ?? 1;
      yield* same("the number of transactions", writes, most);
      yield* same("the records", yield* Stream.runCollect(rows.records(chatbot, null)), records);
      yield* failsWith("a second import", "ImportRefused", importAll(records));
      const log = yield* write((tx) => tx.auditLog(100));
      const details = log.flatMap((line) => (line.actor === actor ? line.detail : []));
      yield* same("the audit log", details, ["70 chats"]);
      if (!(yield* isWhole)) return;
      const ids = yield* inChatbot(chatbot, (tx) =>
        Effect.all([tx.nextId("chat"), tx.nextId("entry")]),
      );
      yield* same("later ids", [ids[0] > 1_000_069, ids[1] > 2_000_000], [true, true]);
    }),
  );

  const keyCheck = check("a request with a key deletes the keys of a day ago", function* () {
    if (!(yield* isWhole)) return;
    const chatbot = yield* insertChatbot;
    const { createChat } = makeChats(rows as Rows);
    const { take } = makeTurnStore(rows as Rows);
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
      (hasKey: boolean) => createChat(chatbot, bare, hasKey ? keyOf("creation") : null),
      (hasKey: boolean) => take(chatbot, chat.id, hasKey ? keyOf("ask") : null),
    ]) {
      yield* addKeys;
      yield* request(false);
      yield* same("after a request without a key", yield* keptKeys, margins);
      yield* request(true);
      yield* same("after a request with a key", yield* keptKeys, [60_000]);
    }
  });

  return [...transactionChecks, ...importChecks, keyCheck];
};
