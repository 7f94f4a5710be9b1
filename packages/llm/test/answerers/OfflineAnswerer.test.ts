import { assert, it } from "@effect/vitest";
import { defaultSettings, type ChatbotSettings } from "@parley/core";
import { Effect, Stream } from "effect";
import { type Knowledge, layerOffline, makeKnowledge } from "../../src/index.ts";
import { passagesOf } from "../../src/documents/Passage.ts";
import { ask, chatbotWith, textOf } from "../support/chat.ts";

const readme = `# Parley
A chatbot conversation service with two HTTP interfaces.
## Quick start
Clone the repository and run \`pnpm start\`. The server listens on port 3000 and prints an API key.
## Settings
Read from the environment once, at start.

| name | default | what |
|---|---|---|
| \`PARLEY_PORT\` | 3000 | port of both interfaces |
| \`PARLEY_CORS_ORIGINS\` | unset | origins that browsers may call from |
## Chats
Creating a chat stores the hello message as its first entry. A chat's name has up to 255 characters;
change it never. The API description is written in capital letters.
## Idempotency
Send an \`Idempotency-Key\` header so that a retry is answered with the first answer.
`;
const faq = "We are open from 9 to 17.\n\nShipping to Austria takes three days.";

const knowledge = makeKnowledge([
  ...passagesOf("README.md", readme),
  ...passagesOf("faq.txt", faq),
]);

const answer = (
  question: string,
  from: Effect.Effect<Knowledge | null> = knowledge,
  settings: Partial<ChatbotSettings> = {},
) =>
  Effect.gen(function* () {
    const chatbot = { ...chatbotWith(null), settings: { ...defaultSettings, ...settings } };
    const parts = yield* ask(question, Stream.empty, chatbot).pipe(
      Stream.runCollect,
      Effect.provide(layerOffline(yield* from)),
    );
    const metadata = parts.find((part) => part._tag === "Metadata")?.metadata;
    return { text: textOf(parts), metadata };
  });

it.effect("layerOffline quotes the best passage whole and two others in short, with titles", () =>
  Effect.gen(function* () {
    const guide = (name: string) =>
      `# ${name}\nA chat of ${name} goes away. ${"It takes time. ".repeat(30)}`;
    const passages = ["a", "b", "c", "d"].flatMap((name) => passagesOf(`${name}.md`, guide(name)));
    const { metadata, text } = yield* answer("How does a chat go away?", makeKnowledge(passages));
    const [best, second, third, ...more] = text.split("\n\n---\n\n");
    assert.match(best!, /^A chat of a goes away\..*time\.\n\na$/s);
    assert.isAbove(best!.length, 400);
    for (const other of [second!, third!]) {
      assert.match(other, /^A chat of [bcd] goes away\..*time\.\n\n[bcd]$/s);
      assert.isBelow(other.length, 330);
    }
    assert.deepStrictEqual(more, []);
    assert.deepStrictEqual(Object.keys(metadata ?? {}), ["sources"]);
    assert.lengthOf(metadata!["sources"] as ReadonlyArray<unknown>, 3);
  }),
);

it.effect(
  "layerOffline links sources by the chatbot's `sourceUrl`, without the endings of files",
  () =>
    Effect.gen(function* () {
      const settings = { sourceUrl: "https://docs.example/{path}#{heading}" };
      const { metadata, text } = yield* answer("What is idempotency?", knowledge, settings);
      const url = "https://docs.example/README#idempotency";
      assert.isTrue(
        text.startsWith(
          `Send an \`Idempotency-Key\` header so that a retry is answered with the first answer.\n\n[Parley › Idempotency](${url})`,
        ),
        text,
      );
      assert.deepInclude(metadata!["sources"], { title: "Parley › Idempotency", url });
      const deep = makeKnowledge(passagesOf("a b/index.md", "# Apples (red)\nApples."));
      const other = yield* answer("apples", deep, settings);
      assert.deepStrictEqual(other.metadata, {
        sources: [{ title: "Apples (red)", url: "https://docs.example/a%20b/#apples-red" }],
      });
    }),
);

it.effect(
  "layerOffline names sources by their titles alone if the chatbot has no `sourceUrl`",
  () =>
    Effect.gen(function* () {
      const { metadata, text } = yield* answer("Do you ship to Austria?");
      assert.match(
        text,
        /^We are open from 9 to 17\.\n\nShipping to Austria takes three days\.\n\nfaq/,
      );
      assert.notInclude(text, ".txt");
      assert.deepInclude(metadata!["sources"], { title: "faq" });
    }),
);

it.effect(
  "layerOffline resolves links between documents, and keeps only the text of those that lead nowhere",
  () =>
    Effect.gen(function* () {
      const deep =
        "# Deep\n[a](other.md) [b](../up.md#x) [c](#here) [d](https://a.example) [e](../../out.md) [f](pic.png) ![g](p.svg) `[h](i.md)` [share](\\\\<server>\\files) [j](<k l.md>) [m](%zz.md)";
      const others = ["sub/other.md", "up.md", "sub/k l.md"];
      const from = makeKnowledge([
        ...passagesOf("sub/deep.md", deep),
        ...others.flatMap((source) => passagesOf(source, "# Other\nA page.")),
      ]);
      const plain = yield* answer("deep", from);
      assert.include(plain.text, "a b c [d](https://a.example) e f g `[h](i.md)` share j m");
      const { text } = yield* answer("deep", from, {
        sourceUrl: "https://s.example/{path}#{heading}",
      });
      assert.include(
        text,
        "[a](https://s.example/sub/other) [b](https://s.example/up#x) [c](https://s.example/sub/deep#here) [d](https://a.example) e f g `[h](i.md)` share [j](https://s.example/sub/k%20l) m",
      );
    }),
);

it.effect(
  "if it finds nothing, layerOffline answers with the chatbot's message and says so in the metadata",
  () =>
    Effect.gen(function* () {
      const settings = { notFoundMessage: "Ask [us](mailto:us@a.example)." };
      for (const from of [knowledge, makeKnowledge([]), Effect.succeed(null)]) {
        for (const question of ["Xylophon?", "???", ""]) {
          assert.deepStrictEqual(yield* answer(question, from, settings), {
            text: settings.notFoundMessage,
            metadata: { found: false },
          });
        }
      }
    }),
);
