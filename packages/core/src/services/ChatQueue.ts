/**
 * The queue of a chat: the asks of this process in order of arrival, then this process among the others. Every ask
 * waits for its turn here; the stores never block.
 */
import { Clock, Deferred, Duration, Effect, Stream } from "effect";
import { BudgetSpent, Overloaded, type AskError } from "../model/Errors.ts";
import type { ChatbotId } from "../model/Ids.ts";
import type { TakeResult, Turn, TurnStore } from "../ports/TurnStore.ts";
import type { AskLimits } from "./AskLimits.ts";
import { inSpan, makeBudgetGauges } from "./Telemetry.ts";

/** What the asks of an API key may cost per day (UTC). */
export interface Budget {
  readonly keyId: string;
  readonly tokensPerDay: number;
}

/** The chat and the key whose turn an ask needs. No other ask can wait for a new chat. */
type Place = Pick<Turn, "chatbot" | "chat" | "idempotencyKey"> & {
  readonly userRef: string | null;
  readonly budget: Budget | null;
};

/**
 * The asks of one chat in this process, and of one visitor: waiting behind an ask in another user's chat would reveal that
 * the chat exists.
 */
interface Queue {
  /** In order of arrival. The first is completed: that ask may take the chat's turn. */
  readonly asks: Array<Deferred.Deferred<void>>;
  /** Completed when the turn of the chat may be free. */
  freed: Deferred.Deferred<void>;
}

const nameOf = ({ chat, chatbot }: Pick<Turn, "chat" | "chatbot">) => `${chatbot}/${chat}`;

export const overloaded = new Overloaded({ retryAfterSeconds: 1 });

export const makeChatQueue = (store: TurnStore["Service"], limits: AskLimits) =>
  Effect.gen(function* () {
    /** By chat, then by visitor. */
    const queues = new Map<string, Map<string | null, Queue>>();
    let isClosed = false;
    const wake = (deferred: Deferred.Deferred<void>) => Deferred.doneUnsafe(deferred, Effect.void);
    yield* store.freed.pipe(
      Stream.runForEach((freed) =>
        Effect.sync(() => {
          const all = freed === null ? queues.values() : [queues.get(nameOf(freed))];
          for (const ofChat of all) for (const queue of ofChat?.values() ?? []) wake(queue.freed);
        }),
      ),
      Effect.forkScoped,
    );

    const noteBudget = yield* makeBudgetGauges;
    const checkBudget = (chatbot: ChatbotId, { keyId, tokensPerDay }: Budget) =>
      Effect.flatMap(store.spending(chatbot, keyId), ({ endsInMillis, tokens }) => {
        noteBudget(keyId, tokens / tokensPerDay, endsInMillis);
        const retryAfterSeconds = Math.max(1, Math.ceil(endsInMillis / 1000));
        return tokens < tokensPerDay
          ? Effect.void
          : Effect.fail(new BudgetSpent({ keyId, retryAfterSeconds }));
      });

    /** Takes the turn from the store; while another process holds it, asks again until `until`. */
    const take = Effect.fnUntraced(function* (
      { budget, chat, chatbot, idempotencyKey, userRef }: Place,
      until: number,
      queue: Queue | null,
    ) {
      while (true) {
        if (isClosed) return yield* overloaded;
        // Replaced before the store is asked, so that no notification is missed in between.
        const freed = Deferred.makeUnsafe<void>();
        if (queue !== null) queue.freed = freed;
        const isNew = chat === null && idempotencyKey === null;
        if (budget !== null && isNew) yield* checkBudget(chatbot, budget);
        const result = yield* store.take(chatbot, chat, idempotencyKey, userRef);
        // An answer that was stored before costs nothing, and may still come for the key of another ask.
        const costsNothing =
          result._tag === "AlreadyAnswered" || (result._tag === "Held" && result.by === "key");
        if (budget !== null && !isNew && !costsNothing)
          yield* Effect.tapError(checkBudget(chatbot, budget), () =>
            result._tag === "TurnTaken" ? Effect.ignore(store.release(result.turn)) : Effect.void,
          );
        if (result._tag !== "Held") return result;
        const left = until - (yield* Clock.currentTimeMillis);
        if (left <= 0) return yield* overloaded;
        const poll = Duration.toMillis(result.by === "key" ? limits.keyPoll : limits.poll);
        yield* Deferred.await(freed).pipe(
          Effect.timeoutOption(Math.min(poll, result.forMillis + 1, left)),
          Effect.interruptible,
        );
      }
    });

    const enter = (place: Place) =>
      Effect.suspend(() => {
        const name = nameOf(place);
        const ofChat = queues.get(name) ?? new Map<string | null, Queue>();
        const queue = ofChat.get(place.userRef) ?? {
          asks: [],
          freed: Deferred.makeUnsafe<void>(),
        };
        // The ask that has its turn does not wait.
        if (queue.asks.length > limits.queueLimit) return Effect.fail(overloaded);
        const ask = Deferred.makeUnsafe<void>();
        queue.asks.push(ask);
        wake(queue.asks[0]!);
        queues.set(name, ofChat.set(place.userRef, queue));
        return Effect.succeed({ ask, queue });
      });
    const leave = (place: Place, { asks }: Queue, ask: Deferred.Deferred<void>) =>
      Effect.sync(() => {
        asks.splice(asks.indexOf(ask), 1);
        if (asks.length > 0) {
          wake(asks[0]!);
        } else {
          const ofChat = queues.get(nameOf(place))!;
          ofChat.delete(place.userRef);
          if (ofChat.size === 0) queues.delete(nameOf(place));
        }
      });

    const close = Effect.sync(() => {
      isClosed = true;
      for (const ofChat of queues.values())
        for (const { asks, freed } of ofChat.values()) [freed, ...asks].forEach(wake);
    });

    const inTurn = <A, E>(
      place: Place,
      use: (taken: Exclude<TakeResult, { readonly _tag: "Held" }>) => Effect.Effect<A, E>,
    ): Effect.Effect<A, E | AskError> =>
      Effect.flatMap(Clock.currentTimeMillis, (now) => {
        const until = now + Duration.toMillis(limits.queueTimeout);
        const takeAndUse = (queue: Queue | null) =>
          Effect.uninterruptible(Effect.flatMap(inSpan(take(place, until, queue), "take"), use));
        if (place.chat === null) return takeAndUse(null);
        return Effect.acquireUseRelease(
          enter(place),
          ({ ask, queue }) =>
            // The first one does not wait: its chat is idle, as most are.
            queue.asks[0] === ask
              ? takeAndUse(queue)
              : Deferred.await(ask).pipe(
                  Effect.timeoutOrElse({
                    duration: limits.queueTimeout,
                    orElse: () => Effect.fail(overloaded),
                  }),
                  Effect.andThen(takeAndUse(queue)),
                ),
          ({ ask, queue }) => leave(place, queue, ask),
        );
      });

    return {
      /** Ends the waiting: asks without a turn, and all later ones, fail with `Overloaded`. */
      close,
      /**
       * Waits for the turn, or for the entry of an earlier request with the same key, and runs `use` with it. Fails with
       * `Overloaded` if the queue is full or the wait takes too long. `use` runs uninterruptibly, because an interruption
       * between taking a turn and using it would leave the turn taken; it makes its own parts interruptible.
       */
      inTurn,
    };
  });
