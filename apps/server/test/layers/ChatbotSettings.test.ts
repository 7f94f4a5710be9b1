import * as NodeServices from "@effect/platform-node/NodeServices";
import { assert, it } from "@effect/vitest";
import { ChatbotId, defaultSettings, type Chatbot, type ChatbotSettings } from "@parley/core";
import { Answerer, Moderator } from "@parley/core/ports";
import { layerMemory } from "@parley/store-memory";
import { Effect, Exit, FileSystem, Layer, Path, Stream } from "effect";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { layerAnswerer, layerModerator } from "../../src/layers/AskingLayer.ts";
import { layerDocuments } from "../../src/layers/Documents.ts";
import { readSettings, Settings, type SettingsShape } from "../../src/Settings.ts";

const chatbot = (settings: Partial<ChatbotSettings>): Chatbot => ({
  id: ChatbotId.make(1),
  name: "Bot",
  description: "",
  workspaceName: "Workspace",
  settings: { ...defaultSettings, ...settings },
});

/** Some of the server's settings; a test that needs any others fails. */
const settingsOf = (settings: Partial<SettingsShape>) =>
  Layer.succeed(Settings, Settings.of(settings as SettingsShape));

const check = (settings: Partial<ChatbotSettings>) =>
  Effect.map(
    Effect.exit(Moderator.use((moderator) => moderator.check(chatbot(settings), "Are you open?"))),
    (exit) => (Exit.isSuccess(exit) ? exit.value.flagged : "failed"),
  );

it.effect(
  "a chatbot's moderator is the one that its settings name, or by default the server's; without an endpoint, no question passes it",
  () =>
    Effect.gen(function* () {
      for (const [fallback, moderation, outcome] of [
        ["endpoint", null, "failed"],
        ["endpoint", "off", false],
        ["off", "endpoint", "failed"],
        ["off", null, false],
      ] as const) {
        const settings = settingsOf({ moderation: { fallback, endpoint: null, failOpen: true } });
        const layer = Layer.provide(layerModerator, settings);
        assert.strictEqual(yield* Effect.provide(check({ moderation }), layer), outcome);
      }
    }),
);

it.live(
  "a question fails if the moderation endpoint fails, unless PARLEY_MODERATION_FAIL_OPEN is on",
  () =>
    Effect.gen(function* () {
      const flagging = JSON.stringify({ results: [{ flagged: true, categories: {} }] });
      const server = createServer((request, response) =>
        request.url!.startsWith("/flagging/")
          ? response.end(flagging)
          : response.writeHead(401).end(),
      );
      yield* Effect.promise(() => once(server.listen(0, "127.0.0.1"), "listening"));
      yield* Effect.addFinalizer(() => Effect.sync(() => server.close()));
      const { port } = server.address() as AddressInfo;
      for (const [path, failOpen, outcome] of [
        ["failing", "false", "failed"],
        ["failing", "true", false],
        ["flagging", "true", true],
      ] as const) {
        const { moderation } = yield* readSettings({
          PARLEY_MODERATION: "endpoint",
          PARLEY_MODERATION_BASE_URL: `http://127.0.0.1:${port}/${path}`,
          PARLEY_MODERATION_MODEL: "any",
          PARLEY_MODERATION_FAIL_OPEN: failOpen,
        });
        const layer = Layer.provide(layerModerator, settingsOf({ moderation }));
        assert.strictEqual(yield* Effect.provide(check({}), layer), outcome);
      }
    }).pipe(Effect.scoped),
);

/** The answerer with some of the server's settings. */
const layerAnswererWith = (settings: Partial<SettingsShape>) =>
  layerAnswerer.pipe(
    Layer.provide(layerDocuments(Stream.empty)),
    Layer.provideMerge(layerMemory),
    Layer.provide(settingsOf({ contextTokens: 32_000, llms: [], ...settings })),
  );

const folder = Effect.gen(function* () {
  const files = yield* FileSystem.FileSystem;
  const path = yield* Path.Path;
  const root = yield* files.makeTempDirectoryScoped({ prefix: "parley-documents-" });
  const write = Effect.fnUntraced(function* (name: string, title: string, hours: string) {
    yield* files.makeDirectory(path.join(root, name), { recursive: true });
    const text = `# ${title}\n\n${hours}\n`;
    yield* files.writeFileString(path.join(root, name, "hours.md"), text);
  });
  yield* write(".", "Opening hours", "From 9 to 17.");
  yield* write("office", "Opening hours of the office", "Always.");
  return root;
});

const ask = (settings: Partial<ChatbotSettings>, question = "Opening hours?") =>
  Answerer.use((answerer) =>
    answerer.answer(chatbot(settings), Stream.empty, question).pipe(
      Stream.runCollect,
      Effect.map((parts) => parts.map((part) => (part._tag === "Delta" ? part.text : "")).join("")),
      Effect.catchTag("AnswerUnavailable", ({ reason }) => Effect.succeed(`failed: ${reason}`)),
    ),
  );

it.live(
  "a chatbot answers from the subfolder that its settings name, or else from the whole folder",
  () =>
    Effect.gen(function* () {
      yield* Effect.gen(function* () {
        assert.match(yield* ask({}), /^From 9 to 17\./);
        assert.include(yield* ask({ knowledge: "office" }), "Always.");
        assert.include(yield* ask({ knowledge: "none" }), "failed: cannot read the documents in");
      }).pipe(Effect.provide(layerAnswererWith({ knowledgeDir: yield* folder })));
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer)),
);

it.live(
  "without PARLEY_KNOWLEDGE_DIR, a chatbot answers from this project's guide unless its settings name a subfolder",
  () =>
    Effect.gen(function* () {
      assert.include(yield* ask({ knowledge: "office" }), "PARLEY_KNOWLEDGE_DIR is not set");
      const text = yield* ask({}, "Can I use my own PostgreSQL database?");
      assert.match(
        text,
        /^\[Questions and answers › .*\]\(\/docs\/faq#can-i-use-my-own-postgresql-database\)$/m,
      );
      assert.include(text, "](/docs/operations#start-on-your-own-postgresql)");
    }).pipe(
      Effect.provide(layerAnswererWith({ knowledgeDir: null, pages: true })),
      Effect.provide(NodeServices.layer),
    ),
);
