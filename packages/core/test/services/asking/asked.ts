/**
 * `Asking` over the memory store, with an answerer that the test controls.
 */
import {
  ChatbotId,
  type ChatId,
  Asking,
  defaultEntryQuery,
  type Ask,
  type Chatbot,
  type Entry,
  defaultSettings,
} from "@parley/core";
import {
  Answerer,
  ChatStore,
  type AnswerPart,
  type AnswerUnavailable,
  type StorageUnavailable,
  Moderator,
  unflagged,
} from "@parley/core/ports";
import { layerMemoryWith } from "@parley/store-memory";
import { Effect, Layer, Stream } from "effect";
import { Digest } from "effect/crypto";
import { createHash } from "node:crypto";

export const chatbot: Chatbot = {
  id: ChatbotId.make(1),
  name: "Bot",
  description: "",
  workspaceName: "Workspace",
  settings: { ...defaultSettings, moderationErrorMessage: "That is not allowed." },
};

export const usage = {
  provider: "test",
  model: "test",
  promptTokens: 1,
  completionTokens: 1,
  attempts: 1,
  latencyMillis: 1,
};

export type Answers = (
  question: string,
  earlier: Stream.Stream<Entry, StorageUnavailable>,
) => Stream.Stream<AnswerPart, AnswerUnavailable | StorageUnavailable>;

/** Computes digests synchronously, so that the test decides the order of events. */
const layerDigest = Layer.succeed(Digest.Digest, {
  digest: (_, data) => Effect.sync(() => createHash("sha256").update(data).digest()),
  digestHex: (_, data) => Effect.sync(() => createHash("sha256").update(data).digest("hex")),
});

/** An answer that arrives in these pieces. */
export const says = (...texts: ReadonlyArray<string>): Stream.Stream<AnswerPart> =>
  Stream.fromIterable([
    ...texts.map((text) => ({ _tag: "Delta" as const, text })),
    { _tag: "Usage" as const, usage },
  ]);

/** A moderator that flags one question. */
export const flagging = (flaggedQuestion: string) =>
  Layer.succeed(Moderator, {
    check: (_, question) =>
      Effect.succeed(
        question === flaggedQuestion ? { category: "hate", flagged: true } : unflagged,
      ),
  });

export const layerAsking = (
  answers: Answers,
  moderator = Moderator.layerOff,
  stores: ReturnType<typeof layerMemoryWith> = layerMemoryWith([chatbot]),
) =>
  Asking.layer.pipe(
    Layer.provide([
      moderator,
      layerDigest,
      Layer.succeed(
        Answerer,
        Answerer.of({
          answer: (_, earlier, question) => Stream.suspend(() => answers(question, earlier)),
        }),
      ),
    ]),
    Layer.provideMerge(stores),
  );

export const ask = (question: string, more: Partial<Ask> = {}): Ask => ({
  chatId: null,
  question,
  ...more,
});

export const asking = (request: Ask) => Asking.use((service) => service.ask(chatbot, request));

/** Lets the other fibers run as far as they can without the clock advancing. */
export const settle = Effect.repeat(Effect.yieldNow, { times: 50 });

/** Starts a fiber, and lets it run as far as it can without the clock advancing. */
export const start = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.tap(Effect.forkChild(effect), () => settle);

/** Creates a chat without entries. */
export const newChat = ChatStore.use((store) =>
  Effect.map(
    store.createChat(chatbot.id, { name: null, userRef: null, helloMessage: null }, null),
    ({ chat }) => chat.id,
  ),
);

/** Returns a chat's questions, oldest first. */
export const questionsOf = (chat: ChatId) =>
  ChatStore.use((store) =>
    Effect.map(
      store.listEntries(chatbot.id, chat, { ...defaultEntryQuery, limit: 100 }),
      ({ items }) => items.map(({ question }) => question).toReversed(),
    ),
  );
