/**
 * The asks that wait in this process, for each chat in order of arrival. Each visitor has a queue of their own, as have
 * all other clients together, because waiting behind an ask in another user's chat would reveal that the chat exists.
 * Only the first ask of a queue tries to take the turn from the store, which keeps the order in which processes began to
 * wait for the chat. When an ask of this process leaves, it wakes the first asks; for the turn of another process, they
 * try again at an interval.
 */
import { Clock, Duration, Effect, Latch } from "effect";
import {
  AnswerStopped,
  BudgetSpent,
  Overloaded,
  type AskError,
  type OverloadReason,
} from "../../model/Errors.ts";
import type { ChatbotId } from "../../model/Ids.ts";
import type { TakeResult, Turn, TurnStore } from "../../ports/TurnStore.ts";
import type { AskLimits } from "./AskLimits.ts";
import { inSpan, makeBudgetGauges } from "../Telemetry.ts";

/** What the asks of an API key may cost per day (UTC). */
interface Budget {
  readonly apiKeyId: string;
  readonly tokensPerDay: number;
}

/**
 * What an ask needs before it can be answered: the turn of its chat and idempotency key, and tokens left in its API
 * key's daily budget.
 */
type TurnRequest = Pick<Turn, "chatbot" | "chatId" | "idempotencyKey"> & {
  readonly visitor: string | null;
  readonly budget: Budget | null;
};

type TurnOrAnswer = Extract<TakeResult, { readonly _tag: "TurnTaken" | "AlreadyAnswered" }>;

/** An ask's place among all asks in its chat in this process. */
interface Place {
  readonly visitor: string | null;
  /** Opened when the ask has become the first of its queue, or the chat's turn may be free. */
  readonly latch: Latch.Latch;
}

/** The retry intervals in milliseconds. That of a chat must be less than the store's `turnPrecedence`. */
const pollMillis = { chat: 250, key: 100 };

export const askOverload = (reason: OverloadReason) =>
  new Overloaded({ retryAfterSeconds: 1, reason });

export const makeChatQueues = (store: TurnStore["Service"], limits: AskLimits) =>
  Effect.gen(function* () {
    const chats = new Map<string | symbol, Array<Place>>();
    let isClosed = false;

    const noteBudget = yield* makeBudgetGauges;
    const checkBudget = (chatbot: ChatbotId, { apiKeyId, tokensPerDay }: Budget) =>
      Effect.flatMap(store.spending(chatbot, apiKeyId), ({ endsInMillis, tokens }) => {
        noteBudget(apiKeyId, tokens / tokensPerDay, endsInMillis);
        const retryAfterSeconds = Math.max(1, Math.ceil(endsInMillis / 1000));
        return tokens < tokensPerDay
          ? Effect.void
          : Effect.fail(new BudgetSpent({ apiKeyId, retryAfterSeconds }));
      });

    const take = Effect.fnUntraced(function* (request: TurnRequest) {
      const { budget, chatId, chatbot, idempotencyKey, visitor } = request;
      // For a new chat without an idempotency key, the store records no turn, so there is none to release.
      const takesNothing = chatId === null && idempotencyKey === null;
      if (budget !== null && takesNothing) yield* checkBudget(chatbot, budget);
      const result = yield* store.take(chatbot, chatId, idempotencyKey, visitor);
      if (result._tag === "Stopped") return yield* new AnswerStopped();
      // Replaying a stored answer costs nothing. If another ask holds the key, that ask may still store its answer,
      // which this ask then replays.
      const costsNothing =
        result._tag === "AlreadyAnswered" || (result._tag === "Held" && result.by === "key");
      if (budget !== null && !takesNothing && !costsNothing)
        yield* Effect.tapError(checkBudget(chatbot, budget), () =>
          result._tag === "TurnTaken" ? Effect.ignore(store.release(result.turn)) : Effect.void,
        );
      return result;
    });

    const findFirst = (places: ReadonlyArray<Place>, visitor: string | null) =>
      places.find((place) => place.visitor === visitor);

    const awaitTurn = Effect.fnUntraced(function* (
      request: TurnRequest,
      place: Place,
      places: ReadonlyArray<Place>,
    ): Effect.fn.Return<TurnOrAnswer, AskError> {
      const waitEnd = (yield* Clock.currentTimeMillis) + Duration.toMillis(limits.queueTimeout);
      while (true) {
        if (isClosed) return yield* askOverload("stopping");
        // Closed before the take, so that the ask does not miss a turn that ends between the take and the wait.
        place.latch.closeUnsafe();
        let retryMillis = Infinity;
        if (findFirst(places, place.visitor) === place) {
          const result = yield* take(request);
          if (result._tag !== "Held") return result;
          retryMillis = Math.min(pollMillis[result.by], result.forMillis + 1);
        }
        const millisLeft = waitEnd - (yield* Clock.currentTimeMillis);
        if (millisLeft <= 0) return yield* askOverload("chat_queue");
        yield* place.latch.await.pipe(
          Effect.timeoutOption(Math.min(retryMillis, millisLeft)),
          Effect.interruptible,
        );
      }
    });

    const inTurn = <A, E>(
      request: TurnRequest,
      use: (result: TurnOrAnswer) => Effect.Effect<A, E>,
    ): Effect.Effect<A, E | AskError> =>
      Effect.suspend(() => {
        const { chatId, chatbot, visitor } = request;
        // No other ask can wait for a chat that does not exist yet.
        const chat = chatId === null ? Symbol("a new chat") : `${chatbot}/${chatId}`;
        const places = chats.get(chat) ?? [];
        // The first ask of a queue tries to take the turn, so it does not count towards the limit.
        const isFull =
          places.filter((place) => place.visitor === visitor).length > limits.queueLimit;
        if (isFull) return Effect.fail(askOverload("chat_queue"));
        const place: Place = { visitor, latch: Latch.makeUnsafe() };
        places.push(place);
        chats.set(chat, places);
        return inSpan(awaitTurn(request, place, places), "take").pipe(
          Effect.flatMap(use),
          Effect.ensuring(
            Effect.sync(() => {
              places.splice(places.indexOf(place), 1);
              if (places.length === 0) chats.delete(chat);
              for (const other of places)
                if (findFirst(places, other.visitor) === other) other.latch.openUnsafe();
            }),
          ),
        );
      }).pipe(Effect.uninterruptible);

    const close = Effect.sync(() => {
      isClosed = true;
      for (const places of chats.values()) for (const { latch } of places) latch.openUnsafe();
    });

    return {
      /** Closes the queues: asks that have no turn yet, and all later asks, fail with `Overloaded`. */
      close,
      /**
       * Waits for the turn, or for the entry of an earlier request with the same key, and runs `use` with the result.
       * Fails with `Overloaded` if the queue is full or the wait takes too long. `use` runs uninterruptibly, because an
       * interruption between the take and `use` would leave the turn held; `use` can make parts of itself
       * interruptible.
       */
      inTurn,
    };
  });
