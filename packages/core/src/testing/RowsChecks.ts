/**
 * Checks of the transactions of a store's rows.
 */
import { Cause, Effect, Exit, Fiber } from "effect";
import { defaultSettings } from "../model/Chatbot.ts";
import type { ColdRows, ColdTx } from "../store/Rows.ts";
import { check, same, type Check } from "./Check.ts";
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
        Effect.raceFirst(Effect.as(wait(300), Exit.interrupt())),
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

  return [
    check("a transaction whose body succeeds is stored", function* () {
      const { entries, exit, hasRow } = yield* writeThen(Effect.void);
      yield* same("the body succeeds", Exit.isSuccess(exit), true);
      yield* same("what is stored", { entries, hasRow }, { entries: 1, hasRow: true });
    }),
    check("a transaction whose body fails leaves nothing", function* () {
      const { entries, exit, hasRow } = yield* writeThen(Effect.fail("no"));
      const error = Exit.isFailure(exit) ? Cause.squash(exit.cause) : null;
      yield* same("the body's error", error, "no");
      yield* same("what is stored", { entries, hasRow }, { entries: 0, hasRow: false });
    }),
    check("a transaction whose body dies leaves nothing", function* () {
      const { entries, exit, hasRow } = yield* writeThen(Effect.die("mistake"));
      const defect = Exit.isFailure(exit) ? Cause.squash(exit.cause) : null;
      yield* same("the body's defect", defect, "mistake");
      yield* same("what is stored", { entries, hasRow }, { entries: 0, hasRow: false });
    }),
    check(
      "a transaction whose body waits is interrupted, or a defect, and leaves nothing",
      function* () {
        const { entries, exit, hasRow } = yield* writeThen(wait(60_000));
        yield* same("the body succeeds", Exit.isSuccess(exit), false);
        yield* same("what is stored", { entries, hasRow }, { entries: 0, hasRow: false });
      },
    ),
  ];
};

/** Waits in real time, even if the test clock stands still. */
const wait = (millis: number) =>
  Effect.callback<void>((resume) => {
    const timer = setTimeout(() => resume(Effect.void), millis);
    return Effect.sync(() => clearTimeout(timer));
  });
