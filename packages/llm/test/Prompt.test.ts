import { assert, describe, it } from "@effect/vitest";
import { Effect, Ref, Stream } from "effect";
import { countTokens } from "gpt-tokenizer/encoding/o200k_base";
import {
  type Knowledge,
  layerLanguageModel,
  type LanguageModelOptions,
  layerOffline,
  makeKnowledge,
} from "../src/index.ts";
import { passagesOfMarkdown } from "../src/Passage.ts";
import { bytes, tokenCountFor } from "../src/TokenCount.ts";
import { answerOf, chatbotWith, collect, entry } from "./chat.ts";
import { modelThat, promptOf, says } from "./models.ts";

const modelCalled = (name: string) => {
  const model = modelThat(() => says("ok"));
  Object.assign(model, { modelId: name });
  return model;
};

/** What `content` tokens leave room for that many, beside what goes around messages. */
const windowFor = (content: number, messages: number): LanguageModelOptions => ({
  contextTokens: content + messages * 8 + 32 + 100,
  maxOutputTokens: 100,
});

/** A chat of `total` entries, read in pages of 100, that counts the pages. */
const longChat = (total: number, text: (n: number) => string) => {
  const read = { pages: 0 };
  const page = (newest: number): Stream.Stream<ReturnType<typeof entry>> =>
    newest === 0
      ? Stream.empty
      : Stream.suspend(() => {
          read.pages++;
          const size = Math.min(100, newest);
          return Stream.concat(
            Stream.fromIterable(
              Array.from({ length: size }, (_, n) => {
                const id = newest - n;
                return entry(id, `q${id}`, text(id));
              }),
            ),
            page(newest - size),
          );
        });
  return { read, earlier: page(total) };
};

describe("the context budget", () => {
  it.effect("takes the newest entries that fit, whole, in bytes, and pulls no more", () => {
    const model = modelCalled("unknown");
    let pulled = 0;
    const earlier = Stream.range(1, 1000).pipe(
      Stream.rechunk(1),
      Stream.tap(() => Effect.sync(() => pulled++)),
      // 2 characters, 4 bytes each
      Stream.map((n) => entry(1001 - n, "é", "ü")),
    );
    return Effect.gen(function* () {
      yield* collect("qqq", earlier, chatbotWith("iii"));
      assert.strictEqual(promptOf(model).length, 1 + 2 * 2 + 1);
      assert.strictEqual(pulled, 3);
    }).pipe(Effect.provide(layerLanguageModel(model, windowFor(3 + 3 + 4 + 4 + 3, 6))));
  });

  it.effect("asks without the chat when the question alone fills it", () => {
    const model = modelCalled("unknown");
    return Effect.gen(function* () {
      yield* collect("question", Stream.die("pulled"), chatbotWith(null));
      assert.deepStrictEqual(promptOf(model), [{ role: "user", content: "question" }]);
    }).pipe(Effect.provide(layerLanguageModel(model, windowFor(8, 1))));
  });

  it.effect("reads of a chat of 10 000 entries only the pages that it needs", () => {
    const model = modelCalled("unknown");
    const { earlier, read } = longChat(10_000, () => "a".repeat(195));
    return Effect.gen(function* () {
      yield* collect("Hi?", earlier);
      assert.strictEqual(promptOf(model).length % 2, 1);
      assert.isAbove(promptOf(model).length, 200);
      assert.isAtMost(read.pages, 2);
    }).pipe(Effect.provide(layerLanguageModel(model)));
  });

  it.effect("asks for as much output as it leaves room for", () => {
    const model = modelCalled("unknown");
    return Effect.gen(function* () {
      yield* collect("Hi?");
      assert.strictEqual(model.doStreamCalls[0]?.maxOutputTokens, 4096);
    }).pipe(Effect.provide(layerLanguageModel(model)));
  });

  it.effect("leaves room for the chat in a small window, too", () => {
    const model = modelCalled("unknown");
    return Effect.gen(function* () {
      const { earlier } = longChat(100, () => "a".repeat(100));
      yield* collect("Hi?", earlier);
      assert.strictEqual(model.doStreamCalls[0]?.maxOutputTokens, 500);
      // Each entry takes 103 bytes and 16 for what goes around its two messages, of 1457.
      assert.strictEqual(promptOf(model).length, 1 + 2 * 12);
    }).pipe(Effect.provide(layerLanguageModel(model, { contextTokens: 2000 })));
  });

  const words = [
    "Straße",
    "漢字",
    "😀😀",
    "hello",
    "<|endoftext|>",
    "\n\n\n",
    "x".repeat(70),
    "1234567",
  ];
  const mixed = (n: number) =>
    Array.from({ length: 30 }, (_, k) => words[(n * 7 + k * k) % words.length]).join(" ");
  const text = { disallowedSpecial: new Set<string>() };

  for (const name of ["gpt-4o", "openai/gpt-5-mini", "unknown"]) {
    it.effect(`is never exceeded by what is really sent: ${name}`, () => {
      const model = modelCalled(name);
      return Effect.gen(function* () {
        const { earlier } = longChat(500, mixed);
        yield* collect("Hi?", earlier, chatbotWith("Be kind."));
        const prompt = promptOf(model);
        const tokens = prompt.reduce((sum, { content }) => sum + countTokens(content, text) + 4, 3);
        assert.isAtMost(tokens, 4000);
        // By the count of the model's own encoding there is room for more than by bytes.
        if (name === "unknown") assert.isAtMost(prompt.length, 40);
        else assert.isAbove(prompt.length, 60);
      }).pipe(
        Effect.provide(layerLanguageModel(model, { contextTokens: 4500, maxOutputTokens: 500 })),
      );
    });
  }

  it.effect("counts exactly for models that are known, else in bytes", () =>
    Effect.gen(function* () {
      for (const name of ["gpt-4o-2024-08-06", "gpt-4", "o3-mini", "openai/gpt-4.1"]) {
        assert.strictEqual((yield* tokenCountFor(name))("Hello world"), 2, name);
      }
      for (const name of ["gpt-4o-mine", "llama3.2", "gpt-99", "constructor", "gpt-constructor"]) {
        assert.strictEqual(yield* tokenCountFor(name), bytes, name);
      }
      const count = yield* tokenCountFor("gpt-4o");
      assert.isAbove(count("<|endoftext|>"), 1);
      const startedAt = performance.now();
      for (const endless of ["a", "漢", "!", " ", "é", "a\u0301"]) {
        assert.isAbove(count(endless.repeat(50_000)), 1000);
      }
      assert.isBelow(performance.now() - startedAt, 2000);
    }),
  );
});

const documents = makeKnowledge([
  ...passagesOfMarkdown("guide.md", "# Guide\n## Backups\nRun the dump every night."),
  ...passagesOfMarkdown("faq.md", "# FAQ\n## Shipping\nShipping to Austria takes three days."),
]);

describe("documents for a model", () => {
  it.effect("go into the system's message with their source, the question does not", () => {
    const model = modelCalled("unknown");
    return Effect.gen(function* () {
      const knowledge = yield* documents;
      yield* collect("Shipping time to Austria?", Stream.empty, chatbotWith("Be kind.")).pipe(
        Effect.provide(layerLanguageModel(model, { knowledge })),
      );
      const [system, user, ...rest] = promptOf(model);
      assert(system?.role === "system");
      assert.isTrue(system.content.startsWith("Be kind.\n\n"));
      assert.include(
        system.content,
        "[Source: faq.md > FAQ > Shipping]\nShipping to Austria takes three days.",
      );
      assert.notInclude(system.content, "dump");
      assert.notInclude(system.content, "Shipping time");
      assert.deepStrictEqual(user, { role: "user", content: "Shipping time to Austria?" });
      assert.deepStrictEqual(rest, []);
    });
  });

  it.effect("that do not cover the question are said to", () => {
    const model = modelCalled("unknown");
    return Effect.gen(function* () {
      const knowledge = yield* documents;
      yield* collect("Who won the world cup?").pipe(
        Effect.provide(layerLanguageModel(model, { knowledge })),
      );
      const [system] = promptOf(model);
      assert(system?.role === "system");
      assert.include(system.content, "The documents hold nothing about the user's question.");
      assert.notInclude(system.content, "cup");
    });
  });

  it.effect("stay out when there are none", () => {
    const model = modelCalled("unknown");
    return Effect.gen(function* () {
      for (const knowledge of [null, yield* makeKnowledge([])]) {
        yield* collect("Hi?").pipe(Effect.provide(layerLanguageModel(model, { knowledge })));
      }
      assert.deepStrictEqual(promptOf(model, 0), [{ role: "user", content: "Hi?" }]);
      assert.deepStrictEqual(promptOf(model, 1), [{ role: "user", content: "Hi?" }]);
    });
  });

  it.effect("are left out whole when they do not fit, before the chat is", () => {
    const model = modelCalled("unknown");
    return Effect.gen(function* () {
      const long = (n: number) => `## Backups ${n}\n${`backup ${"x".repeat(70)} `.repeat(14)}`;
      const knowledge = yield* makeKnowledge(
        passagesOfMarkdown("guide.md", Array.from({ length: 5 }, (_, n) => long(n)).join("\n")),
      );
      yield* collect("backup?", Stream.make(entry(1, "One?", "1"))).pipe(
        Effect.provide(
          layerLanguageModel(model, {
            knowledge,
            contextTokens: 6000,
            maxOutputTokens: 500,
          }),
        ),
      );
      const [system, ...messages] = promptOf(model);
      assert.strictEqual(system?.content.split("[Source: ").length, 1 + 2);
      assert.strictEqual(messages.length, 3);
    });
  });

  it.effect("can be read anew while answers go on", () => {
    const model = modelCalled("unknown");
    return Effect.gen(function* () {
      const held = yield* Ref.make<Knowledge | null>(null);
      const knowledge = () => Ref.get(held);
      yield* Effect.gen(function* () {
        yield* collect("Which backups?");
        yield* Ref.set(held, yield* documents);
        yield* collect("Which backups?");
      }).pipe(Effect.provide(layerLanguageModel(model, { knowledge })));
      assert.strictEqual(promptOf(model, 0).length, 1);
      assert.include(promptOf(model, 1)[0]?.content, "Run the dump every night.");

      yield* Effect.gen(function* () {
        assert.include(yield* answerOf("Which backups?"), "Run the dump every night.");
        yield* Ref.set(held, null);
        assert.include(yield* answerOf("Which backups?"), "Neither a language model");
      }).pipe(Effect.provide(layerOffline(knowledge)));
    });
  });
});
