import { Access, Asking, Chats, defaultSettings, type Chatbot } from "@parley/core";
import {
  Answerer,
  type AnswerPart,
  AnswerUnavailable,
  AskDeadline,
  Moderator,
} from "@parley/core/ports";
import { makeParley } from "@parley/core/promise";
import { layerMemoryWith } from "@parley/store-memory";
import { Clock, Effect, Layer, Stream } from "effect";
import { Digest } from "effect/crypto";

/** Stands for a service of yours that sends an answer in pieces. */
async function* callService(question: string, context: string, signal: AbortSignal) {
  if (question.includes("weather")) throw new Error("503");
  for (const word of [`(${context}) `, "You asked: ", question]) {
    signal.throwIfAborted();
    yield word;
  }
}

const ownAnswerer = Layer.succeed(
  Answerer,
  Answerer.of({
    answer: (_chatbot, earlier, question) =>
      Stream.unwrap(
        Effect.gen(function* () {
          const startedAt = yield* Clock.currentTimeMillis;
          const left = (yield* AskDeadline) - startedAt;
          // Newest first: take no more than the prompt has room for.
          const entries = yield* Stream.runCollect(Stream.take(earlier, 5));
          const context = `${entries.length} earlier`;
          const text = Stream.fromAsyncIterable(
            callService(question, context, AbortSignal.timeout(Math.min(left, 2 ** 31 - 1))),
            (cause) => new AnswerUnavailable({ reason: "the service failed", cause }),
          );
          const usage = Effect.map(Clock.currentTimeMillis, (now): AnswerPart => ({
            _tag: "Usage",
            usage: {
              provider: "my service",
              model: "v1",
              promptTokens: 0,
              completionTokens: 0,
              attempts: 1,
              latencyMillis: now - startedAt,
            },
          }));
          return text.pipe(
            Stream.map((piece): AnswerPart => ({ _tag: "Delta", text: piece })),
            Stream.concat(Stream.fromEffect(usage)),
          );
        }),
      ),
  }),
);

const ownModerator = Layer.succeed(
  Moderator,
  Moderator.of({
    check: (_chatbot, question) => {
      const flagged = /\S+@\S+\.\S+/.test(question);
      return Effect.succeed({ category: flagged ? "personal-data" : "none", flagged });
    },
  }),
);

const chatbot: Chatbot = {
  id: 1,
  name: "Helpdesk",
  description: "",
  workspaceName: "Acme",
  settings: { ...defaultSettings, moderationErrorMessage: "Please leave out e-mail addresses." },
};

const parley = makeParley(
  Layer.mergeAll(Access.layer, Chats.layer, Asking.layer).pipe(
    Layer.provide([layerMemoryWith([chatbot]), ownAnswerer, ownModerator, Digest.layerWebCrypto]),
  ),
);

let chatId: number | null = null;
for (const question of ["Hello?", "I am ann@acme.example.", "And now?", "How is the weather?"]) {
  try {
    const { entry } = await parley.ask(chatbot, { chatId, question });
    chatId = entry.chatId;
    console.log(entry.moderation, "|", entry.answer);
  } catch (error) {
    console.log((error as { readonly _tag: string })._tag);
  }
}
await parley.dispose();
