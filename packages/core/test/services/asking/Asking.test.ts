import { assert, it } from "@effect/vitest";
import {
  Asking,
  AskLimits,
  ChatId,
  CurrentAsk,
  defaultChatQuery,
  EntryEvents,
  layerEntryEvents,
  type Ask,
  type AskOrigin,
  type Metadata,
} from "@parley/core";
import {
  AnswerUnavailable,
  BudgetSpent,
  AskDeadline,
  AskedModel,
  ChatArchive,
  ChatStore,
  LogAsks,
  logFailure,
  Moderator,
  StorageUnavailable,
  turnLease,
  TurnStore,
  type AnswerPart,
} from "@parley/core/ports";
import { layerMemoryOf, layerMemoryWith, makeMemory } from "@parley/store-memory";
import {
  Deferred,
  Duration,
  Effect,
  Exit,
  Fiber,
  Layer,
  Logger,
  Metric,
  Scope,
  Stream,
} from "effect";
import { TestClock } from "effect/testing";
import {
  ask,
  asking,
  chatbot,
  flagging,
  layerAsking,
  newChat,
  questionsOf,
  says,
  settle,
  start,
  usage,
  type Answers,
} from "./asked.ts";

const broken = new AnswerUnavailable({ reason: "test" });
const restart = Stream.make({ _tag: "Restart" } as const);
const delta = (text: string) => Stream.make({ _tag: "Delta", text } as const);

/** A memory store in which these methods of the `TurnStore` are replaced. */
const storeWith = (
  change: (turns: TurnStore["Service"]) => Partial<TurnStore["Service"]>,
): ReturnType<typeof layerMemoryWith> =>
  Layer.effect(
    TurnStore,
    TurnStore.useSync((turns) => ({ ...turns, ...change(turns) })),
  ).pipe(Layer.provideMerge(layerMemoryWith([chatbot])));

/** An answer that does not begin until the test opens the gate. */
const gatedAnswer = (gate: Deferred.Deferred<void>): Stream.Stream<AnswerPart> =>
  Stream.unwrap(Effect.as(Deferred.await(gate), says("done")));

const tagOf = (exit: Exit.Exit<unknown, { readonly _tag: string }>) =>
  Exit.isFailure(exit)
    ? exit.cause.reasons.map((reason) => (reason._tag === "Fail" ? reason.error._tag : reason._tag))
    : "success";

const total = ChatStore.use((store) =>
  Effect.map(store.listChats(chatbot.id, defaultChatQuery), (page) => page.total),
);

it.effect("an ask stores the question with its answer, in a new chat if the ask names none", () =>
  Effect.gen(function* () {
    const { entry, replayed } = yield* asking(ask("q"));
    assert.deepInclude(entry, {
      question: "q",
      answer: "Hello",
      moderation: "none",
      flagged: false,
    });
    assert.isFalse(replayed);
    assert.deepStrictEqual(yield* questionsOf(entry.chatId), ["q"]);
    const again = yield* asking(ask("r", { chatId: entry.chatId }));
    assert.strictEqual(again.entry.chatId, entry.chatId);
  }).pipe(Effect.provide(layerAsking(() => says("Hel", "lo")))),
);

it.effect("the answerer reads the chat's earlier unflagged entries, newest first", () => {
  const histories: Array<ReadonlyArray<string>> = [];
  const answers: Answers = (question, earlier) =>
    Stream.unwrap(
      Effect.map(Stream.runCollect(earlier), (entries) => {
        histories.push(entries.map((entry) => entry.question));
        return says(question);
      }),
    );
  return Effect.gen(function* () {
    const chatId = yield* newChat;
    const questions = ["bad", ...Array.from({ length: 45 }, (_, n) => `q${n}`), "bad", "last"];
    for (const question of questions) {
      const { entry } = yield* asking(ask(question, { chatId }));
      if (question !== "bad") continue;
      assert.deepInclude(entry, {
        answer: chatbot.settings.moderationErrorMessage,
        moderation: "hate",
        flagged: true,
      });
    }
    assert.deepStrictEqual(yield* questionsOf(chatId), questions);
    const unflaggedQuestions = questions.filter((question) => question !== "bad");
    assert.deepStrictEqual(
      histories,
      unflaggedQuestions.map((_, n) => unflaggedQuestions.slice(0, n).toReversed()),
    );
  }).pipe(Effect.provide(layerAsking(answers, flagging("bad"))));
});

it.effect(
  "the moderator and the answerer receive the deadline, the chat, the user, the key and the context, which an ask that joins another has from it",
  () => {
    const origins: Array<AskOrigin> = [];
    const deadlines: Array<number> = [];
    const gate = Deferred.makeUnsafe<void>();
    const note = Effect.gen(function* () {
      origins.push(yield* CurrentAsk);
      deadlines.push(yield* AskDeadline);
    });
    const moderator = Layer.succeed(
      Moderator,
      Moderator.of({
        check: () =>
          Effect.as(Effect.andThen(note, TestClock.adjust("1 second")), {
            category: "none",
            flagged: false,
          }),
      }),
    );
    const answers: Answers = (question) =>
      Stream.unwrap(Effect.as(note, question === "slow" ? gatedAnswer(gate) : says("a")));
    return Effect.gen(function* () {
      const context = { session: "first" };
      const { entry } = yield* asking(ask("q", { visitor: "ann", context }));
      const { chatId } = entry;
      const key = { chatId, apiKeyId: "k", idempotencyKey: "i" };
      const fibers = yield* Effect.forEach([context, "other"], (context) =>
        start(asking(ask("slow", { ...key, context }))),
      );
      yield* Deferred.done(gate, Exit.void);
      yield* Fiber.joinAll(fibers);
      const origin = { chatId, userRef: "ann", visitor: null, apiKeyId: "k", context };
      const first = { ...origin, visitor: "ann", chatId: null, apiKeyId: null };
      assert.deepStrictEqual(origins, [first, first, origin, origin]);
      assert.isTrue(origins.every((origin) => origin.context === context));
      assert.deepStrictEqual(deadlines, [30_000, 30_000, 31_000, 31_000]);
    }).pipe(Effect.provide(layerAsking(answers, moderator)));
  },
);

it.effect("an ask in another visitor's chat fails without waiting for the asks before it", () =>
  Effect.gen(function* () {
    const gate = Deferred.makeUnsafe<void>();
    yield* Effect.gen(function* () {
      const { entry } = yield* asking(ask("first", { visitor: "u" }));
      const chatId = entry.chatId;
      const fiber = yield* start(asking(ask("slow", { chatId, visitor: "u" })));
      for (const visitor of ["v", "", "u "]) {
        const error = yield* Effect.flip(asking(ask("q", { chatId, visitor })));
        assert.strictEqual(error._tag, "ChatNotFound");
      }
      // Asks from the visitor and from the key's holder share the turns of the chat.
      const others = yield* Effect.forEach(["u", null], (visitor) =>
        start(asking(ask("later", { chatId, visitor }))),
      );
      yield* Deferred.done(gate, Exit.void);
      yield* Fiber.join(fiber);
      for (const other of others) yield* Fiber.join(other);
      assert.deepStrictEqual(yield* questionsOf(chatId), ["first", "slow", "later", "later"]);
    }).pipe(
      Effect.provide(
        layerAsking((question) => (question === "slow" ? gatedAnswer(gate) : says("a"))),
      ),
    );
  }),
);

it.effect(
  "asks in one chat are answered in order of arrival, while asks in another chat do not wait for them",
  () =>
    Effect.gen(function* () {
      const gates = new Map<string, Deferred.Deferred<void>>();
      const layer = layerAsking((question) => {
        const gate = Deferred.makeUnsafe<void>();
        gates.set(question, gate);
        return gatedAnswer(gate);
      });
      yield* Effect.gen(function* () {
        const [chatId, other] = [yield* newChat, yield* newChat];
        const questions = Array.from({ length: 20 }, (_, n) => `q${n}`);
        const fibers = yield* Effect.forEach(questions, (question) =>
          start(asking(ask(question, { chatId }))),
        );
        const elsewhere = yield* start(asking(ask("elsewhere", { chatId: other })));
        assert.deepStrictEqual([...gates.keys()], ["q0", "elsewhere"]);
        yield* Deferred.succeed(gates.get("elsewhere")!, undefined);
        yield* Fiber.join(elsewhere);
        for (const [n, question] of questions.entries()) {
          assert.strictEqual(gates.size, n + 2);
          yield* Deferred.succeed(gates.get(question)!, undefined);
          yield* Fiber.join(fibers[n]!);
          yield* settle;
        }
        assert.deepStrictEqual(yield* questionsOf(chatId), questions);
      }).pipe(Effect.provide(layer));
    }),
);

it.effect("an ask that is cancelled while it waits does not hold up the asks behind it", () =>
  Effect.gen(function* () {
    const gate = yield* Deferred.make<void>();
    yield* Effect.gen(function* () {
      const chatId = yield* newChat;
      const [first, second, third] = yield* Effect.forEach(["q0", "q1", "q2"], (question) =>
        start(asking(ask(question, { chatId, onDisconnect: "cancel" }))),
      );
      yield* Fiber.interrupt(second!);
      yield* Deferred.succeed(gate, undefined);
      yield* Fiber.joinAll([first!, third!]);
      assert.deepStrictEqual(yield* questionsOf(chatId), ["q0", "q2"]);
    }).pipe(Effect.provide(layerAsking(() => gatedAnswer(gate))));
  }),
);

it.effect("an ask fails with Overloaded if 256 asks are already waiting in its chat", () =>
  Effect.gen(function* () {
    const chatId = yield* newChat;
    const store = yield* TurnStore;
    yield* store.take(chatbot.id, chatId, null);
    const fibers = yield* Effect.forEach(Array.from({ length: 258 }), (_, n) =>
      start(Effect.exit(asking(ask(`q${n}`, { chatId })))),
    );
    const refused = fibers.filter((fiber) => fiber.pollUnsafe() !== undefined);
    assert.strictEqual(refused.length, 1);
    assert.deepStrictEqual(tagOf(yield* Fiber.join(refused[0]!)), ["Overloaded"]);
    // The other asks get their turns once the lease of the held turn expires.
    yield* TestClock.adjust(turnLease + 1);
    const exits = yield* Fiber.joinAll(fibers);
    assert.strictEqual(exits.filter(Exit.isSuccess).length, 257);
  }).pipe(Effect.provide(layerAsking(() => says("done")))),
);

it.effect("an ask waits at most a minute for a turn that another process holds", () =>
  Effect.gen(function* () {
    const chatId = yield* newChat;
    const store = yield* TurnStore;
    const takeResult = yield* store.take(chatbot.id, chatId, null);
    if (takeResult._tag !== "TurnTaken") return assert.fail("the turn is free");
    const waitingAsk = yield* Effect.forkChild(Effect.exit(asking(ask("q", { chatId }))));
    for (let seconds = 0; seconds < 60; seconds += 3) {
      assert.isUndefined(waitingAsk.pollUnsafe());
      yield* TestClock.adjust("3 seconds");
      yield* store.renew(takeResult.turn);
    }
    assert.isDefined(waitingAsk.pollUnsafe());
    assert.deepStrictEqual(tagOf(yield* Fiber.join(waitingAsk)), ["Overloaded"]);
    assert.deepStrictEqual(yield* questionsOf(chatId), []);
  }).pipe(Effect.provide(layerAsking(() => says("done")))),
);

it.effect("a waiting ask gets a turn that another process releases within 250 milliseconds", () =>
  Effect.gen(function* () {
    const chatId = yield* newChat;
    const store = yield* TurnStore;
    yield* settle;
    const takeResult = yield* store.take(chatbot.id, chatId, null);
    if (takeResult._tag !== "TurnTaken") return assert.fail("the turn is free");
    const waitingAsk = yield* start(asking(ask("q", { chatId })));
    assert.isUndefined(waitingAsk.pollUnsafe());
    yield* store.release(takeResult.turn);
    yield* TestClock.adjust("250 millis");
    assert.isDefined(waitingAsk.pollUnsafe());
  }).pipe(Effect.provide(layerAsking(() => says("done")))),
);

it.effect("two processes with many asks in one chat answer in turns, each in its own order", () =>
  Effect.gen(function* () {
    const memory = makeMemory([chatbot]);
    const answers: Answers = () => Stream.unwrap(Effect.delay(Effect.succeed(says("a")), 1000));
    const buildProcess = Layer.build(layerAsking(answers, undefined, layerMemoryOf(memory)));
    const processes = [yield* buildProcess, yield* buildProcess];
    const chatId = yield* Effect.provide(newChat, processes[0]!);
    const questions = ["a1", "b1", "a2", "a3", "a4", "b2", "b3", "b4"];
    const asks = yield* Effect.forEach(questions, (question) =>
      Effect.forkChild(
        Effect.provide(asking(ask(question, { chatId })), processes[question[0] === "a" ? 0 : 1]!),
      ),
    );
    for (let millis = 0; millis < questions.length * 1250; millis += 50) {
      yield* TestClock.adjust(50);
    }
    for (const fiber of asks) assert.isDefined(fiber.pollUnsafe());
    const expectedOrder = ["a1", "b1", "a2", "b2", "a3", "b3", "a4", "b4"];
    assert.deepStrictEqual(
      yield* Effect.provide(questionsOf(chatId), processes[0]!),
      expectedOrder,
    );
  }),
);

it.effect("a slow ask holds its turn until its deadline, and then fails and releases it", () =>
  Effect.gen(function* () {
    const chatId = yield* newChat;
    const slow = yield* Effect.forkChild(Effect.exit(asking(ask("q", { chatId }))));
    for (let seconds = 0; seconds < 29; seconds++) {
      yield* TestClock.adjust("1 second");
      const other = yield* TurnStore.use((store) => store.take(chatbot.id, chatId, null));
      assert.strictEqual(other._tag, "Held");
    }
    yield* TestClock.adjust("1 second");
    assert.deepStrictEqual(tagOf(yield* Fiber.join(slow)), ["AnswerUnavailable"]);
    const other = yield* TurnStore.use((store) => store.take(chatbot.id, chatId, null));
    assert.strictEqual(other._tag, "TurnTaken");
    assert.deepStrictEqual(yield* questionsOf(chatId), []);
  }).pipe(Effect.provide(layerAsking(() => Stream.never))),
);

it.effect("an answer is stored even if the store failed to renew its turn once", () =>
  Effect.gen(function* () {
    const gate = yield* Deferred.make<void>();
    let renewals = 0;
    const store = storeWith(({ renew }) => ({
      renew: (turn) =>
        Effect.suspend(() =>
          ++renewals === 1 ? Effect.fail(new StorageUnavailable({ cause: "gone" })) : renew(turn),
        ),
    }));
    yield* Effect.gen(function* () {
      const answer = yield* start(Effect.exit(asking(ask("q"))));
      yield* TestClock.adjust("7 seconds");
      assert.strictEqual(renewals, 2);
      yield* Deferred.succeed(gate, undefined);
      assert.strictEqual(tagOf(yield* Fiber.join(answer)), "success");
      assert.strictEqual(yield* total, 1);
    }).pipe(Effect.provide(layerAsking(() => gatedAnswer(gate), undefined, store)));
  }),
);

it.effect("an answer is not stored if its turn was lost in the meantime", () =>
  Effect.gen(function* () {
    const gate = yield* Deferred.make<void>();
    yield* Effect.gen(function* () {
      const chatId = yield* newChat;
      const late = yield* start(Effect.exit(asking(ask("late", { chatId }))));
      // The process hung for longer than the lease of its turn.
      yield* TestClock.adjust(turnLease + 1);
      const takeResult = yield* TurnStore.use((store) => store.take(chatbot.id, chatId, null));
      assert.strictEqual(takeResult._tag, "TurnTaken");
      yield* Deferred.succeed(gate, undefined);
      assert.deepStrictEqual(tagOf(yield* Fiber.join(late)), ["AnswerUnavailable"]);
      assert.deepStrictEqual(yield* questionsOf(chatId), []);
    }).pipe(
      Effect.provide(layerAsking(() => gatedAnswer(gate))),
      Effect.provideService(AskLimits, {
        ...AskLimits.defaultValue(),
        renewal: Duration.hours(1),
      }),
    );
  }),
);

it.effect(
  "an ask whose chat is erased before the answer arrives stores nothing and fails with ChatNotFound",
  () =>
    Effect.gen(function* () {
      let gate = yield* Deferred.make<void>();
      yield* Effect.gen(function* () {
        const archive = yield* ChatArchive;
        for (const [more, millis] of [
          [{}, 0],
          [{ idempotencyKey: "key" }, 0],
          [{}, turnLease],
          [{ idempotencyKey: "key" }, turnLease],
        ] as const) {
          gate = yield* Deferred.make<void>();
          const chatId = yield* newChat;
          const late = yield* start(Effect.exit(asking(ask("late", { chatId, ...more }))));
          assert.strictEqual(
            yield* archive.erase(chatbot.id, { _tag: "Chat", id: chatId }, "test"),
            1,
          );
          // After `turnLease`, renewing the turn fails; otherwise, the append does.
          yield* TestClock.adjust(millis);
          yield* Deferred.succeed(gate, undefined);
          assert.deepStrictEqual(tagOf(yield* Fiber.join(late)), ["ChatNotFound"]);
        }
        assert.strictEqual(yield* total, 0);
      }).pipe(Effect.provide(layerAsking(() => Stream.suspend(() => gatedAnswer(gate)))));
    }),
);

it.effect(
  "a failed ask is logged once, even if its client has disconnected, and a cancelled one is not",
  () =>
    Effect.gen(function* () {
      const logged: Array<string> = [];
      const logger = Logger.make((entry) => {
        logged.push(Logger.formatJson.log(entry));
      });
      let gate = yield* Deferred.make<void>();
      let fails: Effect.Effect<never, AnswerUnavailable | StorageUnavailable>;
      const layer = layerAsking(() => Stream.unwrap(Effect.andThen(Deferred.await(gate), fails)));
      for (const [failure, expected] of [
        [Effect.fail(broken), ["AnswerUnavailable", '"test"']],
        [Effect.fail(new StorageUnavailable({ cause: "gone" })), ["StorageUnavailable", "gone"]],
        [Effect.die(new Error("a mistake")), ["Unexpected error in a request", "a mistake"]],
      ] as const) {
        fails = failure;
        for (const onDisconnect of ["finish", "cancel"] as const) {
          for (const hangsUp of [true, false]) {
            logged.length = 0;
            gate = yield* Deferred.make<void>();
            yield* Effect.gen(function* () {
              const chatId = yield* newChat;
              const fiber = yield* start(Effect.exit(asking(ask("q", { chatId, onDisconnect }))));
              if (hangsUp) yield* Fiber.interrupt(fiber);
              yield* Deferred.succeed(gate, undefined);
              yield* settle;
            }).pipe(Effect.provide([layer, Logger.layer([logger])], { local: true }));
            if (hangsUp && onDisconnect === "cancel") assert.deepStrictEqual(logged, []);
            else {
              assert.strictEqual(logged.length, 1);
              for (const text of expected) assert.include(logged[0]!, text);
            }
          }
        }
      }
    }),
);

it.effect("an answer is not cancelled while a request with its key is still waiting", () =>
  Effect.gen(function* () {
    const gate = yield* Deferred.make<void>();
    let calls = 0;
    const layer = layerAsking(() => {
      calls++;
      return gatedAnswer(gate);
    });
    yield* Effect.gen(function* () {
      const askWithKey = ask("q", { idempotencyKey: "key", onDisconnect: "cancel" });
      const fibers = yield* Effect.forEach(Array.from({ length: 8 }), () =>
        start(asking(askWithKey)),
      );
      yield* Fiber.interruptAll(fibers.slice(0, 7));
      yield* Deferred.succeed(gate, undefined);
      const { entry, replayed } = yield* Fiber.join(fibers[7]!);
      assert.isTrue(replayed);
      assert.strictEqual(calls, 1);
      assert.deepStrictEqual(yield* asking(askWithKey), { entry, replayed: true });
      assert.strictEqual(yield* total, 1);
    }).pipe(Effect.provide(layer));
  }),
);

it.effect(
  "if several requests share an idempotency key, the last to disconnect decides whether to cancel the answer",
  () =>
    Effect.gen(function* () {
      const closed = yield* Deferred.make<void>();
      const layer = layerAsking(() =>
        Stream.ensuring(Stream.never, Deferred.succeed(closed, undefined)),
      );
      yield* Effect.gen(function* () {
        const begin = Effect.fnUntraced(function* (onDisconnect: "cancel" | "finish") {
          const askWithKey = ask("q", { idempotencyKey: "key", onDisconnect });
          const fiber = yield* start(asking(askWithKey));
          return fiber;
        });
        const [first, second] = [yield* begin("cancel"), yield* begin("finish")];
        yield* Fiber.interrupt(first);
        yield* Fiber.interrupt(second);
        yield* settle;
        assert.isFalse(yield* Deferred.isDone(closed));
        const [third, last] = [yield* begin("finish"), yield* begin("cancel")];
        yield* Fiber.interrupt(third);
        yield* Fiber.interrupt(last);
        yield* settle;
        assert.isTrue(yield* Deferred.isDone(closed));
      }).pipe(Effect.provide(layer));
    }),
);

it.effect("a stop ends an ask with all its readers, and later repetitions, in its process", () =>
  Effect.gen(function* () {
    const closed = yield* Deferred.make<void>();
    const layer = layerAsking((question) =>
      question === "q"
        ? Stream.ensuring(Stream.never, Deferred.succeed(closed, undefined))
        : says(question),
    );
    yield* Effect.gen(function* () {
      const service = yield* Asking;
      const chatId = yield* newChat;
      const stopped = ask("q", { chatId, idempotencyKey: "key" });
      const queued = ask("queued", { chatId, idempotencyKey: "queued" });
      const streaming = Stream.runDrain(service.stream(chatbot, stopped));
      const runs = [asking(stopped), streaming, asking(queued)];
      const fibers = yield* Effect.forEach(runs, (run) => start(Effect.exit(run)));
      for (const key of ["queued", "key", "key"])
        assert.deepStrictEqual(yield* service.stop(chatbot, key), { stopped: true }, key);
      assert.isTrue(yield* Deferred.isDone(closed));
      for (const fiber of fibers)
        assert.deepStrictEqual(tagOf(yield* Fiber.join(fiber)), ["AnswerStopped"]);
      for (const request of [stopped, queued])
        assert.strictEqual((yield* Effect.flip(asking(request)))._tag, "AnswerStopped");
      const changed = Effect.flip(asking({ ...stopped, question: "other" }));
      assert.strictEqual((yield* changed)._tag, "IdempotencyKeyReused");
      const { entry } = yield* asking(ask("next", { chatId, idempotencyKey: "next" }));
      assert.deepStrictEqual(yield* questionsOf(chatId), ["next"]);
      assert.deepStrictEqual(yield* service.stop(chatbot, "next"), { stopped: false, entry });
      for (const [key, visitor] of [["none"], ["next", "ann"]] as const)
        assert.strictEqual(
          (yield* Effect.flip(service.stop(chatbot, key, visitor)))._tag,
          "AskNotFound",
        );
    }).pipe(Effect.provide(layer));
  }),
);

it.effect("an ask that another process stops ends at its next renewal", () =>
  Effect.gen(function* () {
    const closed = yield* Deferred.make<void>();
    const answer = Stream.ensuring(Stream.never, Deferred.succeed(closed, undefined));
    yield* Effect.gen(function* () {
      const turns = yield* TurnStore;
      const request = ask("q", { idempotencyKey: "key" });
      const fiber = yield* start(Effect.exit(asking(request)));
      assert.deepStrictEqual(yield* turns.stop(chatbot.id, "key", null), { _tag: "Stopped" });
      yield* TestClock.adjust("3 seconds");
      assert.deepStrictEqual(tagOf(yield* Fiber.join(fiber)), ["AnswerStopped"]);
      assert.isTrue(yield* Deferred.isDone(closed));
      assert.strictEqual(yield* total, 0);
    }).pipe(Effect.provide(layerAsking(() => answer)));
  }),
);

/** Half an answer, followed a second later by `more`. */
const halfThen = (more: Stream.Stream<AnswerPart, AnswerUnavailable>) =>
  Stream.concat(
    delta("half"),
    Stream.concat(Stream.fromEffectDrain(Effect.sleep("1 second")), more),
  );
const events = (request: Ask) =>
  Asking.use((service) => Stream.runCollect(service.stream(chatbot, request)));

it.effect(
  "an answer continues after a restart if no reader has received the text that the restart discards",
  () =>
    Effect.gen(function* () {
      const answers = () =>
        halfThen(
          Stream.concat(restart, Stream.fromEffectDrain(Effect.sleep("1 second"))).pipe(
            Stream.concat(says("whole")),
          ),
        );
      yield* Effect.gen(function* () {
        const askWithKey = ask("q", { idempotencyKey: "key" });
        const plain = yield* Effect.forkChild(asking(askWithKey));
        yield* TestClock.adjust("1 second");
        // The second request arrives during the pause before the second attempt.
        const reader = yield* Effect.forkChild(events(askWithKey));
        yield* TestClock.adjust("1 second");
        assert.deepStrictEqual(
          (yield* Fiber.join(reader)).map((event) =>
            event._tag === "Delta" ? event.text : event.entry.answer,
          ),
          ["whole", "whole"],
        );
        assert.strictEqual((yield* Fiber.join(plain)).entry.answer, "whole");
      }).pipe(Effect.provide(layerAsking(answers)));
    }),
);

it.effect(
  "an answer fails at a restart if a reader has received the text that the restart discards",
  () =>
    Effect.gen(function* () {
      let attempts = 0;
      const second = Stream.suspend(() => {
        attempts++;
        return says("whole");
      });
      yield* Effect.gen(function* () {
        const reader = yield* Effect.forkChild(Effect.exit(events(ask("q"))));
        yield* TestClock.adjust("1 second");
        assert.deepStrictEqual(tagOf(yield* Fiber.join(reader)), ["AnswerUnavailable"]);
        assert.strictEqual(attempts, 0);
        assert.strictEqual(yield* total, 0);
      }).pipe(Effect.provide(layerAsking(() => halfThen(Stream.concat(restart, second)))));
    }),
);

it.effect("an unanswered ask stores nothing, creates no chat and is not retried", () =>
  Effect.gen(function* () {
    for (const answer of [
      Stream.fail(broken),
      says(),
      says("", " \n\u0085"),
      Stream.concat(says("half"), Stream.fail(broken)),
      Stream.die("a defect"),
    ]) {
      let calls = 0;
      const answers = () => {
        calls++;
        return answer;
      };
      yield* Effect.gen(function* () {
        const chatId = yield* newChat;
        const exits = yield* Effect.forEach(
          [ask("q"), ask("q", { chatId }), ask("q", { chatId, idempotencyKey: "key" })],
          (request) => Effect.exit(asking(request)),
        );
        assert.isTrue(exits.every(Exit.isFailure));
        assert.strictEqual(calls, 3);
        assert.strictEqual(yield* total, 1);
        assert.deepStrictEqual(yield* questionsOf(chatId), []);
        const turns = yield* TurnStore;
        const key = { key: "key", fingerprint: "another" };
        assert.strictEqual((yield* turns.take(chatbot.id, chatId, key))._tag, "TurnTaken");
      }).pipe(Effect.provide(layerAsking(answers)));
    }
  }),
);

it.effect(
  "a stored answer has no NUL or lone surrogates, and is truncated between code points at the maximum length",
  () => {
    const long = "x".repeat(99_999);
    return Effect.gen(function* () {
      for (const [pieces, kept] of [
        [["a\0\ud83d", "\ude00", "\ud83d", "b"], "a😀\ufffdb"],
        [[`${long}😀`, "tail"], long],
        [[long, "\ud83d", "\ude00", "tail"], long],
        [[long, "y"], `${long}y`],
        [[`${long}y`, "", "z"], `${long}y`],
      ] as const) {
        const { entry } = yield* asking(ask("q")).pipe(
          Effect.provide(layerAsking(() => says(...pieces))),
        );
        assert.isTrue(entry.answer === kept, kept.slice(0, 9));
      }
    });
  },
);

it.effect("the usage of an answer is rounded and clamped before it is stored", () => {
  const counts = [12.5, 1e30, -3, Number.NaN, undefined as never];
  const answers = (question: string) => {
    const n = counts[Number(question)]!;
    const tokens = { promptTokens: n, completionTokens: n };
    const usage = { provider: "p", model: "m", ...tokens, attempts: n, latencyMillis: n };
    return Stream.make({ _tag: "Delta", text: "a" } as const, { _tag: "Usage", usage } as const);
  };
  return Effect.gen(function* () {
    for (const n of counts.keys()) yield* asking(ask(`${n}`));
    const [sum] = yield* ChatArchive.use((archive) =>
      archive.usage(chatbot.id, { since: new Date(0) }),
    );
    const all = 13 + (2 ** 31 - 1);
    const sums = { attempts: all, promptTokens: all, completionTokens: all };
    assert.deepInclude(sum, { answers: 5, ...sums });
  }).pipe(Effect.provide(layerAsking(answers)));
});

it.effect(
  "if an answer is truncated, its readers receive what is stored, and the rest is not read",
  () =>
    Effect.gen(function* () {
      const [delta, entry, ...more] = yield* events(ask("q"));
      assert.strictEqual(delta?._tag === "Delta" && delta.text.length, 100_000);
      assert.strictEqual(entry?._tag === "Entry" && entry.entry.answer.length, 100_000);
      assert.deepStrictEqual(more, []);
    }).pipe(
      Effect.provide(layerAsking(() => Stream.concat(delta("x".repeat(150_000)), Stream.never))),
    ),
);

it.effect("a stopping service completes its answers, and rejects asks that have no turn", () =>
  Effect.gen(function* () {
    const gate = yield* Deferred.make<void>();
    const scope = yield* Scope.make();
    const layer = layerAsking(() => gatedAnswer(gate));
    const context = yield* Scope.provide(Layer.build(layer), scope);
    yield* Effect.gen(function* () {
      const [ours, theirs] = [yield* newChat, yield* newChat];
      yield* TurnStore.use((store) => store.take(chatbot.id, theirs, null));
      const [answeringAsk, ...waitingAsks] = yield* Effect.forEach(
        [ask("q", { chatId: ours }), ask("r", { chatId: ours }), ask("s", { chatId: theirs })],
        (request) => start(Effect.exit(asking(request))),
      );
      const stopped = yield* start(Scope.close(scope, Exit.void));
      // The waiting asks fail before the answer arrives and without the clock advancing.
      for (const fiber of waitingAsks)
        assert.deepStrictEqual(tagOf(yield* Fiber.join(fiber)), ["Overloaded"]);
      const refusal = yield* Effect.flip(asking(ask("t")));
      assert.deepInclude(refusal, { _tag: "Overloaded", reason: "stopping" });
      assert.include(refusal.message, "the server is stopping");
      assert.strictEqual(yield* Asking.use(({ inProgress }) => inProgress), 1);
      assert.isUndefined(stopped.pollUnsafe());
      yield* Deferred.succeed(gate, undefined);
      assert.isTrue(Exit.isSuccess(yield* Fiber.join(answeringAsk!)));
      yield* Fiber.join(stopped);
      assert.deepStrictEqual(yield* questionsOf(ours), ["q"]);
    }).pipe(Effect.provide(context));
  }),
);

const limits = { ...AskLimits.defaultValue(), asks: 16, budgetedAsks: 4, readers: 3 };
/** Runs a test that can open the gate for all answers. */
const withLimits = <A, E>(
  test: (gate: Deferred.Deferred<void>) => Effect.Effect<A, E, Asking | ChatStore>,
) =>
  Effect.gen(function* () {
    const gate = yield* Deferred.make<void>();
    const layer = Layer.provide(
      layerAsking(() => gatedAnswer(gate)),
      Layer.succeed(AskLimits, limits),
    );
    return yield* test(gate).pipe(
      Effect.ensuring(Deferred.succeed(gate, undefined)),
      Effect.provide(layer),
    );
  });
/** Starts an ask, and returns whether it was refused at once. */
const isRefused = (ask: Ask) =>
  Effect.gen(function* () {
    const fiber = yield* start(Effect.exit(asking(ask)));
    const exit = fiber.pollUnsafe();
    if (exit === undefined || Exit.isSuccess(yield* Fiber.join(fiber))) return false;
    assert.deepStrictEqual(tagOf(yield* Fiber.join(fiber)), ["Overloaded"]);
    return true;
  });
/** Returns how many of these asks were accepted. */
const count = (asks: ReadonlyArray<Ask>) =>
  Effect.map(
    Effect.forEach(asks, isRefused),
    (refusals) => refusals.filter((refusal) => !refusal).length,
  );
const many = (make: (at: number) => Partial<Ask>) =>
  Array.from({ length: 40 }, (_, at) => ask(`${at}`, make(at)));

it.effect("a refusal says whether the key has its share or the server is full", () =>
  withLimits(() =>
    Effect.gen(function* () {
      const { overloadOf } = yield* Asking;
      yield* count(many(() => ({ apiKeyId: "a" })));
      assert.deepInclude(overloadOf({ apiKeyId: "a" }), { reason: "key_share" });
      assert.isNull(overloadOf({ apiKeyId: "b" }));
      for (const apiKeyId of ["b", "c"]) yield* isRefused(ask("q", { apiKeyId }));
      assert.deepInclude(overloadOf({ apiKeyId: "d" }), { reason: "server_full" });
    }),
  ),
);

it.effect("asks that wait in a key's own chats leave an eighth of all asks to the other keys", () =>
  withLimits(() =>
    Effect.gen(function* () {
      const chats = [yield* newChat, yield* newChat];
      const flood = many((at) => ({ apiKeyId: "flood", chatId: chats[at % 2]! }));
      assert.strictEqual(yield* count(flood), 14);
      assert.strictEqual(yield* count(many(() => ({ apiKeyId: "other" }))), 2);
    }),
  ),
);

it.effect(
  "a request that joins an ask counts as an ask, and an answer has only a few readers",
  () =>
    withLimits(() =>
      Effect.gen(function* () {
        const joins = (key: string) =>
          many(() => ({ apiKeyId: "flood", idempotencyKey: key })).map((join) => ({
            ...join,
            question: "q",
          }));
        assert.strictEqual(yield* count(joins("a")), 3);
        const others = ["b", "c", "d", "e", "f"];
        assert.strictEqual(yield* count(others.flatMap(joins)), 11);
        assert.isFalse(yield* isRefused(ask("q", { apiKeyId: "polite" })));
      }),
    ),
);

it.effect("an ask whose client has left counts until it ends", () =>
  withLimits((gate) =>
    Effect.gen(function* () {
      for (const request of many(() => ({ apiKeyId: "flood" })).slice(0, 14)) {
        const fiber = yield* start(asking(request));
        yield* Fiber.interrupt(fiber);
      }
      assert.isTrue(yield* isRefused(ask("q", { apiKeyId: "flood" })));
      assert.isFalse(yield* isRefused(ask("q", { apiKeyId: "polite" })));
      yield* Deferred.succeed(gate, undefined);
      yield* settle;
      assert.isFalse(yield* isRefused(ask("q", { apiKeyId: "flood" })));
    }),
  ),
);

it.effect("a visitor leaves an eighth of the key's asks to the key's other visitors", () =>
  withLimits(() =>
    Effect.gen(function* () {
      const asksOf = (visitor: string) => many(() => ({ apiKeyId: "widget", visitor }));
      assert.strictEqual(yield* count(asksOf("flood")), 13);
      assert.strictEqual(yield* count(asksOf("other")), 1);
      assert.isFalse(yield* isRefused(ask("q", { apiKeyId: "polite" })));
    }),
  ),
);

it.effect("a key with a budget has a limited number of asks in progress", () =>
  withLimits(() =>
    Effect.gen(function* () {
      const budgeted = many(() => ({ apiKeyId: "k", tokensPerDay: 10 }));
      assert.strictEqual(yield* count(budgeted), 4);
      assert.isFalse(yield* isRefused(ask("q", { apiKeyId: "polite" })));
    }),
  ),
);

const key = { apiKeyId: "k", tokensPerDay: 10 };
const spending = TurnStore.use((store) =>
  Effect.map(store.spending(chatbot.id, "k"), ({ tokens }) => tokens),
);
const isSpent = (retryAfterSeconds: number) =>
  new BudgetSpent({ apiKeyId: "k", retryAfterSeconds });

it.effect(
  "a key that has spent its budget gets only replays of stored answers until midnight UTC",
  () =>
    Effect.gen(function* () {
      yield* TestClock.setTime(Date.parse("2030-01-31T23:00:00Z"));
      const idempotencyKey = "key";
      const first = yield* asking(ask("q", { ...key, idempotencyKey }));
      const { chatId } = first.entry;
      // Each ask costs one token for the question and one for the answer.
      for (let n = 0; n < 4; n++) yield* asking(ask("q", { ...key, chatId }));
      assert.strictEqual(yield* spending, 10);
      const used = Effect.map(Metric.snapshot, (metrics) =>
        metrics.flatMap(({ attributes, id, state }) =>
          id === "parley.key.budget.used" ? [[attributes, state]] : [],
        ),
      );
      const other = "other";
      for (const more of [
        {},
        { chatId },
        { idempotencyKey: other },
        { chatId, idempotencyKey: other },
      ])
        assert.deepStrictEqual(
          yield* Effect.flip(asking(ask("q", { ...key, ...more }))),
          isSpent(3600),
        );
      assert.deepStrictEqual(yield* used, [[{ key: "k" }, { value: 1 }]]);
      const missing = yield* Effect.flip(asking(ask("q", { ...key, chatId: ChatId.make(999) })));
      assert.strictEqual(missing._tag, "ChatNotFound");
      const again = yield* asking(ask("q", { ...key, idempotencyKey }));
      assert.deepStrictEqual(again, { ...first, replayed: true });
      // A refused ask leaves nothing behind: its chat and its idempotency key are free.
      yield* asking(ask("q", { chatId, apiKeyId: "another", idempotencyKey: other }));
      yield* TestClock.setTime(Date.parse("2030-02-01T00:00:00Z"));
      assert.strictEqual(yield* spending, 0);
      assert.deepInclude((yield* used)[0]![1], { value: 0 });
      yield* asking(ask("q", { ...key, chatId }));
      assert.strictEqual(yield* spending, 2);
    }).pipe(
      Effect.provide(layerAsking(() => says("Hello"))),
      Effect.provideService(Metric.MetricRegistry, new Map()),
    ),
);

it.effect("asks in one chat exceed a budget by less than one answer costs", () =>
  Effect.gen(function* () {
    const request = ask("q", { apiKeyId: "k", tokensPerDay: 3, chatId: yield* newChat });
    const asks = Array.from({ length: 8 }, () => Effect.exit(asking(request)));
    const exits = yield* Effect.all(asks, { concurrency: "unbounded" });
    assert.deepStrictEqual(exits.map(tagOf), [
      "success",
      "success",
      ...Array.from({ length: 6 }, () => ["BudgetSpent"]),
    ]);
  }).pipe(Effect.provide(layerAsking(() => says("Hello")))),
);

it.effect(
  "a budget is charged for answers that fail, restart, are cancelled, miss the deadline or report no tokens",
  () => {
    const silent = Stream.make({ _tag: "Delta", text: "8 signs." } as const);
    const gate = Deferred.makeUnsafe<void>();
    const answers: Readonly<Record<string, ReturnType<Answers>>> = {
      "no usage": silent,
      fails: Stream.concat(silent, Stream.fail(broken)),
      "twice ": Stream.concat(Stream.concat(silent, restart), silent),
      cancel: Stream.concat(silent, Stream.fromEffect(Deferred.await(gate)).pipe(Stream.drain)),
      late: Stream.concat(silent, Stream.never),
      flagged: silent,
      // What the answerer counts itself is rounded and clamped, and does not fail the ask.
      ...Object.fromEntries(
        Object.entries({ fraction: 12.5, infinite: NaN, negative: -1 }).map(([name, tokens]) => [
          name,
          Stream.unwrap(
            Effect.map(AskedModel, (askedModel) => ((askedModel.tokens = tokens), silent)),
          ),
        ]),
      ),
    };
    return Effect.gen(function* () {
      const estimated = { "no usage": 4, fails: 4, "twice ": 6, cancel: 4, late: 3, flagged: 0 };
      const expected = { ...estimated, fraction: 13, infinite: 0, negative: 0 };
      let before = 0;
      for (const [question, tokens] of Object.entries(expected)) {
        const onDisconnect = question === "cancel" ? "cancel" : "finish";
        const budget = { apiKeyId: "k", tokensPerDay: 1000 };
        const fiber = yield* start(asking(ask(question, { ...budget, onDisconnect })));
        if (question === "cancel") yield* Fiber.interrupt(fiber);
        if (question === "late") yield* TestClock.adjust("31 seconds");
        yield* Fiber.await(fiber);
        yield* settle;
        assert.strictEqual((yield* spending) - before, tokens, question);
        before += tokens;
      }
    }).pipe(Effect.provide(layerAsking((question) => answers[question]!, flagging("flagged"))));
  },
);

it.effect(
  "an ask that fails, is slow or shall be logged has one log line, and no other has",
  () => {
    const lines: Array<Record<string, any>> = [];
    const logger = Logger.make((entry) => {
      const { annotations, message } = JSON.parse(Logger.formatJson.log(entry));
      lines.push({ message, ...annotations });
    });
    const answers: Answers = (question) =>
      question === "fails"
        ? Stream.fail(broken)
        : Stream.unwrap(
            Effect.as(
              Effect.sleep(question === "slow" ? "5 seconds" : "4 seconds"),
              Stream.concat(says("a"), Stream.make({ _tag: "Usage", usage } as const)),
            ),
          );
    return Effect.gen(function* () {
      const chatId = yield* newChat;
      const fibers = yield* Effect.forEach(["slow", "quick"], (question) =>
        Effect.forkChild(
          asking(ask(question, { chatId: question === "slow" ? chatId : null })).pipe(
            Effect.annotateLogs({ requestId: question }),
          ),
        ),
      );
      const behind = yield* Effect.forkChild(
        asking(ask("quick", { chatId })).pipe(Effect.annotateLogs({ requestId: "behind" })),
      );
      yield* TestClock.adjust("5001 millis");
      yield* TestClock.adjust("5 seconds");
      const [slow] = yield* Fiber.joinAll(fibers);
      yield* Fiber.join(behind);
      const failure = yield* Effect.exit(asking(ask("fails")));
      if (Exit.isFailure(failure)) yield* logFailure(failure.cause);
      const logged = yield* Effect.forkChild(
        Effect.provideService(asking(ask("quick")), LogAsks, true),
      );
      yield* TestClock.adjust("4 seconds");
      yield* Fiber.join(logged);
      const { attempts, completionTokens, model, promptTokens } = usage;
      const whose = { message: "Ask", chatbot: chatbot.id, chat: chatId };
      const spent = { model, attempts, tokens: promptTokens + completionTokens };
      assert.lengthOf(lines, 3);
      assert.deepInclude(lines[0], {
        ...whose,
        ...spent,
        requestId: "behind",
        firstDeltaMs: 4000,
      });
      assert.isAtLeast(lines[0]!["waitMs"], 5000);
      assert.isAtLeast(lines[0]!["ms"], 9000);
      assert.deepInclude(lines[1], { message: "AnswerUnavailable", reason: "test", ms: 0 });
      assert.deepInclude(lines[2], { message: "Ask", waitMs: 0, firstDeltaMs: 4000, ms: 4000 });
      assert.isAbove(slow!.entry.id, 0);
    }).pipe(Effect.provide(layerAsking(answers)), Effect.provide(Logger.layer([logger])));
  },
);

it.effect("a single warning is logged if a failed ask's tokens cannot be counted", () => {
  const logged: Array<string> = [];
  const logger = Logger.make((entry) => void logged.push(Logger.formatLogFmt.log(entry)));
  const failing = storeWith(() => ({
    release: () => Effect.fail(new StorageUnavailable({ cause: "the database is unavailable" })),
  }));
  return Effect.gen(function* () {
    const failure = yield* Effect.flip(asking(ask("8 signs.", key)));
    assert.strictEqual(failure._tag, "AnswerUnavailable");
    const lines = logged.filter((line) => line.includes("could not be counted"));
    assert.lengthOf(lines, 1);
    assert.match(lines[0]!, /level=WARN.* key=k tokens=2 reason=/);
    yield* Effect.flip(asking(ask("8 signs.")));
    assert.lengthOf(
      logged.filter((line) => line.includes("could not be counted")),
      1,
    );
  }).pipe(
    Effect.provide(layerAsking(() => Stream.fail(broken), Moderator.layerOff, failing)),
    Effect.provide(Logger.layer([logger])),
  );
});

it.effect("an ask whose key has no budget does not look up how much the key has spent", () => {
  let calls = 0;
  const counted = storeWith(({ spending }) => ({
    spending: (...args) => {
      calls++;
      return spending(...args);
    },
  }));
  return Effect.gen(function* () {
    yield* asking(ask("q", { apiKeyId: "k" }));
    assert.strictEqual(calls, 0);
    assert.strictEqual(yield* spending, 0);
    yield* asking(ask("q", key));
    assert.strictEqual(calls, 2);
  }).pipe(Effect.provide(layerAsking(() => says("a"), Moderator.layerOff, counted)));
});

const posting = (text: string, more: Partial<Parameters<Asking["Service"]["post"]>[1]> = {}) =>
  Asking.use((service) =>
    service.post(chatbot, { chatId: ChatId.make(1), text, ...more } as never),
  );
const metadata = { author: "Ann", at: [1, null] };

it.effect(
  "a post takes its turn between asks, and its entry has its text and metadata, no question and no usage",
  () => {
    const gate = Deferred.makeUnsafe<void>();
    return Effect.gen(function* () {
      const chatId = yield* newChat;
      const slow = yield* start(asking(ask("slow", { chatId })));
      const post = yield* start(posting("From Ann", { chatId, metadata }));
      const later = yield* start(asking(ask("later", { chatId })));
      assert.isUndefined(post.pollUnsafe());
      yield* Deferred.done(gate, Exit.void);
      yield* Fiber.join(slow);
      const { entry, replayed } = yield* Fiber.join(post);
      assert.deepInclude(entry, {
        question: "",
        answer: "From Ann",
        moderation: "none",
        flagged: false,
        metadata,
      });
      assert.isFalse(replayed);
      assert.strictEqual((yield* Fiber.join(later)).entry.answer, "after From Ann");
      assert.deepStrictEqual(yield* questionsOf(chatId), ["slow", "", "later"]);
    }).pipe(
      Effect.provide(
        layerAsking((question, earlier) =>
          question === "slow"
            ? gatedAnswer(gate)
            : Stream.unwrap(
                Effect.map(Stream.runCollect(earlier), ([last]) => says(`after ${last!.answer}`)),
              ),
        ),
      ),
    );
  },
);

const part = (metadata: Metadata) => Stream.make({ _tag: "Metadata", metadata } as const);
const concat = (...parts: ReadonlyArray<ReturnType<Answers>>) =>
  parts.reduce((all, part) => Stream.concat(all, part), Stream.empty as ReturnType<Answers>);

it.effect(
  "the fields of an answer's metadata parts are merged, a restart discards them, and a replay has them",
  () => {
    const answers: Readonly<Record<string, ReturnType<Answers>>> = {
      none: says("a"),
      merged: concat(part({ a: 1, b: 1 }), says("a"), part({ b: { c: [2] } })),
      restarted: concat(part({ a: 1 }), restart, part({ b: 2 }), says("a")),
      discarded: concat(part({ a: 1 }), restart, says("a")),
    };
    return Effect.gen(function* () {
      const expected = {
        none: null,
        merged: { a: 1, b: { c: [2] } },
        restarted: { b: 2 },
        discarded: null,
      };
      for (const [question, metadata] of Object.entries(expected))
        for (const idempotencyKey of [question, question]) {
          const { entry } = yield* asking(ask(question, { idempotencyKey }));
          assert.deepStrictEqual(entry.metadata, metadata);
        }
    }).pipe(Effect.provide(layerAsking((question) => answers[question]!)));
  },
);

it.effect(
  "an answer whose merged metadata is too large or cannot be stored fails at that part, and stores nothing",
  () => {
    const half = "x".repeat(8_200);
    let parts = 0;
    const counted = (metadata: object) =>
      Stream.tap(part(metadata as Metadata), () => Effect.sync(() => void parts++));
    const answers: Readonly<Record<string, ReturnType<Answers>>> = {
      "has more than 16384 bytes as JSON": concat(
        counted({ a: half }),
        counted({ b: half }),
        counted({ b: "" }),
      ),
      "contains a value that JSON cannot keep": concat(counted({ a: undefined }), counted({})),
      "NUL or a lone surrogate": concat(counted({ "\0": 1 }), counted({})),
    };
    return Effect.gen(function* () {
      const chatId = yield* newChat;
      for (const question of Object.keys(answers)) {
        const error = yield* Effect.flip(asking(ask(question, { chatId })));
        assert.strictEqual(error._tag, "AnswerUnavailable");
        assert.include(error.message, question);
      }
      assert.strictEqual(parts, 4);
      assert.deepStrictEqual(yield* questionsOf(chatId), []);
    }).pipe(Effect.provide(layerAsking((question) => Stream.rechunk(answers[question]!, 1))));
  },
);

it.effect("an ask whose answerer emits an unknown part fails with an error that names it", () =>
  Effect.gen(function* () {
    const error = yield* Effect.flip(asking(ask("q")));
    assert.include(error.message, "the answerer yielded a part with the unknown tag Sources");
  }).pipe(
    Effect.provide(layerAsking(() => concat(says("a"), Stream.make({ _tag: "Sources" } as never)))),
  ),
);

it.effect(
  "the stream of entry events has each entry that this process stores, once, with its chat and usage, but no replays",
  () =>
    Effect.gen(function* () {
      const events = yield* EntryEvents;
      const reader = yield* Stream.runCollect(Stream.take(events.stored, 2)).pipe(Effect.forkChild);
      yield* settle;
      const request = ask("q", { visitor: "ann", idempotencyKey: "k" });
      const [{ entry }] = yield* Effect.all([asking(request), asking(request)], { concurrency: 2 });
      yield* asking(request);
      const { chatId } = entry;
      const post = yield* Asking.use((service) => service.post(chatbot, { chatId, text: "t" }));
      const { createTime } = entry;
      const chat = { id: chatId, name: null, userRef: "ann", createTime };
      const stored = yield* Fiber.join(reader);
      assert.deepStrictEqual(
        stored.map(({ chat: _, ...event }) => event),
        [
          { chatbot: chatbot.id, entry, usage },
          { chatbot: chatbot.id, entry: post.entry, usage: null },
        ],
      );
      for (const event of stored) assert.deepInclude(event.chat, chat);
    }).pipe(
      Effect.provide(layerAsking(() => says("a")).pipe(Layer.provideMerge(layerEntryEvents))),
    ),
);
