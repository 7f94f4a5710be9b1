import { assert, describe, it } from "@effect/vitest";
import {
  AnswerUnavailable,
  Asking,
  AskLimits,
  ChatArchive,
  ChatStore,
  Moderator,
  newestChats,
  StorageUnavailable,
  turnLease,
  TurnStore,
  type AnswerPart,
  type Entry,
} from "@parley/core";
import { layerMemory } from "@parley/store-memory";
import { Deferred, Duration, Effect, Exit, Fiber, Layer, Logger, Scope, Stream } from "effect";
import { TestClock } from "effect/testing";
import {
  ask,
  asking,
  chatbot,
  layerAsking,
  newChat,
  questionsOf,
  says,
  type Answers,
} from "./asked.ts";

const broken = (passing: boolean) => new AnswerUnavailable({ reason: "test", passing });

/** An answer that a test ends. */
const held = (gate: Deferred.Deferred<void>): Stream.Stream<AnswerPart> =>
  Stream.unwrap(Effect.as(Deferred.await(gate), says("done")));

const tagOf = (exit: Exit.Exit<unknown, { readonly _tag: string }>) =>
  Exit.isFailure(exit)
    ? exit.cause.reasons.map((reason) => (reason._tag === "Fail" ? reason.error._tag : reason._tag))
    : "success";

const total = ChatStore.use((store) =>
  Effect.map(store.listChats(chatbot.id, newestChats), (page) => page.total),
);

/** Lets every fiber do what it can without the time passing. */
const settle = Effect.repeat(Effect.yieldNow, { times: 50 });

describe("asking", () => {
  it.effect("stores the question with its answer, in a new chat if none is named", () =>
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

  it.effect("gives the answerer the unflagged entries before, newest first", () => {
    const seen: Array<ReadonlyArray<string>> = [];
    const answers: Answers = (question, earlier) =>
      Stream.unwrap(
        Effect.map(Stream.runCollect(earlier), (entries) => {
          seen.push(entries.map((entry) => entry.question));
          return says(question);
        }),
      );
    const moderator = Layer.succeed(
      Moderator,
      Moderator.of({
        check: (_, question) =>
          Effect.succeed(
            question === "bad"
              ? { category: "hate", flagged: true }
              : { category: "none", flagged: false },
          ),
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
      const asked = questions.filter((question) => question !== "bad");
      assert.deepStrictEqual(
        seen,
        asked.map((_, n) => asked.slice(0, n).toReversed()),
      );
    }).pipe(Effect.provide(layerAsking(answers, moderator)));
  });

  it.effect(
    "answers the asks of one chat in order of arrival, and those of another meanwhile",
    () =>
      Effect.gen(function* () {
        const gates = new Map<string, Deferred.Deferred<void>>();
        const layer = layerAsking((question) => {
          const gate = Deferred.makeUnsafe<void>();
          gates.set(question, gate);
          return held(gate);
        });
        yield* Effect.gen(function* () {
          const [chatId, other] = [yield* newChat, yield* newChat];
          const questions = Array.from({ length: 20 }, (_, n) => `q${n}`);
          const fibers = yield* Effect.forEach(questions, (question) =>
            Effect.tap(Effect.forkChild(asking(ask(question, { chatId }))), () => settle),
          );
          const elsewhere = yield* Effect.forkChild(asking(ask("elsewhere", { chatId: other })));
          yield* settle;
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

  it.effect("refuses more than 256 that wait in a chat", () =>
    Effect.gen(function* () {
      const chatId = yield* newChat;
      const store = yield* TurnStore;
      yield* store.take(chatbot.id, chatId, null);
      const fibers = yield* Effect.forEach(Array.from({ length: 258 }), (_, n) =>
        Effect.forkChild(Effect.exit(asking(ask(`q${n}`, { chatId })))),
      );
      yield* settle;
      const refused = fibers.filter((fiber) => fiber.pollUnsafe() !== undefined);
      assert.strictEqual(refused.length, 1);
      assert.deepStrictEqual(tagOf(yield* Fiber.join(refused[0]!)), ["Overloaded"]);
      // The others get their turns once the one who held it is given up.
      yield* TestClock.adjust(turnLease + 1);
      const waited = yield* Fiber.joinAll(fibers);
      assert.strictEqual(waited.filter(Exit.isSuccess).length, 257);
    }).pipe(Effect.provide(layerAsking(() => says("done")))),
  );

  it.effect("waits for a turn that another process holds at most a minute", () =>
    Effect.gen(function* () {
      const chatId = yield* newChat;
      const store = yield* TurnStore;
      const taken = yield* store.take(chatbot.id, chatId, null);
      if (taken._tag !== "Turn") return assert.fail("the turn is free");
      const waiting = yield* Effect.forkChild(Effect.exit(asking(ask("q", { chatId }))));
      for (let seconds = 0; seconds < 62; seconds += 3) {
        yield* TestClock.adjust("3 seconds");
        yield* store.renew(taken.turn);
      }
      assert.deepStrictEqual(tagOf(yield* Fiber.join(waiting)), ["Overloaded"]);
      assert.deepStrictEqual(yield* questionsOf(chatId), []);
    }).pipe(Effect.provide(layerAsking(() => says("done")))),
  );

  it.effect("is woken when another's turn ends", () =>
    Effect.gen(function* () {
      const chatId = yield* newChat;
      const store = yield* TurnStore;
      yield* settle;
      const taken = yield* store.take(chatbot.id, chatId, null);
      if (taken._tag !== "Turn") return assert.fail("the turn is free");
      const waiting = yield* Effect.forkChild(asking(ask("q", { chatId })));
      yield* settle;
      assert.isUndefined(waiting.pollUnsafe());
      yield* store.release(taken.turn);
      yield* settle;
      assert.isDefined(waiting.pollUnsafe());
    }).pipe(Effect.provide(layerAsking(() => says("done")))),
  );

  it.effect("takes over the turn of a process that was killed, within its lease", () =>
    Effect.gen(function* () {
      const chatId = yield* newChat;
      yield* TurnStore.use((store) => store.take(chatbot.id, chatId, null));
      const waiting = yield* Effect.forkChild(asking(ask("q", { chatId })));
      yield* TestClock.adjust(turnLease - 1);
      assert.isUndefined(waiting.pollUnsafe());
      yield* TestClock.adjust(2);
      assert.isDefined(waiting.pollUnsafe());
    }).pipe(Effect.provide(layerAsking(() => says("done")))),
  );

  it.effect("holds its turn while a slow answer comes, and frees it at the deadline", () =>
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
      assert.strictEqual(other._tag, "Turn");
      assert.deepStrictEqual(yield* questionsOf(chatId), []);
    }).pipe(Effect.provide(layerAsking(() => Stream.never))),
  );

  it.effect("stores nothing when its turn was lost meanwhile", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>();
      yield* Effect.gen(function* () {
        const chatId = yield* newChat;
        const late = yield* Effect.forkChild(Effect.exit(asking(ask("late", { chatId }))));
        yield* settle;
        // The process stood still for longer than its lease.
        yield* TestClock.adjust(turnLease + 1);
        const taken = yield* TurnStore.use((store) => store.take(chatbot.id, chatId, null));
        assert.strictEqual(taken._tag, "Turn");
        yield* Deferred.succeed(gate, undefined);
        assert.deepStrictEqual(tagOf(yield* Fiber.join(late)), ["AnswerUnavailable"]);
        assert.deepStrictEqual(yield* questionsOf(chatId), []);
      }).pipe(
        Effect.provide(layerAsking(() => held(gate))),
        Effect.provideService(AskLimits, {
          ...AskLimits.defaultValue(),
          renewal: Duration.hours(1),
        }),
      );
    }),
  );

  it.effect("stores nothing in a chat that was erased meanwhile, and says that there is none", () =>
    Effect.gen(function* () {
      let gate = yield* Deferred.make<void>();
      yield* Effect.gen(function* () {
        const archive = yield* ChatArchive;
        for (const [more, millis] of [
          [{}, 0],
          [{ key: "key" as any }, 0],
          [{}, turnLease],
          [{ key: "key" as any }, turnLease],
        ] as const) {
          gate = yield* Deferred.make<void>();
          const chatId = yield* newChat;
          const late = yield* Effect.forkChild(
            Effect.exit(asking(ask("late", { chatId, ...more }))),
          );
          yield* settle;
          assert.strictEqual(yield* archive.erase(chatbot.id, { _tag: "Chat", id: chatId }), 1);
          // It learns of it when it renews its turn, or when it is through.
          yield* TestClock.adjust(millis);
          yield* Deferred.succeed(gate, undefined);
          assert.deepStrictEqual(tagOf(yield* Fiber.join(late)), ["ChatNotFound"]);
        }
        assert.strictEqual(yield* total, 0);
      }).pipe(Effect.provide(layerAsking(() => Stream.suspend(() => held(gate)))));
    }),
  );

  it.effect("is finished and stored when the one who asked is gone", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>();
      yield* Effect.gen(function* () {
        const chatId = yield* newChat;
        const fiber = yield* Effect.forkChild(asking(ask("q", { chatId })));
        yield* settle;
        yield* Fiber.interrupt(fiber);
        yield* Deferred.succeed(gate, undefined);
        yield* settle;
        assert.deepStrictEqual(yield* questionsOf(chatId), ["q"]);
      }).pipe(Effect.provide(layerAsking(() => held(gate))));
    }),
  );

  it.effect("is in the log when it fails and nobody is left to be told", () =>
    Effect.gen(function* () {
      const logged: Array<string> = [];
      const logger = Logger.make((entry) => {
        logged.push(Logger.formatJson.log(entry));
      });
      let gate = yield* Deferred.make<void>();
      let fails: Effect.Effect<never, AnswerUnavailable | StorageUnavailable>;
      const layer = layerAsking(() => Stream.unwrap(Effect.andThen(Deferred.await(gate), fails)));
      for (const [failure, expected] of [
        [Effect.fail(broken(false)), ["AnswerUnavailable", '"test"']],
        [Effect.fail(new StorageUnavailable({ cause: "gone" })), ["StorageUnavailable", "gone"]],
        [Effect.die(new Error("a mistake")), ["A request met a defect", "a mistake"]],
      ] as const) {
        fails = failure;
        for (const onHangUp of ["finish", "cancel"] as const) {
          for (const hangsUp of [true, false]) {
            logged.length = 0;
            gate = yield* Deferred.make<void>();
            yield* Effect.gen(function* () {
              const chatId = yield* newChat;
              const fiber = yield* Effect.forkChild(
                Effect.exit(asking(ask("q", { chatId, onHangUp }))),
              );
              yield* settle;
              if (hangsUp) yield* Fiber.interrupt(fiber);
              yield* Deferred.succeed(gate, undefined);
              yield* settle;
            }).pipe(Effect.provide([layer, Logger.layer([logger])], { local: true }));
            if (!hangsUp || onHangUp === "cancel") assert.deepStrictEqual(logged, []);
            else {
              assert.strictEqual(logged.length, 1);
              for (const text of expected) assert.include(logged[0]!, text);
            }
          }
        }
      }
    }),
  );

  it.effect("ends with the one who asked if he wants that, and stores nothing", () =>
    Effect.gen(function* () {
      const closed = yield* Deferred.make<void>();
      const layer = layerAsking(() =>
        Stream.ensuring(Stream.never, Deferred.succeed(closed, undefined)),
      );
      yield* Effect.gen(function* () {
        const chatId = yield* newChat;
        const fiber = yield* Effect.forkChild(asking(ask("q", { chatId, onHangUp: "cancel" })));
        yield* settle;
        yield* Fiber.interrupt(fiber);
        yield* settle;
        assert.isTrue(yield* Deferred.isDone(closed));
        assert.deepStrictEqual(yield* questionsOf(chatId), []);
        const other = yield* TurnStore.use((store) => store.take(chatbot.id, chatId, null));
        assert.strictEqual(other._tag, "Turn");
      }).pipe(Effect.provide(layer));
    }),
  );

  it.effect("is cancelled only when nobody waits for its key any more", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>();
      let calls = 0;
      const layer = layerAsking(() => {
        calls++;
        return held(gate);
      });
      yield* Effect.gen(function* () {
        const keyed = ask("q", { key: "key" as any, onHangUp: "cancel" });
        const fibers = yield* Effect.forEach(Array.from({ length: 100 }), () =>
          Effect.forkChild(asking(keyed)),
        );
        yield* settle;
        yield* Fiber.interruptAll(fibers.slice(0, 99));
        yield* Deferred.succeed(gate, undefined);
        const { entry, replayed } = yield* Fiber.join(fibers[99]!);
        assert.isTrue(replayed);
        assert.strictEqual(calls, 1);
        assert.deepStrictEqual(yield* asking(keyed), { entry, replayed: true });
        assert.strictEqual(yield* total, 1);
      }).pipe(Effect.provide(layer));
    }),
  );

  it.effect(
    "tries again what broke off in a way that passes, unless somebody saw a part of it",
    () =>
      Effect.gen(function* () {
        let calls = 0;
        const layer = layerAsking(() =>
          ++calls % 3 === 0
            ? says("whole")
            : Stream.concat(
                Stream.make({ _tag: "Delta" as const, text: "half" }),
                Stream.fromEffect(Effect.delay(Effect.fail(broken(true)), 10)),
              ),
        );
        yield* Effect.gen(function* () {
          const plain = yield* Effect.forkChild(asking(ask("q")));
          yield* TestClock.adjust("5 seconds");
          assert.strictEqual((yield* Fiber.join(plain)).entry.answer, "whole");
          assert.strictEqual(calls, 3);
          const streamed = yield* Effect.forkChild(
            Asking.use((service) =>
              Effect.exit(Stream.runDrain(service.stream(chatbot, ask("r")))),
            ),
          );
          yield* TestClock.adjust(100);
          assert.deepStrictEqual(tagOf(yield* Fiber.join(streamed)), ["AnswerUnavailable"]);
          assert.strictEqual(calls, 4);
          assert.strictEqual(yield* total, 1);
        }).pipe(Effect.provide(layer));
      }),
  );

  it.effect("waits as long as it is told before it tries again", () =>
    Effect.gen(function* () {
      let calls = 0;
      const retryAfterMillis = 20_000;
      const failing = new AnswerUnavailable({ reason: "test", passing: true, retryAfterMillis });
      const layer = layerAsking(() => (++calls % 2 === 1 ? Stream.fail(failing) : says("back")));
      yield* Effect.gen(function* () {
        const asked = yield* Effect.forkChild(asking(ask("q")));
        yield* TestClock.adjust(retryAfterMillis - 1);
        assert.strictEqual(calls, 1);
        yield* TestClock.adjust(300);
        assert.strictEqual((yield* Fiber.join(asked)).entry.answer, "back");
      }).pipe(Effect.provide(layer));
    }),
  );

  it.effect("fails at once when a try can help only after its deadline", () =>
    Effect.gen(function* () {
      let calls = 0;
      const told = { reason: "test", passing: true, retryAfterMillis: 10_000 };
      const layer = layerAsking(() => {
        calls++;
        return Stream.fail(new AnswerUnavailable(told));
      });
      yield* Effect.gen(function* () {
        const asked = yield* Effect.forkChild(Effect.exit(asking(ask("q"))));
        // The third wait would end after half a minute.
        yield* TestClock.adjust("21 seconds");
        assert.deepStrictEqual(tagOf(yield* Fiber.join(asked)), ["AnswerUnavailable"]);
        assert.strictEqual(calls, 3);
      }).pipe(Effect.provide(layer));
    }),
  );

  it.effect("shows nobody a piece of what is tried again", () =>
    Effect.gen(function* () {
      let calls = 0;
      const layer = layerAsking(() =>
        ++calls === 1
          ? Stream.concat(says("a longer half"), Stream.fail(broken(true)))
          : Stream.concat(says("whole"), Stream.fromEffectDrain(Effect.sleep("1 second"))),
      );
      yield* Effect.gen(function* () {
        const keyed = ask("q", { key: "key" as any });
        const plain = yield* Effect.forkChild(asking(keyed));
        yield* settle;
        // Comes in the pause between the tries.
        const reader = yield* Effect.forkChild(
          Asking.use((service) => Stream.runCollect(service.stream(chatbot, keyed))),
        );
        yield* TestClock.adjust("2 seconds");
        const events = yield* Fiber.join(reader);
        assert.deepStrictEqual(
          events.map((event) => (event._tag === "Delta" ? event.text : event.entry.answer)),
          ["whole", "whole"],
        );
        assert.strictEqual((yield* Fiber.join(plain)).entry.answer, "whole");
      }).pipe(Effect.provide(layer));
    }),
  );

  it.effect("stores nothing, and makes no chat, when no answer comes", () =>
    Effect.gen(function* () {
      for (const answers of [
        () => Stream.fail(broken(false)),
        () => says(),
        () => says("", " \n"),
        () => Stream.concat(says("half"), Stream.fail(broken(false))),
        () => Stream.die("a defect"),
      ]) {
        yield* Effect.gen(function* () {
          const chatId = yield* newChat;
          const fibers = yield* Effect.forEach(
            [ask("q"), ask("q", { chatId }), ask("q", { chatId, key: "key" as any })],
            (one) => Effect.forkChild(Effect.exit(asking(one))),
          );
          yield* TestClock.adjust("20 seconds");
          const exits = yield* Fiber.joinAll(fibers);
          assert.isTrue(exits.every(Exit.isFailure));
          assert.strictEqual(yield* total, 1);
          assert.deepStrictEqual(yield* questionsOf(chatId), []);
          const turns = yield* TurnStore;
          const key = { key: "key", fingerprint: "another" };
          assert.strictEqual((yield* turns.take(chatbot.id, chatId, key))._tag, "Turn");
        }).pipe(Effect.provide(layerAsking(answers)));
      }
    }),
  );

  it.effect("keeps of a category what every store can keep", () => {
    const moderator = Moderator.of({
      check: () => Effect.succeed({ category: "a\0\ud83d", flagged: true }),
    });
    return Effect.gen(function* () {
      const { entry } = yield* asking(ask("q"));
      assert.strictEqual(entry.moderation, "a\ufffd");
    }).pipe(Effect.provide(layerAsking(() => says("a"), Layer.succeed(Moderator, moderator))));
  });

  it.effect("keeps of an answer what every store can keep, cut off at its length", () => {
    const entries: Array<Entry> = [];
    return Effect.gen(function* () {
      const { entry } = yield* asking(ask("q"));
      entries.push(entry);
      assert.strictEqual(entry.answer, "a😀\ufffdb" + "x".repeat(100_000 - 5));
    }).pipe(
      Effect.provide(
        layerAsking(() => says("a\0\ud83d", "\ude00", "\ud83d", "b", "x".repeat(200_000))),
      ),
    );
  });

  it.effect("is cut off between code points, and not before it must be", () => {
    const long = "x".repeat(99_999);
    return Effect.gen(function* () {
      for (const [pieces, kept] of [
        [[`${long}😀`, "tail"], long],
        [[long, "\ud83d", "\ude00", "tail"], long],
        [[long, "y"], `${long}y`],
        [[`${long}y`, "", "z"], `${long}y`],
      ] as const) {
        const { entry } = yield* asking(ask("q")).pipe(
          Effect.provide(layerAsking(() => says(...pieces))),
        );
        assert.strictEqual(entry.answer.length, kept.length);
        assert.isTrue(entry.answer === kept);
      }
    });
  });

  it.effect("is stored with a cost that every store can keep, however it was counted", () => {
    const counted = (n: number): AnswerPart => ({
      _tag: "Usage",
      usage: {
        provider: "p\0",
        model: "m\ud800",
        promptTokens: n,
        completionTokens: n,
        attempts: n,
        latencyMillis: n,
      },
    });
    const counts = [12.5, 1e30, -3, Number.NaN, Infinity, undefined as never];
    const answers = (question: string) =>
      Stream.concat(
        Stream.make({ _tag: "Delta", text: "a" } as const),
        Stream.make(counted(counts[Number(question)]!)),
      );
    return Effect.gen(function* () {
      for (const n of counts.keys()) yield* asking(ask(`${n}`));
      const sums = yield* ChatArchive.use((archive) => archive.usage(chatbot.id, new Date(0)));
      const most = Number.MAX_SAFE_INTEGER;
      const all = 13 + most + 0 + 0 + most;
      assert.deepStrictEqual(sums, [
        {
          provider: "p",
          model: "m\ufffd",
          answers: 6,
          attempts: 13 + 2 * (2 ** 31 - 1),
          promptTokens: all,
          completionTokens: all,
        },
      ]);
    }).pipe(Effect.provide(layerAsking(answers)));
  });

  describe("that is cut off", () => {
    const long = says("x".repeat(150_000));
    const longText = Stream.take(long, 1);
    const usageStored = ChatArchive.use((archive) => archive.usage(chatbot.id, new Date(0)));

    it.effect("is stored with what it cost, and shows no reader more than is stored", () => {
      const answers = () =>
        Stream.concat(longText, Stream.fromEffectDrain(Effect.sleep("4 seconds"))).pipe(
          Stream.concat(says("y", "z")),
        );
      return Effect.gen(function* () {
        const reader = yield* Effect.forkChild(
          Asking.use((service) => Stream.runCollect(service.stream(chatbot, ask("q")))),
        );
        yield* TestClock.adjust("4 seconds");
        const [delta, entry, ...more] = yield* Fiber.join(reader);
        assert.strictEqual(delta?._tag === "Delta" && delta.text.length, 100_000);
        assert.strictEqual(entry?._tag === "Entry" && entry.entry.answer.length, 100_000);
        assert.deepStrictEqual(more, []);
        assert.containsSubset(yield* usageStored, [{ answers: 1, promptTokens: 1 }]);
      }).pipe(Effect.provide(layerAsking(answers)));
    });

    for (const [name, rest, seconds] of [
      ["does not end", Stream.never, 5],
      ["says as much again", Stream.concat(long, Stream.die("read on")), 0],
      ["breaks off later", Stream.fail(broken(true)), 0],
    ] as const) {
      it.effect(`and ${name} is stored without`, () =>
        Effect.gen(function* () {
          const asked = yield* Effect.forkChild(asking(ask("q")));
          yield* TestClock.adjust(`${seconds} seconds`);
          yield* settle;
          assert.strictEqual((yield* Fiber.join(asked)).entry.answer.length, 100_000);
          assert.deepStrictEqual(yield* usageStored, []);
        }).pipe(Effect.provide(layerAsking(() => Stream.concat(longText, rest)))),
      );
    }

    it.effect("just before its deadline is stored all the same", () => {
      const late = Stream.concat(Stream.fromEffectDrain(Effect.sleep("29 seconds")), longText);
      return Effect.gen(function* () {
        const asked = yield* Effect.forkChild(asking(ask("q")));
        yield* TestClock.adjust("30 seconds");
        yield* settle;
        assert.strictEqual((yield* Fiber.join(asked)).entry.answer.length, 100_000);
      }).pipe(Effect.provide(layerAsking(() => Stream.concat(late, Stream.never))));
    });
  });

  describe("that leaves the line of a chat", () => {
    /** A store whose chats are all held by another, unless `free`. */
    const crowded = () => {
      const left: Array<readonly [number, number]> = [];
      const now: { free: boolean; taken: number; slow?: Deferred.Deferred<void> } = {
        free: false,
        taken: 0,
      };
      const stores = Layer.effect(
        TurnStore,
        Effect.map(TurnStore, (store) =>
          TurnStore.of({
            ...store,
            take: (...request) => {
              now.taken++;
              return now.free
                ? store.take(...request)
                : Effect.succeed({ _tag: "Held", forMillis: 10_000, by: "chat" });
            },
            leave: (...place) =>
              Effect.andThen(
                now.slow === undefined ? Effect.void : Deferred.await(now.slow),
                Effect.sync(() => void left.push(place)),
              ),
          }),
        ),
      ).pipe(Layer.provideMerge(layerMemory));
      return { left, now, layer: layerAsking(() => says("done"), Moderator.layerOff, stores) };
    };

    it.effect("gives up the place when nobody else of this process wants it", () => {
      const { layer, left } = crowded();
      return Effect.gen(function* () {
        const chatId = yield* newChat;
        const cancelled = yield* Effect.forEach([1, 2], (n) =>
          Effect.forkChild(asking(ask(`q${n}`, { chatId, onHangUp: "cancel" }))),
        );
        yield* settle;
        const patient = yield* Effect.forkChild(Effect.exit(asking(ask("q", { chatId }))));
        yield* settle;
        yield* Fiber.interruptAll(cancelled);
        yield* settle;
        assert.deepStrictEqual(left, []);
        yield* TestClock.adjust("61 seconds");
        assert.deepStrictEqual(tagOf(yield* Fiber.join(patient)), ["Overloaded"]);
        assert.deepStrictEqual(left, [[chatbot.id, chatId]]);
      }).pipe(Effect.provide(layer));
    });

    it.effect("lets nobody into the line before it has left", () => {
      const { layer, left, now } = crowded();
      return Effect.gen(function* () {
        const chatId = yield* newChat;
        now.slow = Deferred.makeUnsafe();
        const cancelled = yield* Effect.forkChild(asking(ask("q", { chatId, onHangUp: "cancel" })));
        yield* settle;
        assert.strictEqual(now.taken, 1);
        const leaving = yield* Effect.forkChild(Fiber.interrupt(cancelled));
        yield* settle;
        const next = yield* Effect.forkChild(asking(ask("r", { chatId })));
        yield* settle;
        assert.strictEqual(now.taken, 1);
        now.free = true;
        yield* Deferred.succeed(now.slow, undefined);
        yield* Fiber.join(leaving);
        yield* Fiber.join(next);
        assert.strictEqual(now.taken, 2);
        assert.deepStrictEqual(left, [[chatbot.id, chatId]]);
      }).pipe(Effect.provide(layer));
    });

    it.effect("has none to give up after its turn", () => {
      const { layer, left, now } = crowded();
      return Effect.gen(function* () {
        const chatId = yield* newChat;
        const asked = yield* Effect.forkChild(asking(ask("q", { chatId })));
        yield* settle;
        now.free = true;
        yield* TestClock.adjust("1 second");
        yield* Fiber.join(asked);
        assert.deepStrictEqual(left, []);
      }).pipe(Effect.provide(layer));
    });

    it.effect("does so when it is given what its key made before", () => {
      const { layer, left, now } = crowded();
      return Effect.gen(function* () {
        const chatId = yield* newChat;
        const keyed = ask("q", { chatId, key: "key" as any });
        now.free = true;
        const { entry } = yield* asking(keyed);
        now.free = false;
        const again = yield* Effect.forkChild(asking(keyed));
        yield* settle;
        now.free = true;
        yield* TestClock.adjust("1 second");
        assert.strictEqual((yield* Fiber.join(again)).entry.id, entry.id);
        assert.deepStrictEqual(left, [[chatbot.id, chatId]]);
      }).pipe(Effect.provide(layer));
    });
  });

  it.effect("is woken by the end of another's turn also while the service stops", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make();
      const context = yield* Layer.build(layerAsking(() => says("done"))).pipe(
        Scope.provide(scope),
      );
      yield* Effect.gen(function* () {
        const chatId = yield* newChat;
        const store = yield* TurnStore;
        const taken = yield* store.take(chatbot.id, chatId, null);
        if (taken._tag !== "Turn") return assert.fail("the turn is free");
        const waiting = yield* Effect.forkChild(asking(ask("q", { chatId })));
        yield* settle;
        const stopped = yield* Effect.forkChild(Scope.close(scope, Exit.void));
        yield* settle;
        assert.isUndefined(stopped.pollUnsafe());
        yield* store.release(taken.turn);
        yield* settle;
        // No time has passed.
        assert.strictEqual((yield* Fiber.join(waiting)).entry.question, "q");
        yield* Fiber.join(stopped);
      }).pipe(Effect.provide(context));
    }),
  );
});
