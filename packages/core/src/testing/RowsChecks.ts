/**
 * Checks of the transactions of a store's rows.
 */
import { Cause, Effect, Exit, Fiber } from "effect";
import { defaultSettings } from "../model/Chatbot.ts";
import type { ColdRows, ColdTx } from "../store/Rows.ts";
import { check, same, type Check } from "./Check.ts";
import { after } from "./Fixtures.ts";
import { fresh } from "./StoreUnderTest.ts";

/** Checks that a transaction whose body does not succeed leaves nothing, and that the next one works. */
export const rowsChecks = (rows: ColdRows): ReadonlyArray<Check<never>> => {
  const write = <A, E>(body: (tx: ColdTx) => Effect.Effect<A, E>) =>
    rows.write({ _tag: "Registry" }, body);

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
  return Object.entries(ends).map(([name, { end, entries, result }]) =>
    check(`a transaction whose body ${name}`, function* () {
      const { exit, ...rest } = yield* writeThen(end);
      const ending = Exit.isSuccess(exit) ? "success" : Cause.squash(exit.cause);
      if (result === null) yield* same("the body succeeds", Exit.isSuccess(exit), false);
      else yield* same("the body's end", ending, result);
      yield* same("what is stored", rest, { entries, hasRow: entries > 0 });
    }),
  );
};
