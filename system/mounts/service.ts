/**
 * What every program of this folder mounts: the handler over the memory store. Its model asks the test, at `GATE`, for
 * the second half of each answer.
 */
import { Access, Asking, Chats, defaultSettings, keyRecord } from "@parley/core";
import {
  Answerer,
  AnswerUnavailable,
  ChatbotRegistry,
  Moderator,
  type AnswerPart,
} from "@parley/core/ports";
import { makeWebHandler } from "@parley/http";
import { layerMemory } from "@parley/store-memory";
import { Effect, Layer, Stream } from "effect";
import { Digest } from "effect/crypto";
import process from "node:process";

const { GATE: gate, KEY: key } = process.env;

const register = Layer.effectDiscard(
  Effect.gen(function* () {
    const registry = yield* ChatbotRegistry;
    const helpdesk = {
      workspaceName: "Acme",
      name: "Helpdesk",
      description: "",
      settings: { ...defaultSettings, helloMessage: "Hello!" },
      keys: [yield* keyRecord(key!)],
    };
    yield* registry.create(helpdesk, "test");
  }),
);

const usage = {
  provider: "test",
  model: "test",
  promptTokens: 1,
  completionTokens: 1,
  attempts: 1,
  latencyMillis: 1,
};
const secondHalf = (question: string) =>
  Effect.tryPromise({
    try: async (signal) =>
      (await fetch(`${gate}/${encodeURIComponent(question)}`, { signal })).text(),
    catch: (error) => new AnswerUnavailable({ reason: String(error) }),
  });
const answerer = Answerer.of({
  answer: (_chatbot, _earlier, question) =>
    Stream.make<[AnswerPart]>({ _tag: "Delta", text: "one " }).pipe(
      Stream.concat(
        Stream.fromEffect(
          Effect.map(secondHalf(question), (text): AnswerPart => ({ _tag: "Delta", text })),
        ),
      ),
      Stream.concat(Stream.make<[AnswerPart]>({ _tag: "Usage", usage })),
    ),
});

export const { handler, ready } = makeWebHandler(
  Layer.mergeAll(Access.layer, Chats.layer, Asking.layer, register).pipe(
    Layer.provide([
      layerMemory,
      Layer.succeed(Answerer, answerer),
      Moderator.layerOff,
      Digest.layerWebCrypto,
    ]),
  ),
  { basePaths: { general: "/support/chatbot", answers: "/support/ask" } },
);

await ready;
