/**
 * Asking a chatbot (section 4.5). Each ask is a fiber of its own: requests come, join it by their key, and go.
 */
import { Cause, Context, Effect, FiberSet, Layer, Stream, type Fiber } from "effect";
import { Digest } from "effect/crypto";
import { Answerer } from "../ports/Answerer.ts";
import { AskLimits } from "./AskLimits.ts";
import type { Chatbot } from "../model/Chatbot.ts";
import { makeChatQueue, overloaded } from "./ChatQueue.ts";
import { RetryKeyReused, type AskError } from "../model/Errors.ts";
import { logFailure } from "./FailureLog.ts";
import {
  complete,
  completed,
  makeLiveAnswer,
  subscribe,
  type AnswerEvent,
  type Asked,
  type Completed,
  type LiveAnswer,
  type Progress,
} from "./LiveAnswer.ts";
import { Moderator } from "../ports/Moderator.ts";
import { retryKey, type IdempotencyKey, type RetryKey } from "../model/IdempotencyKey.ts";
import type { Question } from "../model/Text.ts";
import { answerInTurn } from "./TurnAnswer.ts";
import { TurnStore } from "../ports/TurnStore.ts";

export interface Ask {
  /** `null`: a new chat is made, without a hello entry, if the answer comes. */
  readonly chatId: number | null;
  readonly question: Question;
  readonly key: IdempotencyKey | null;
  /**
   * What becomes of the answer when the fiber that waits for it is interrupted. `finish`, the default:
   * it is finished and stored. `cancel`: it ends at once and nothing is stored, unless another request
   * with the same key wants it.
   */
  readonly onHangUp?: "finish" | "cancel";
}

/** An ask in progress in this process. */
interface Running {
  readonly live: LiveAnswer;
  readonly fiber: Fiber.Fiber<unknown, unknown>;
  readonly fingerprint: string | null;
  /** Whether a request wants the answer even if it does not wait for it. */
  finish: boolean;
}

export class Asking extends Context.Service<
  Asking,
  {
    /**
     * Asks and waits for the stored entry. The asks of one chat are answered in turn, each seeing
     * the entries before it. An ask that fails stores nothing.
     */
    readonly ask: (chatbot: Chatbot, ask: Ask) => Effect.Effect<Asked, AskError>;
    /**
     * The same, giving the answer as it comes and then the stored entry. `after` is how far a reader
     * got before its connection broke; it begins at the start if that was another turn.
     */
    readonly stream: (
      chatbot: Chatbot,
      ask: Ask,
      after?: Progress | null,
    ) => Stream.Stream<AnswerEvent, AskError>;
  }
>()("@parley/core/Asking") {
  static readonly layer: Layer.Layer<
    Asking,
    never,
    TurnStore | Answerer | Moderator | Digest.Digest
  > = Layer.effect(
    Asking,
    Effect.gen(function* () {
      const services = {
        store: yield* TurnStore,
        answerer: yield* Answerer,
        moderator: yield* Moderator,
        limits: yield* AskLimits,
      };
      const { limits } = services;
      const digest = yield* Digest.Digest;
      const queue = yield* makeChatQueue(services.store, limits);
      // Made after the queue, whose listening so goes on while the asks in progress are waited for.
      const fibers = yield* FiberSet.make<Completed, AskError>();
      yield* Effect.addFinalizer(() =>
        Effect.timeoutOption(FiberSet.awaitEmpty(fibers), limits.deadline),
      );
      const byKey = new Map<string, Running>();
      let asks = 0;

      const run = (live: LiveAnswer, chatbot: Chatbot, ask: Ask, key: RetryKey | null) =>
        queue.inTurn({ chatbot: chatbot.id, chat: ask.chatId, key }, (taken) =>
          taken._tag === "Done"
            ? Effect.succeed({ entry: taken.entry, replayed: true, turn: taken.turn })
            : answerInTurn(services, live, chatbot, taken.turn, ask.question),
        );

      /** Begins an ask, or joins the one that works on the same key, as one more reader. */
      const begun = Effect.fnUntraced(function* (chatbot: Chatbot, ask: Ask) {
        const key =
          ask.key === null
            ? null
            : yield* Effect.provideService(
                retryKey(ask.key, "ask", [ask.chatId, ask.question]),
                Digest.Digest,
                digest,
              );
        const name = `${chatbot.id}/${ask.key}`;
        const running = key === null ? undefined : byKey.get(name);
        if (running !== undefined) {
          if (running.fingerprint !== key!.fingerprint) {
            return yield* new RetryKeyReused({ key: key!.key });
          }
          running.live.readers++;
          return { running, name, joined: true };
        }
        if (asks >= limits.asks) return yield* overloaded;
        const live = makeLiveAnswer();
        live.readers++;
        const fiber = yield* FiberSet.run(
          fibers,
          // Without a reader no request is left to answer, and its caller logs nothing.
          Effect.tapCause(run(live, chatbot, ask, key), (cause) =>
            live.readers > 0 || Cause.hasInterruptsOnly(cause) ? Effect.void : logFailure(cause),
          ),
        );
        const begins: Running = {
          live,
          fiber,
          fingerprint: key?.fingerprint ?? null,
          finish: false,
        };
        asks++;
        if (key !== null) byKey.set(name, begins);
        fiber.addObserver((exit) => {
          asks--;
          if (byKey.get(name) === begins) byKey.delete(name);
          complete(live, exit);
        });
        return { running: begins, name, joined: false };
      }, Effect.uninterruptible);

      /** The ask in progress, which the request wants until the scope closes. */
      const watched = (chatbot: Chatbot, ask: Ask) =>
        Effect.acquireRelease(
          Effect.map(begun(chatbot, ask), (one) => {
            one.running.finish ||= ask.onHangUp !== "cancel";
            return one;
          }),
          ({ name, running }) =>
            Effect.sync(() => {
              const { live } = running;
              if (--live.readers > 0 || running.finish || live.exit !== null) return;
              // A request that comes with the same key from now on begins anew.
              if (byKey.get(name) === running) byKey.delete(name);
              running.fiber.interruptUnsafe();
            }),
        );

      return Asking.of({
        ask: (chatbot, ask) =>
          Effect.scoped(
            Effect.flatMap(watched(chatbot, ask), ({ joined, running }) =>
              Effect.map(completed(running.live), ({ entry, replayed }) => ({
                entry,
                replayed: replayed || joined,
              })),
            ),
          ),
        stream: (chatbot, ask, after = null) =>
          Stream.unwrap(
            Effect.map(watched(chatbot, ask), ({ joined, running }) =>
              subscribe(running.live, after, joined),
            ),
          ),
      });
    }),
  );
}
