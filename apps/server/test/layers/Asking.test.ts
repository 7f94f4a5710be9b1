import * as NodeServices from "@effect/platform-node/NodeServices";
import { assert, it } from "@effect/vitest";
import { ChatbotId, defaultSettings } from "@parley/core";
import { Answerer } from "@parley/core/ports";
import { layerMemory } from "@parley/store-memory";
import { Deferred, Effect, Fiber, Layer, Stream } from "effect";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { makeRequestQueue, RequestQueue } from "../../src/http/RequestQueue.ts";
import { layerAnswerer } from "../../src/layers/Asking.ts";
import { layerDocuments } from "../../src/layers/Documents.ts";
import { Settings, type SettingsShape } from "../../src/Settings.ts";

const chatbot = {
  id: ChatbotId.make(1),
  name: "Bot",
  description: "",
  workspaceName: "Workspace",
  settings: defaultSettings,
};

const completion = JSON.stringify({
  id: "m",
  object: "chat.completion.chunk",
  created: 1,
  model: "m",
  choices: [{ index: 0, delta: { role: "assistant", content: "Fine." }, finish_reason: "stop" }],
});

it.live("the answer of a model is read when the event loop has a slot for it", () =>
  Effect.gen(function* () {
    const server = createServer((_, response) =>
      response
        .writeHead(200, { "content-type": "text/event-stream" })
        .end(`data: ${completion}\n\ndata: [DONE]\n\n`),
    );
    yield* Effect.promise(() => once(server.listen(0, "127.0.0.1"), "listening"));
    yield* Effect.addFinalizer(() => Effect.sync(() => server.close()));
    const { port } = server.address() as AddressInfo;
    const baseUrl = `http://127.0.0.1:${port}/v1`;
    const llms = [{ baseUrl, apiKey: undefined, model: "m" }];
    const slot = yield* Deferred.make<void>();
    const arrival = yield* Deferred.make<void>();
    const queue = {
      ...makeRequestQueue(),
      awaitAnswerSlot: () =>
        Effect.runPromise(
          Effect.andThen(Deferred.succeed(arrival, undefined), Deferred.await(slot)),
        ),
    };
    const layer = layerAnswerer.pipe(
      Layer.provide(layerDocuments(Stream.empty)),
      Layer.provideMerge(layerMemory),
      Layer.provide(Layer.succeed(RequestQueue, queue)),
      Layer.provide(
        Layer.succeed(
          Settings,
          Settings.of({
            contextTokens: 32_000,
            knowledgeDir: null,
            llms,
          } as unknown as SettingsShape),
        ),
      ),
    );
    const answer = Answerer.use((answerer) =>
      Stream.runCollect(answerer.answer(chatbot, Stream.empty, "How are you?")),
    );
    const fiber = yield* Effect.forkChild(Effect.provide(answer, layer));
    yield* Deferred.await(arrival);
    assert.isUndefined(fiber.pollUnsafe());
    yield* Deferred.succeed(slot, undefined);
    const [first] = yield* Fiber.join(fiber);
    assert.deepStrictEqual(first, { _tag: "Delta", text: "Fine." });
  }).pipe(Effect.scoped, Effect.provide(NodeServices.layer)),
);
