/**
 * Answerers and moderators that are plain functions.
 */
import { assert, it } from "@effect/vitest";
import { Asking, AskLimits, layerParley } from "@parley/core";
import {
  ChatArchive,
  type AnswererFunction,
  type AskOrigin,
  type ModeratorFunction,
} from "@parley/core/ports";
import { layerMemoryWith } from "@parley/store-memory";
import { Duration, Effect, Layer, Stream } from "effect";
import { ask, asking, chatbot, newChat, questionsOf, usage } from "../services/asking/asked.ts";

const layerOf = (answerer: AnswererFunction, moderator?: ModeratorFunction) =>
  layerParley({
    store: layerMemoryWith([chatbot]),
    answerer,
    ...(moderator && { moderator }),
  });

const answerers: ReadonlyArray<readonly [string, AnswererFunction]> = [
  ["returns a string", ({ question }) => `${question}!`],
  ["returns a promise", async ({ question }) => `${question}!`],
  [
    "yields pieces",
    async function* ({ question }) {
      yield question;
      yield "!";
    },
  ],
  [
    "returns a promise of pieces",
    async ({ question }) => Stream.toAsyncIterable(Stream.make(question, "!")),
  ],
];
it.effect.each(answerers)("an answerer can be a function that %s", ([, answerer]) =>
  Effect.gen(function* () {
    const { entry } = yield* asking(ask("Hi"));
    assert.strictEqual(entry.answer, "Hi!");
  }).pipe(Effect.provide(layerOf(answerer))),
);

it.effect(
  "an answerer function receives the chatbot, and can read all earlier entries, newest first",
  () =>
    Effect.gen(function* () {
      const chatId = yield* newChat;
      for (let n = 0; n < 25; n++) yield* asking(ask(`${n}`, { chatId }));
      const { entry } = yield* asking(ask("last", { chatId }));
      const expected = Array.from({ length: 25 }, (_, n) => `${24 - n}`).join(" ");
      assert.strictEqual(entry.answer, `Bot: ${expected}`);
    }).pipe(
      Effect.provide(
        layerOf(async ({ chatbot, earlier, question }) => {
          const questions: Array<string> = [];
          if (question === "last")
            for await (const { question } of earlier) questions.push(question);
          return `${chatbot.name}: ${questions.join(" ")}`;
        }),
      ),
    ),
);

it.effect(
  "an answerer function and a moderator function receive the asker, the chat and the context",
  () => {
    const origins: Array<AskOrigin> = [];
    const note = ({ apiKeyId, chatId, context, userRef, visitor }: AskOrigin) =>
      void origins.push({ apiKeyId, chatId, context, userRef, visitor });
    const layer = layerOf(
      (call) => (note(call), "a"),
      (_question, _chatbot, _signal, origin) => (note(origin), null),
    );
    return Effect.gen(function* () {
      const context = { session: "s" };
      yield* asking(ask("q", { visitor: "ann", apiKeyId: "k", context }));
      const user = { userRef: "ann", visitor: "ann" };
      const origin = { chatId: null, ...user, apiKeyId: "k", context };
      assert.deepStrictEqual(origins, [origin, origin]);
      assert.strictEqual(origins[1]!.context, context);
    }).pipe(Effect.provide(layer));
  },
);

it.effect("an answerer function can yield its answer's usage", () =>
  Effect.gen(function* () {
    yield* asking(ask("Hi"));
    const [sum] = yield* ChatArchive.use((archive) =>
      archive.usage(chatbot.id, { since: new Date(0) }),
    );
    assert.strictEqual(sum?.model, usage.model);
  }).pipe(
    Effect.provide(
      layerOf(async function* () {
        yield "Hello";
        yield { _tag: "Usage", usage };
      }),
    ),
  ),
);

it.effect(
  "an ask whose answerer function throws fails with that error as its cause, and stores nothing",
  () =>
    Effect.gen(function* () {
      const chatId = yield* newChat;
      for (const question of ["before", "within"]) {
        const error = yield* Effect.flip(asking(ask(question, { chatId })));
        assert(error._tag === "AnswerUnavailable");
        assert.strictEqual((error.cause as Error).message, `secret ${question}`);
        assert.match(
          error.reason,
          /^the answerer threw RangeError at \S*functions\.test\.ts:\d+:\d+$/,
        );
      }
      assert.deepStrictEqual(yield* questionsOf(chatId), []);
    }).pipe(
      Effect.provide(
        layerOf(({ question }) => {
          if (question === "before") throw new RangeError("secret before");
          return (async function* () {
            yield "a";
            throw new RangeError("secret within");
          })();
        }),
      ),
    ),
);

it.effect(
  "an ask whose answerer function yields something else than text or a part fails with an error that names it",
  () =>
    Effect.gen(function* () {
      const usageWith = (change: object) => ({ _tag: "Usage", usage: { ...usage, ...change } });
      for (const [part, name] of [
        [undefined, "a value of type undefined instead of text or a part"],
        [7, "a value of type number instead of text or a part"],
        [{ _tag: "Sources", sources: [] }, "a part with the unknown tag Sources"],
        [{ _tag: "Metadata", metadata: [] }, "an invalid part with the tag Metadata"],
        [usageWith({ provider: "" }), "an invalid part with the tag Usage"],
        [usageWith({ promptTokens: "7" }), "an invalid part with the tag Usage"],
      ] as const) {
        const answerer = async function* () {
          yield "a";
          yield part as never;
        };
        const error = yield* Effect.flip(asking(ask("Hi"))).pipe(Effect.provide(layerOf(answerer)));
        assert.include(error.message, `the answerer yielded ${name}`);
      }
    }),
);

it.effect.each([undefined, 7, ["a"], Layer.empty])(
  "an ask whose answerer function returns %o fails with an error that says so",
  (value) =>
    Effect.gen(function* () {
      const exit = yield* Effect.exit(asking(ask("Hi")));
      assert.include(
        String(exit),
        `a value of type ${typeof value} instead of text or an async iterable`,
      );
    }).pipe(Effect.provide(layerOf(() => value as never))),
);

it.live(
  "an answerer function's signal is aborted if the ask is cancelled or times out, and only then",
  () => {
    const outcomes: Record<string, boolean> = {};
    const layer = layerOf(async function* ({ question, signal }) {
      signal.addEventListener("abort", () => (outcomes[question] = true));
      yield "a";
      if (question === "stored") return;
      await new Promise(() => {});
    }).pipe(
      Layer.provide(
        Layer.succeed(AskLimits, { ...AskLimits.defaultValue(), deadline: Duration.millis(100) }),
      ),
    );
    return Effect.gen(function* () {
      yield* asking(ask("stored"));
      yield* Asking.use((service) =>
        Stream.runHead(service.stream(chatbot, ask("cancelled", { onDisconnect: "cancel" }))),
      );
      yield* Effect.flip(asking(ask("slow")));
      while ((yield* Asking.use(({ inProgress }) => inProgress)) > 0) yield* Effect.yieldNow;
      assert.deepStrictEqual(outcomes, { cancelled: true, slow: true });
    }).pipe(Effect.provide(layer));
  },
);

it.effect(
  "a moderator function flags a question by returning a category, and fails the ask if it throws",
  () =>
    Effect.gen(function* () {
      assert.strictEqual((yield* asking(ask("fine"))).entry.answer, "a");
      const { entry } = yield* asking(ask("bad"));
      assert.strictEqual(entry.moderation, "Bot's category");
      assert.strictEqual(entry.answer, chatbot.settings.moderationErrorMessage);
      const error = yield* Effect.flip(asking(ask("broken")));
      assert.strictEqual(error._tag, "AnswerUnavailable");
    }).pipe(
      Effect.provide(
        layerOf(
          () => "a",
          async (question, { name }) => {
            if (question === "broken") throw new Error("secret");
            return question === "bad" ? `${name}'s category` : null;
          },
        ),
      ),
    ),
);

it.effect(
  "a moderator function lets a question pass if it returns nothing, and otherwise must name a category other than none",
  () =>
    Effect.gen(function* () {
      assert.strictEqual((yield* asking(ask("fine"))).entry.flagged, false);
      for (const [question, name] of [
        ["true", "a value of type boolean"],
        ['""', "a value of type string"],
        ['"none"', '"none"'],
      ] as const) {
        const { message } = yield* Effect.flip(asking(ask(question)));
        assert.include(message, `the moderator returned ${name} instead of a category or null`);
      }
    }).pipe(
      Effect.provide(
        layerOf(
          () => "a",
          (question) => (question === "fine" ? undefined : JSON.parse(question)) as never,
        ),
      ),
    ),
);
