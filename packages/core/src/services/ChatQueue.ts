/**
 * The queues of each chat: one for each visitor, and one for all other clients. In a queue, this process's asks wait in
 * order of arrival. The first ask tries to take the turn from the store, which does not wait for a turn that is
 * held, but keeps the order in which processes began to wait for the chat.
 */
import { Clock, Deferred, Duration, Effect, Stream } from "effect";
import { BudgetSpent, Overloaded, type AskError } from "../model/Errors.ts";
import type { ChatbotId } from "../model/Ids.ts";
import type { TakeResult, Turn, TurnStore } from "../ports/TurnStore.ts";
import type { AskLimits } from "./AskLimits.ts";
import { inSpan, makeBudgetGauges } from "./Telemetry.ts";

/** What the asks of an API key may cost per day (UTC). */
export interface Budget {
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

/**
 * The asks from one visitor, or from all other clients, in one chat in this process. Each visitor has a separate queue,
 * because waiting behind an ask in another user's chat would reveal that the chat exists.
 */
interface Queue {
  /** A place for each ask, in order of arrival. The first place is completed, so its ask may take the chat's turn. */
  readonly places: Array<Deferred.Deferred<void>>;
  /** Completed when the chat's turn may have become free. */
  turnFreed: Deferred.Deferred<void>;
}

const nameOf = ({ chatId, chatbot }: Pick<Turn, "chatId" | "chatbot">) => `${chatbot}/${chatId}`;

export const askOverload = new Overloaded({ retryAfterSeconds: 1 });

export const makeChatQueues = (store: TurnStore["Service"], limits: AskLimits) =>
  Effect.gen(function* () {
    /** Keyed by chat, then by visitor. */
    const queues = new Map<string, Map<string | null, Queue>>();
    let isClosed = false;
    const wake = (deferred: Deferred.Deferred<void>) => Deferred.doneUnsafe(deferred, Effect.void);
    yield* store.freedTurns.pipe(
      Stream.runForEach((chat) =>
        Effect.sync(() => {
          const affectedQueues = chat === null ? queues.values() : [queues.get(nameOf(chat))];
          for (const chatQueues of affectedQueues)
            for (const queue of chatQueues?.values() ?? []) wake(queue.turnFreed);
        }),
      ),
      Effect.forkScoped,
    );

    const noteBudget = yield* makeBudgetGauges;
    const checkBudget = (chatbot: ChatbotId, { apiKeyId, tokensPerDay }: Budget) =>
      Effect.flatMap(store.spending(chatbot, apiKeyId), ({ endsInMillis, tokens }) => {
        noteBudget(apiKeyId, tokens / tokensPerDay, endsInMillis);
        const retryAfterSeconds = Math.max(1, Math.ceil(endsInMillis / 1000));
        return tokens < tokensPerDay
          ? Effect.void
          : Effect.fail(new BudgetSpent({ apiKeyId, retryAfterSeconds }));
      });

    /** Takes the turn from the store. While the chat or the key is held, retries until `waitEnd`. */
    const take = Effect.fnUntraced(function* (
      { budget, chatId, chatbot, idempotencyKey, visitor }: TurnRequest,
      waitEnd: number,
      queue: Queue | null,
    ) {
      while (true) {
        if (isClosed) return yield* askOverload;
        // Created before the take, so that no notification between the take and the wait is missed.
        const turnFreed = Deferred.makeUnsafe<void>();
        if (queue !== null) queue.turnFreed = turnFreed;
        // For a new chat without an idempotency key, the store records no turn, so there is none to release.
        const takesNothing = chatId === null && idempotencyKey === null;
        if (budget !== null && takesNothing) yield* checkBudget(chatbot, budget);
        const result = yield* store.take(chatbot, chatId, idempotencyKey, visitor);
        // Replaying a stored answer costs nothing. If another ask holds the key, that ask may still store its answer,
        // which this ask then replays.
        const costsNothing =
          result._tag === "AlreadyAnswered" || (result._tag === "Held" && result.by === "key");
        if (budget !== null && !takesNothing && !costsNothing)
          yield* Effect.tapError(checkBudget(chatbot, budget), () =>
            result._tag === "TurnTaken" ? Effect.ignore(store.release(result.turn)) : Effect.void,
          );
        if (result._tag !== "Held") return result;
        const millisLeft = waitEnd - (yield* Clock.currentTimeMillis);
        if (millisLeft <= 0) return yield* askOverload;
        const poll = Duration.toMillis(result.by === "key" ? limits.keyPoll : limits.poll);
        yield* Deferred.await(turnFreed).pipe(
          Effect.timeoutOption(Math.min(poll, result.forMillis + 1, millisLeft)),
          Effect.interruptible,
        );
      }
    });

    const enter = (request: TurnRequest) =>
      Effect.suspend(() => {
        const name = nameOf(request);
        const chatQueues = queues.get(name) ?? new Map<string | null, Queue>();
        const queue = chatQueues.get(request.visitor) ?? {
          places: [],
          turnFreed: Deferred.makeUnsafe<void>(),
        };
        // The ask at the head of the queue does not wait here, so it does not count towards the limit.
        if (queue.places.length > limits.queueLimit) return Effect.fail(askOverload);
        const place = Deferred.makeUnsafe<void>();
        queue.places.push(place);
        wake(queue.places[0]!);
        queues.set(name, chatQueues.set(request.visitor, queue));
        return Effect.succeed({ place, queue });
      });
    const leave = (request: TurnRequest, { places }: Queue, place: Deferred.Deferred<void>) =>
      Effect.sync(() => {
        places.splice(places.indexOf(place), 1);
        if (places.length > 0) {
          wake(places[0]!);
        } else {
          const chatQueues = queues.get(nameOf(request))!;
          chatQueues.delete(request.visitor);
          if (chatQueues.size === 0) queues.delete(nameOf(request));
        }
      });

    const close = Effect.sync(() => {
      isClosed = true;
      for (const chatQueues of queues.values())
        for (const { places, turnFreed } of chatQueues.values())
          [turnFreed, ...places].forEach(wake);
    });

    const inTurn = <A, E>(
      request: TurnRequest,
      use: (result: Exclude<TakeResult, { readonly _tag: "Held" }>) => Effect.Effect<A, E>,
    ): Effect.Effect<A, E | AskError> =>
      Effect.flatMap(Clock.currentTimeMillis, (now) => {
        const waitEnd = now + Duration.toMillis(limits.queueTimeout);
        const takeAndUse = (queue: Queue | null) =>
          Effect.uninterruptible(
            Effect.flatMap(inSpan(take(request, waitEnd, queue), "take"), use),
          );
        // No other ask can wait for a chat that does not exist yet, so this ask needs no queue.
        if (request.chatId === null) return takeAndUse(null);
        return Effect.acquireUseRelease(
          enter(request),
          ({ place, queue }) =>
            // The first ask in a queue goes straight to the store and needs no timer.
            queue.places[0] === place
              ? takeAndUse(queue)
              : Deferred.await(place).pipe(
                  Effect.timeoutOrElse({
                    duration: limits.queueTimeout,
                    orElse: () => Effect.fail(askOverload),
                  }),
                  Effect.andThen(takeAndUse(queue)),
                ),
          ({ place, queue }) => leave(request, queue, place),
        );
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
