/**
 * The queue of a chat: the asks of this process in order of arrival, then this process among the others. All waiting
 * for a turn happens here; the stores never wait.
 */
import { Clock, Deferred, Duration, Effect, Scope, Semaphore, Stream } from "effect";
import type { AskLimits } from "./AskLimits.ts";
import { Overloaded, type AskError } from "../model/Errors.ts";
import type { RetryKey } from "../model/IdempotencyKey.ts";
import type { Taken, TurnStore } from "../ports/TurnStore.ts";

/** The chat and the key that an ask needs the turn of. */
export interface Place {
  readonly chatbot: number;
  /** `null`: a new chat, which the append makes: no other ask can wait for it. */
  readonly chat: number | null;
  readonly key: RetryKey | null;
}

export type TakenInTurn = Exclude<Taken, { readonly _tag: "Held" }>;

export interface ChatQueue {
  /**
   * Waits for the turn, or for the entry that the key made, and runs `use` with it. Only the waiting is interruptible:
   * between taking a turn and holding it, an interruption would leave it taken. `use` runs uninterruptibly, and makes
   * interruptible what it may leave.
   */
  readonly inTurn: <A, E>(
    place: Place,
    use: (taken: TakenInTurn) => Effect.Effect<A, E>,
  ) => Effect.Effect<A, E | AskError>;
}

/** The asks of one chat in this process. */
interface Queue {
  readonly turn: Semaphore.Semaphore;
  length: number;
  /** Completed by a hint that the chat's turn may be free. */
  freed: Deferred.Deferred<void>;
}

export const overloaded = new Overloaded({ retryAfterSeconds: 1 });

export const makeChatQueue = (
  store: TurnStore["Service"],
  limits: AskLimits,
): Effect.Effect<ChatQueue, never, Scope.Scope> =>
  Effect.gen(function* () {
    const queues = new Map<string, Queue>();
    const hint = (queue: Queue) => Deferred.doneUnsafe(queue.freed, Effect.void);
    yield* store.freed.pipe(
      Stream.runForEach((freed) =>
        Effect.sync(() => {
          if (freed === null) for (const queue of queues.values()) hint(queue);
          const queue = queues.get(`${freed?.chatbot}/${freed?.chat}`);
          if (queue !== undefined) hint(queue);
        }),
      ),
      Effect.forkScoped,
    );

    /** Waits for the asks of this process that came before. */
    const inOrder = <A, E>(
      name: string,
      ask: (queue: Queue) => Effect.Effect<A, E>,
    ): Effect.Effect<A, E | Overloaded> =>
      Effect.uninterruptibleMask((restore) => {
        const queue: Queue = queues.get(name) ?? {
          turn: Semaphore.makeUnsafe(1),
          length: 0,
          freed: Deferred.makeUnsafe(),
        };
        if (queue.length > limits.queueLimit) return Effect.fail(overloaded);
        queues.set(name, queue);
        queue.length++;
        return queue.turn.take(1).pipe(
          Effect.timeoutOrElse({
            duration: limits.queueTimeout,
            orElse: () => Effect.fail(overloaded),
          }),
          restore,
          Effect.andThen(Effect.ensuring(ask(queue), queue.turn.release(1))),
          Effect.ensuring(
            Effect.sync(() => {
              if (--queue.length === 0) queues.delete(name);
            }),
          ),
        );
      });

    /** Asks the store until it gives the turn, or until `until`. */
    const take = Effect.fnUntraced(function* (
      { chat, chatbot, key }: Place,
      until: number,
      queue: Queue | null,
    ): Effect.fn.Return<TakenInTurn, AskError> {
      while (true) {
        // Made before the question: a hint that comes in between must count.
        const freed = Deferred.makeUnsafe<void>();
        if (queue !== null) queue.freed = freed;
        const taken = yield* store.take(chatbot, chat, key);
        if (taken._tag !== "Held") return taken;
        const left = until - (yield* Clock.currentTimeMillis);
        if (left <= 0) return yield* overloaded;
        const poll = taken.by === "key" ? limits.keyPoll : limits.poll;
        yield* Deferred.await(freed).pipe(
          Effect.timeoutOption(
            Duration.min(poll, Duration.millis(Math.min(taken.forMillis + 1, left))),
          ),
          Effect.interruptible,
        );
      }
    }, Effect.uninterruptible);

    return {
      inTurn: (place, use) =>
        Effect.flatMap(Clock.currentTimeMillis, (now) => {
          const until = now + Duration.toMillis(limits.queueTimeout);
          const ask = (queue: Queue | null) =>
            Effect.uninterruptible(Effect.flatMap(take(place, until, queue), use));
          return place.chat === null ? ask(null) : inOrder(`${place.chatbot}/${place.chat}`, ask);
        }),
    };
  });
