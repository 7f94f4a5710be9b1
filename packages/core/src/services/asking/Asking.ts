/**
 * Asks a chatbot. Each ask runs in a fiber of its own, so that it can outlive the request that started it, and so that
 * requests with the same idempotency key can share it.
 */
import {
  Cause,
  Context,
  Duration,
  Effect,
  Exit,
  Fiber,
  FiberSet,
  Layer,
  Option,
  Scheduler,
  Schema,
  Scope,
  Stream,
} from "effect";
import { Digest } from "effect/crypto";
import type { Ask, Post } from "../../model/Ask.ts";
import type { Chatbot } from "../../model/Chatbot.ts";
import { helloEntry } from "../../model/Entry.ts";
import {
  AnswerStopped,
  AskNotFound,
  IdempotencyKeyReused,
  type AskError,
  type Overloaded,
} from "../../model/Errors.ts";
import {
  IdempotencyKeyText,
  storedKeyOf,
  toIdempotencyKey,
  type IdempotencyKey,
} from "../../model/IdempotencyKey.ts";
import { type ChatbotId, ChatId } from "../../model/Ids.ts";
import { PostMetadata } from "../../model/Metadata.ts";
import { makeCheck } from "../../model/SchemaErrors.ts";
import { PostText, questionOf, Text } from "../../model/Text.ts";
import { Answerer } from "../../ports/Answerer.ts";
import { Moderator } from "../../ports/Moderator.ts";
import { TurnStore } from "../../ports/TurnStore.ts";
import { AskLimits } from "./AskLimits.ts";
import { EntryEvents } from "./EntryEvents.ts";
import { makeChatQueues, askOverload } from "./ChatQueue.ts";
import {
  LiveAnswer,
  type AnswerEvent,
  type AskResult,
  type CompletedAsk,
  type Progress,
  type KeepAlive,
} from "./LiveAnswer.ts";
import { makePlaces } from "../access/Places.ts";
import { inSpan, logAsk, makeAskTimes, operation } from "../Telemetry.ts";
import { answerInTurn } from "./TurnAnswer.ts";

interface AskInProgress {
  readonly chatbot: ChatbotId;
  readonly chatId: ChatId | null;
  readonly idempotencyKey: IdempotencyKey | null;
  readonly live: LiveAnswer;
  readonly fiber: Fiber.Fiber<CompletedAsk, AskError>;
}

/** Tracks the asks in progress in this process. A later request with the same idempotency key joins its ask. */
const makeAsksInProgress = Effect.fnUntraced(function* (events: EntryEvents) {
  const fibers = yield* FiberSet.make<CompletedAsk, AskError>();
  const byKey = new Map<string, AskInProgress>();
  const nameOf = (chatbot: ChatbotId, key: string) => `${chatbot}/${key}`;

  const find = (chatbot: ChatbotId, key: string | undefined) =>
    key === undefined ? undefined : byKey.get(nameOf(chatbot, key));

  const count = FiberSet.size(fibers);
  const awaitEmpty = FiberSet.awaitEmpty(fibers);

  const start = Effect.fnUntraced(function* (
    ask: Omit<AskInProgress, "fiber">,
    answer: Effect.Effect<CompletedAsk, AskError>,
  ) {
    const { chatbot, idempotencyKey, live } = ask;
    const fiber = yield* FiberSet.run(fibers, answer);
    const askInProgress = { ...ask, fiber };
    if (idempotencyKey !== null) byKey.set(nameOf(chatbot, idempotencyKey.key), askInProgress);
    fiber.addObserver((exit) => {
      forget(askInProgress);
      live.complete(live.isStopped && Exit.isFailure(exit) ? Exit.fail(new AnswerStopped()) : exit);
      const error = Exit.isFailure(exit) ? Cause.findErrorOption(exit.cause) : Option.none();
      if (Option.isSome(error)) events.publish("failure", error.value);
    });
    return askInProgress;
  });

  /** Removes the ask, so that a later request with the same key starts a new one. */
  const forget = (ask: AskInProgress) => {
    const { chatbot, idempotencyKey } = ask;
    if (find(chatbot, idempotencyKey?.key) === ask)
      byKey.delete(nameOf(chatbot, idempotencyKey!.key));
  };

  const cancel = (ask: AskInProgress) => {
    forget(ask);
    ask.fiber.interruptUnsafe();
  };

  /** Ends the ask, which then fails with `AnswerStopped`. */
  const stop = (ask: AskInProgress) => {
    ask.live.isStopped = true;
    cancel(ask);
  };

  return { find, start, cancel, stop, count, awaitEmpty };
});

const make = Effect.gen(function* () {
  const limits = yield* AskLimits;
  const events = yield* EntryEvents;
  const checkAsk = makeAskCheck(limits.questionLength);
  const store = yield* TurnStore;
  const services = {
    store,
    answerer: yield* Answerer,
    moderator: yield* Moderator,
    limits,
    events,
  };
  const digest = yield* Digest.Digest;
  const dispatcher = (yield* Scheduler.Scheduler).makeDispatcher();
  const queues = yield* makeChatQueues(store, limits);
  const asks = yield* makeAsksInProgress(events);
  /** A place for each request that waits for an entry, and for each ask that goes on without one. */
  const places = makePlaces(limits.asks);
  const overloadOf = (
    client: Pick<Ask, "apiKeyId" | "visitor" | "tokensPerDay">,
  ): Overloaded | null => {
    const most = client.tokensPerDay == null ? Infinity : limits.budgetedAsks;
    if (!places.isFull(client, most)) return null;
    return askOverload(places.isFull({}) ? "server_full" : "key_share");
  };
  const timeAsk = yield* makeAskTimes;

  const awaitTurnAndAnswer = (
    live: LiveAnswer,
    chatbot: Chatbot,
    ask: Ask,
    idempotencyKey: IdempotencyKey | null,
  ) =>
    Effect.suspend(() => {
      const times = timeAsk(chatbot.id);
      const { chatId, apiKeyId, tokensPerDay, visitor = null } = ask;
      const facts = { chatbot: chatbot.id, ...(chatId !== null && { chat: chatId }) };
      const budget = apiKeyId == null || tokensPerDay == null ? null : { apiKeyId, tokensPerDay };
      const request = { chatbot: chatbot.id, chatId, idempotencyKey, visitor, budget };
      return queues
        .inTurn(request, (result) => {
          times.onTurn();
          return result._tag === "AlreadyAnswered"
            ? Effect.succeed({ entry: result.entry, replayed: true, turnId: result.turnId })
            : answerInTurn(services, live, chatbot, result.turn, ask, times);
        })
        .pipe(
          (work) => inSpan(work, "turn", facts),
          Effect.onExit((exit) => logAsk(exit, times.onEnd())),
          Effect.annotateLogs(facts),
        );
    });

  /**
   * Starts the ask, or joins the ask in progress with the same key. The request counts as a reader of the answer until
   * the scope closes.
   */
  const startOrJoin = Effect.fnUntraced(function* (chatbot: Chatbot, ask: Ask) {
    const { chatId, idempotencyKey: keyText = null, question, visitor = null } = ask;
    yield* checkAsk(ask);
    const values = [chatId, question];
    const idempotencyKey = yield* toIdempotencyKey(digest, keyText, "ask", values, visitor);
    const existingAsk = asks.find(chatbot.id, idempotencyKey?.key);
    if (
      existingAsk !== undefined &&
      existingAsk.idempotencyKey!.fingerprint !== idempotencyKey!.fingerprint
    ) {
      return yield* new IdempotencyKeyReused();
    }
    const live = existingAsk?.live ?? new LiveAnswer(dispatcher);
    // Other asks may have taken the places that were free when the HTTP application called `overloadOf`.
    const overload = overloadOf(ask);
    if (overload !== null) return yield* overload;
    if (live.readers >= limits.readers) return yield* askOverload("readers");
    const freePlace = places.take(ask);
    live.readers++;
    const newAsk = { chatbot: chatbot.id, chatId, idempotencyKey, live };
    const askInProgress =
      existingAsk ??
      (yield* asks.start(newAsk, awaitTurnAndAnswer(live, chatbot, ask, idempotencyKey)));
    // `Effect.addFinalizer` would copy the whole context for each ask.
    yield* Scope.addFinalizer(
      yield* Effect.scope,
      Effect.sync(() => {
        const hasReaders = --live.readers > 0;
        if (!hasReaders && ask.onDisconnect === "cancel" && live.exit === null)
          asks.cancel(askInProgress);
        if (hasReaders) freePlace();
        else askInProgress.fiber.addObserver(freePlace);
      }),
    );
    return { ...askInProgress, isJoined: existingAsk !== undefined };
  }, Effect.uninterruptible);

  const askAndWait = Effect.fnUntraced(function* (
    chatbot: Chatbot,
    ask: Ask,
  ): Effect.fn.Return<AskResult, AskError, Scope.Scope> {
    const { fiber, isJoined, live } = yield* startOrJoin(chatbot, ask);
    const { entry, replayed } = yield* Effect.catchCause(Fiber.join(fiber), (cause) =>
      live.isStopped ? Effect.fail(new AnswerStopped()) : Effect.failCause(cause),
    );
    return { entry, replayed: replayed || isJoined };
  }, Effect.scoped);

  const stream = <P = never>(
    chatbot: Chatbot,
    ask: Ask,
    after: Progress | null = null,
    keepAlive: KeepAlive<P> | null = null,
  ): Stream.Stream<AnswerEvent | P, AskError> =>
    startOrJoin(chatbot, ask).pipe(
      Effect.map(({ isJoined, live }) => live.subscribe(after, isJoined, keepAlive)),
      Stream.unwrap,
    );

  const post = operation("Asking.post")(
    Effect.fnUntraced(function* (
      chatbot: Chatbot,
      post: Post,
    ): Effect.fn.Return<AskResult, AskError, Scope.Scope> {
      yield* checkPost(post);
      const { apiKeyId = null, chatId, metadata = null, requestId = null, text } = post;
      const { visitor = null } = post;
      const overload = overloadOf(post);
      if (overload !== null) return yield* overload;
      const freePlace = places.take(post);
      yield* Effect.addFinalizer(() => Effect.sync(freePlace));
      const values = [chatId, text, JSON.stringify(metadata)];
      const keyText = post.idempotencyKey ?? null;
      const idempotencyKey = yield* toIdempotencyKey(digest, keyText, "post", values, visitor);
      const request = { chatbot: chatbot.id, chatId, idempotencyKey, visitor, budget: null };
      const answer = { ...helloEntry(text), metadata, apiKeyId, requestId };
      return yield* queues.inTurn(request, (result) => {
        if (result._tag === "AlreadyAnswered")
          return Effect.succeed({ entry: result.entry, replayed: true });
        return store.append(result.turn, answer).pipe(
          Effect.catchTag("TurnLost", () => Effect.fail(askOverload("chat_queue"))),
          Effect.onError(() => Effect.ignore(store.release(result.turn))),
          Effect.map((entry) => {
            events.publish("entry", {
              chatbot: chatbot.id,
              chat: result.turn.chat!,
              entry,
              usage: null,
            });
            return { entry, replayed: false };
          }),
        );
      });
    }, Effect.scoped),
  );

  const stop = operation("Asking.stop")(
    Effect.fnUntraced(function* (chatbot: Chatbot, keyText: string, visitor: string | null = null) {
      yield* checkStop({ idempotencyKey: keyText });
      const key = storedKeyOf(keyText, visitor);
      const askInProgress = asks.find(chatbot.id, key);
      const waiting = askInProgress && {
        ...askInProgress.idempotencyKey!,
        chatId: askInProgress.chatId,
      };
      const result = yield* store.stop(chatbot.id, key, waiting ?? null);
      if (result === null) return yield* new AskNotFound();
      if (result._tag === "AlreadyAnswered")
        return { stopped: false, entry: result.entry } as const;
      if (askInProgress !== undefined) asks.stop(askInProgress);
      return { stopped: true } as const;
    }),
  );

  const drain = queues.close.pipe(
    Effect.andThen(asks.awaitEmpty),
    // The last attempt to store an entry may end five seconds after the deadline.
    Effect.timeoutOption(Duration.sum(limits.deadline, Duration.seconds(5))),
    Effect.asVoid,
  );
  yield* Effect.addFinalizer(() => drain);

  return {
    /**
     * Asks, and waits for the stored entry. Asks in a chat are answered one at a time, across all processes; each sees
     * the entries before it. If an ask fails, no entry is stored, except perhaps after `StorageUnavailable`.
     */
    ask: askAndWait,
    /**
     * Asks as `ask` does, and emits the answer in deltas as it arrives, then the stored entry. `after` is the progress
     * of a reader whose connection broke: the stream continues from there, or from the start if the progress belongs to
     * another turn.
     */
    stream,
    /**
     * Stores an entry without a question in a chat, in its turn. With an idempotency key, the same request returns the
     * same entry for 24 hours.
     */
    post,
    /**
     * Stops the ask with the idempotency key, in whichever process it runs: it ends at once in this process, and at its
     * next renewal in another. Each request with the key then fails with `AnswerStopped` for 24 hours. Returns the entry
     * if it was stored first, and fails with `AskNotFound` if there is no such ask.
     */
    stop,
    /** The number of asks in progress in this process, including those that are waiting. */
    inProgress: asks.count,
    /** Returns the error with which an ask of the client would fail now; `AskLimits` sets the bounds. */
    overloadOf,
    /**
     * Stops asks from taking turns in this process: asks that are waiting, and later asks, fail with `Overloaded`.
     * Completes when all answers in progress are stored or have failed, and at the latest five seconds after
     * `AskLimits.deadline` has elapsed. Closing the layer does the same.
     */
    drain,
  };
});

const checkStop = makeCheck(Schema.Struct({ idempotencyKey: IdempotencyKeyText }));

const checkPost = makeCheck(
  Schema.Struct({
    chatId: ChatId,
    text: PostText,
    metadata: Schema.optional(Schema.NullOr(PostMetadata)),
    idempotencyKey: Schema.optional(Schema.NullOr(IdempotencyKeyText)),
    apiKeyId: Schema.optional(Schema.NullOr(Schema.String)),
    visitor: Schema.optional(Schema.NullOr(Text)),
    requestId: Schema.optional(Schema.NullOr(Schema.String)),
  }),
);

const makeAskCheck = (questionLength: number) =>
  makeCheck(
    Schema.Struct({
      chatId: Schema.NullOr(ChatId),
      question: questionOf(questionLength),
      idempotencyKey: Schema.optional(Schema.NullOr(IdempotencyKeyText)),
      apiKeyId: Schema.optional(Schema.NullOr(Schema.String)),
      tokensPerDay: Schema.optional(Schema.NullOr(Schema.Int)),
      visitor: Schema.optional(Schema.NullOr(Text)),
      context: Schema.optional(Schema.Unknown),
      requestId: Schema.optional(Schema.NullOr(Schema.String)),
      onDisconnect: Schema.optional(Schema.Literals(["cancel", "finish"])),
    }),
  );

/** Answers questions, one at a time in each chat, across all processes. */
export class Asking extends Context.Service<Asking>()("@parley/core/Asking", { make }) {
  static readonly layer = Layer.effect(Asking, Asking.make);
}
