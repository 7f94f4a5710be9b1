import { assert, it } from "@effect/vitest";
import { Effect, Stream } from "effect";
import { layerLanguageModel, type LanguageModelOptions, makeKnowledge } from "../../src/index.ts";
import { passagesOf } from "../../src/documents/Passage.ts";
import { chatbotWith, collect, entry } from "../support/chat.ts";
import { modelThat, promptOf, says } from "../support/models.ts";

/** A context window with room for the answer and for this many tokens of content in this many messages. */
const windowFor = (content: number, messages: number): LanguageModelOptions => ({
  contextTokens: content + messages * 8 + 32 + 100,
  maxOutputTokens: 100,
});

/** Entries whose answers have this many bytes, newest first, and a count of the entries read. */
const chatOf = (total: number, bytes: number) => {
  const read = { entries: 0 };
  const earlier = Stream.range(1, total).pipe(
    Stream.rechunk(1),
    Stream.tap(() => Effect.sync(() => void read.entries++)),
    Stream.map((n) => entry(total + 1 - n, "q", "ä".repeat(bytes / 2))),
  );
  return { earlier, read };
};

it.effect(
  "a prompt includes the newest entries that fit, each in full, and reading stops at the first that does not",
  () => {
    const model = modelThat(() => says("ok"));
    const { earlier, read } = chatOf(1000, 10);
    return Effect.gen(function* () {
      yield* collect("qqq", earlier, chatbotWith("iii"));
      assert.strictEqual(promptOf(model).length, 1 + 2 * 2 + 1);
      assert.strictEqual(read.entries, 3);
    }).pipe(Effect.provide(layerLanguageModel(model, windowFor(1 + 1 + (1 + 4) * 2, 6))));
  },
);

it.effect(
  "a prompt's token budget is the context window minus the tokens reserved for the answer",
  () =>
    Effect.gen(function* () {
      for (const [contextTokens, output, entries] of [
        [2000, 500, 26],
        [32_000, 4096, 506],
      ] as const) {
        const model = modelThat(() => says("ok"));
        yield* collect("Hi?", chatOf(10_000, 114).earlier).pipe(
          Effect.provide(layerLanguageModel(model, { contextTokens })),
        );
        assert.strictEqual(model.doStreamCalls[0]?.maxOutputTokens, output);
        // Each entry takes 39 tokens, plus 8 for each of its two messages.
        assert.strictEqual(promptOf(model).length, 1 + 2 * entries);
      }
    }),
);

it.effect(
  "a question of 20,000 characters keeps the prompt within its budget: the chat gets only the room that is left",
  () => {
    const model = modelThat(() => says("ok"));
    const { earlier, read } = chatOf(1000, 3000);
    return Effect.gen(function* () {
      for (const character of ["x", "ä", "🙂"]) yield* collect(character.repeat(20_000), earlier);
      const sizes = [0, 1, 2].map((index) =>
        promptOf(model, index).reduce(
          (sum, { content }) => sum + Math.ceil(Buffer.byteLength(String(content)) / 3) + 8,
          32,
        ),
      );
      assert.isTrue(sizes.every((size) => size > 26_000 && size <= 32_000 - 4096));
      assert.isBelow(read.entries, 45);
    }).pipe(Effect.provide(layerLanguageModel(model)));
  },
);

const documents = makeKnowledge([
  ...passagesOf("guide.md", "# Guide\n## Backups\nRun the dump every night."),
  ...passagesOf("faq.md", "# FAQ\n## Shipping\nShipping to Austria takes three days."),
]);

it.effect(
  "a prompt's system message contains passages of the documents with their sources, but not the question",
  () => {
    const model = modelThat(() => says("ok"));
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
  },
);

it.effect(
  "a prompt says that the documents do not cover the question, unless there are no documents",
  () => {
    const model = modelThat(() => says("ok"));
    return Effect.gen(function* () {
      for (const knowledge of [yield* documents, null]) {
        yield* collect("Xylophone cups?").pipe(
          Effect.provide(layerLanguageModel(model, { knowledge })),
        );
      }
      const [system, user] = promptOf(model);
      assert.include(system?.content, "The documents do not cover the user's question.");
      assert.notInclude(system?.content, "cup");
      assert.deepStrictEqual(promptOf(model, 1), [user]);
    });
  },
);

it.effect(
  "passages that do not fit into a prompt are left out in full, and the others leave room for the chat",
  () => {
    const model = modelThat(() => says("ok"));
    return Effect.gen(function* () {
      const long = (n: number) => `## Backups ${n}\n${`backup ${"x".repeat(70)} `.repeat(14)}`;
      const knowledge = yield* makeKnowledge(
        passagesOf("guide.md", Array.from({ length: 5 }, (_, n) => long(n)).join("\n")),
      );
      yield* collect("backup?", Stream.make(entry(1, "One?", "1"))).pipe(
        Effect.provide(
          layerLanguageModel(model, { knowledge, contextTokens: 2700, maxOutputTokens: 500 }),
        ),
      );
      const [system, ...messages] = promptOf(model);
      assert.strictEqual(system?.content.split("[Source: ").length, 1 + 2);
      assert.strictEqual(messages.length, 3);
    });
  },
);
