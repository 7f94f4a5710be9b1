import * as NodeServices from "@effect/platform-node/NodeServices";
import { assert, describe, it } from "@effect/vitest";
import { defaultSettings, type Chatbot, type ChatbotSettings } from "@parley/core";
import { Answerer, ChatbotRegistry, Moderator } from "@parley/core/ports";
import { layerMemory } from "@parley/store-memory";
import { Effect, Exit, FileSystem, Layer, Path, Stream } from "effect";
import { layerAnswerer } from "../../src/layers/Asking.ts";
import { layerDocuments } from "../../src/layers/Documents.ts";
import { layerModerator } from "../../src/layers/Moderator.ts";
import { Settings, type SettingsShape } from "../../src/Settings.ts";

const chatbot = (settings: Partial<ChatbotSettings>): Chatbot => ({
  id: 1,
  name: "Bot",
  description: "",
  workspaceName: "Workspace",
  settings: { ...defaultSettings, ...settings },
});

/** Some settings of the server; a test that needs another one fails. */
const settingsOf = (settings: Partial<SettingsShape>) =>
  Layer.succeed(Settings, Settings.of(settings as SettingsShape));

const rude = "What the fuck?";
const check = (settings: Partial<ChatbotSettings>) =>
  Effect.map(
    Effect.exit(Moderator.use((moderator) => moderator.check(chatbot(settings), rude))),
    (exit) => (Exit.isSuccess(exit) ? exit.value.flagged : "failed"),
  );

describe("the moderator of a chatbot", () => {
  const judged = (moderation: SettingsShape["moderation"]) =>
    Effect.provide(Layer.provide(layerModerator, settingsOf({ moderation })));

  it.effect("is the one that its settings name, or else the server's", () =>
    Effect.gen(function* () {
      assert.strictEqual(yield* check({ moderation: null }), true);
      assert.strictEqual(yield* check({ moderation: "words" }), true);
      assert.strictEqual(yield* check({ moderation: "off" }), false);
    }).pipe(judged({ fallback: "words", endpoint: null, failOpen: false })),
  );

  it.effect("lets no question pass when its settings name an endpoint that is not set", () =>
    Effect.gen(function* () {
      assert.strictEqual(yield* check({ moderation: "endpoint" }), "failed");
      assert.strictEqual(yield* check({ moderation: null }), false);
    }).pipe(judged({ fallback: "off", endpoint: null, failOpen: true })),
  );
});

describe("the documents that a chatbot answers from", () => {
  const folder = Effect.gen(function* () {
    const files = yield* FileSystem.FileSystem;
    const path = yield* Path.Path;
    const root = yield* files.makeTempDirectoryScoped({ prefix: "parley-documents-" });
    const write = Effect.fnUntraced(function* (name: string, hours: string) {
      yield* files.makeDirectory(path.join(root, name), { recursive: true });
      const text = `# Opening hours\n\n${hours}\n`;
      yield* files.writeFileString(path.join(root, name, "hours.md"), text);
    });
    yield* write("usual", "From 9 to 17.");
    yield* write("root/office", "Always.");
    return { usual: path.join(root, "usual"), root: path.join(root, "root") };
  });

  const ask = (settings: Partial<ChatbotSettings>) =>
    Answerer.use((answerer) =>
      answerer.answer(chatbot(settings), Stream.empty, "What are the opening hours?").pipe(
        Stream.runCollect,
        Effect.map(([part]) => (part?._tag === "Delta" ? part.text.split("\n")[0]! : "")),
        Effect.catchTag("AnswerUnavailable", ({ reason }) => Effect.succeed(`failed: ${reason}`)),
      ),
    );

  const served = (settings: Partial<SettingsShape>) =>
    layerAnswerer.pipe(
      Layer.provide(layerDocuments(Stream.empty)),
      Layer.provideMerge(layerMemory),
      Layer.provide(settingsOf({ contextTokens: 32_000, llms: [], ...settings })),
    );

  it.live("are in the folder that its settings name, or else in the default one", () =>
    Effect.gen(function* () {
      const { root, usual } = yield* folder;
      yield* Effect.gen(function* () {
        assert.strictEqual(yield* ask({}), "From 9 to 17.");
        assert.strictEqual(yield* ask({ knowledge: "office" }), "Always.");
        assert.include(yield* ask({ knowledge: "none" }), "failed: cannot read the documents in");
      }).pipe(Effect.provide(served({ knowledgeDir: usual, knowledgeRoot: root })));
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer)),
  );

  it.live("fail its asks alone when PARLEY_KNOWLEDGE_ROOT is not set", () =>
    Effect.gen(function* () {
      const { usual } = yield* folder;
      yield* Effect.gen(function* () {
        const registry = yield* ChatbotRegistry;
        assert.deepStrictEqual(yield* registry.list, []);
        assert.include(yield* ask({ knowledge: "office" }), "PARLEY_KNOWLEDGE_ROOT is not set");
        assert.strictEqual(yield* ask({}), "From 9 to 17.");
      }).pipe(Effect.provide(served({ knowledgeDir: usual, knowledgeRoot: null })));
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer)),
  );
});
