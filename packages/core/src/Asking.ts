/**
 * Asking a chatbot (section 4.5): waiting for the chat's turn, moderation, the answer, and the one
 * entry that keeps both. Everything that waits, waits here; the stores never do.
 */
import {
  Clock,
  Context,
  Duration,
  Effect,
  Fiber,
  FiberSet,
  Layer,
  RcMap,
  Semaphore,
  Stream,
} from "effect";
import { Digest } from "effect/crypto";
import { Answerer } from "./Answerer.ts";
import type { Chatbot } from "./Chatbot.ts";
import type { Entry, NewEntry, Usage } from "./Entry.ts";
import {
  AnswerUnavailable,
  Overloaded,
  type ChatNotFound,
  type RetryKeyReused,
  type StorageUnavailable,
} from "./Errors.ts";
import { Moderator } from "./Moderator.ts";
import { retryKey, type IdempotencyKey, type RetryKey } from "./RetryKey.ts";
import type { Question } from "./Text.ts";
import { TurnStore, turnEntries, type Turn } from "./TurnStore.ts";

export interface Ask {
  /** `null`: a new chat is made, without a hello entry, if the answer comes. */
  readonly chatId: number | null;
  readonly question: Question;
  readonly key: IdempotencyKey | null;
}

export interface Asked {
  readonly entry: Entry;
  /** Whether an earlier request with the same key made it. */
  readonly replayed: boolean;
}

export type AskError =
  | ChatNotFound
  | RetryKeyReused
  | AnswerUnavailable
  | StorageUnavailable
  | Overloaded;

/** The bounds of asking. */
export const AskLimits = Context.Reference("@parley/core/AskLimits", {
  defaultValue: () => ({
    /** From the start of the turn to the last piece of the answer. */
    deadline: Duration.seconds(30),
    /** How long an ask waits for its turn. */
    patience: Duration.seconds(60),
    /** How many asks wait in one chat. */
    waiting: 256,
    /** How often a held turn is renewed. */
    renewal: Duration.seconds(3),
    /** How often a turn that another process holds is asked for again. */
    poll: Duration.millis(100),
  }),
});

export class Asking extends Context.Service<
  Asking,
  {
    /**
     * Asks and waits for the stored entry. The asks of one chat are answered in turn, each seeing
     * the entries before it. An ask that was begun is finished and stored even when the fiber that
     * waits for it is interrupted; one that fails stores nothing.
     */
    readonly ask: (chatbot: Chatbot, ask: Ask) => Effect.Effect<Asked, AskError>;
  }
>()("@parley/core/Asking") {
  static readonly layer: Layer.Layer<
    Asking,
    never,
    TurnStore | Answerer | Moderator | Digest.Digest
  > = Layer.effect(
    Asking,
    Effect.gen(function* () {
      const store = yield* TurnStore;
      const answerer = yield* Answerer;
      const moderator = yield* Moderator;
      const digest = yield* Digest.Digest;
      const limits = yield* AskLimits;

      const rooms = yield* RcMap.make({
        lookup: (_: string) => Effect.map(Semaphore.make(1), (turn) => ({ turn, waiting: 0 })),
      });
      const running = yield* FiberSet.make<Asked, AskError>();
      yield* Effect.addFinalizer(() =>
        Effect.timeoutOption(FiberSet.awaitEmpty(running), limits.deadline),
      );

      const busy = new Overloaded({ retryAfterSeconds: 1 });

      /** Runs one ask of a room after the other, in order of arrival. */
      const inRoom = <A, E>(
        name: string,
        ask: Effect.Effect<A, E>,
      ): Effect.Effect<A, E | Overloaded> =>
        Effect.scoped(
          Effect.uninterruptibleMask(
            Effect.fnUntraced(function* (restore) {
              const room = yield* RcMap.get(rooms, name);
              if (room.waiting >= limits.waiting) return yield* busy;
              room.waiting++;
              yield* room.turn.take(1).pipe(
                Effect.timeoutOrElse({
                  duration: limits.patience,
                  orElse: () => Effect.fail(busy),
                }),
                restore,
                Effect.ensuring(Effect.sync(() => room.waiting--)),
              );
              return yield* Effect.ensuring(restore(ask), room.turn.release(1));
            }),
          ),
        );

      /** The turn, or the entry that the retry key made before; only the waiting is interruptible. */
      const take = Effect.fnUntraced(function* (
        chatbot: number,
        chat: number | null,
        key: RetryKey | null,
      ) {
        const until = (yield* Clock.currentTimeMillis) + Duration.toMillis(limits.patience);
        while (true) {
          const taken = yield* store.take(chatbot, chat, key);
          if (taken._tag !== "Held") return taken;
          if ((yield* Clock.currentTimeMillis) >= until) return yield* busy;
          yield* Effect.interruptible(
            Effect.sleep(Duration.min(limits.poll, Duration.millis(Math.max(1, taken.forMillis)))),
          );
        }
      });

      /** The unflagged entries before the turn, newest first, read as far as they are wanted. */
      const earlier = (turn: Turn): Stream.Stream<Entry, StorageUnavailable> => {
        const older = (entries: ReadonlyArray<Entry>): Stream.Stream<Entry, StorageUnavailable> =>
          entries.length < turnEntries
            ? Stream.fromIterable(entries)
            : Stream.concat(
                Stream.fromIterable(entries),
                Stream.suspend(() =>
                  Stream.unwrap(Effect.map(store.earlier(turn, entries.at(-1)!.id), older)),
                ),
              );
        return Stream.filter(older(turn.newest), (entry) => !entry.flagged);
      };

      const answer = Effect.fnUntraced(function* (chatbot: Chatbot, turn: Turn, question: string) {
        const { category: moderation, flagged } = yield* moderator.check(chatbot, question);
        if (flagged) {
          const text = chatbot.settings.moderationErrorMessage;
          return { question, answer: text, moderation, flagged, usage: null };
        }
        let text = "";
        let usage: Usage | null = null;
        yield* Stream.runForEach(answerer.answer(chatbot, earlier(turn), question), (part) =>
          Effect.sync(() => {
            if (part._tag === "Delta") text += part.text;
            else usage = part.usage;
          }),
        );
        if (text === "") return yield* new AnswerUnavailable({ reason: "the answer is empty" });
        return { question, answer: text, moderation, flagged, usage } satisfies NewEntry;
      });

      const lost = new AnswerUnavailable({ reason: "the turn was lost" });

      /** Never succeeds: fails once the turn is not ours any more. */
      const renewing = (turn: Turn): Effect.Effect<never, AnswerUnavailable | StorageUnavailable> =>
        store.renew(turn).pipe(
          Effect.flatMap((ours) => (ours ? Effect.void : Effect.fail(lost))),
          Effect.delay(limits.renewal),
          Effect.forever,
        );

      /** Answers in a turn that was taken; it ends with the entry stored or the turn released. */
      const inTurn = (chatbot: Chatbot, turn: Turn, question: string) =>
        answer(chatbot, turn, question).pipe(
          Effect.raceFirst(renewing(turn)),
          Effect.timeoutOrElse({
            duration: limits.deadline,
            orElse: () => Effect.fail(new AnswerUnavailable({ reason: "the deadline passed" })),
          }),
          Effect.interruptible,
          Effect.flatMap((entry) => store.append(turn, entry)),
          Effect.catchTag("TurnLost", () => Effect.fail(lost)),
          Effect.onError(() => Effect.ignore(store.release(turn))),
        );

      const run = (
        chatbot: Chatbot,
        { chatId, question }: Ask,
        key: RetryKey | null,
      ): Effect.Effect<Asked, AskError> => {
        // Between taking a turn and holding it nothing may interrupt: it would stay taken.
        const ask = Effect.uninterruptible(
          Effect.flatMap(take(chatbot.id, chatId, key), (taken): Effect.Effect<Asked, AskError> =>
            taken._tag === "Done"
              ? Effect.succeed({ entry: taken.entry, replayed: true })
              : Effect.map(inTurn(chatbot, taken.turn, question), (entry) => ({
                  entry,
                  replayed: false,
                })),
          ),
        );
        return chatId === null ? ask : inRoom(`${chatbot.id}/${chatId}`, ask);
      };

      return Asking.of({
        ask: (chatbot, ask) =>
          (ask.key === null
            ? Effect.succeed(null)
            : retryKey(ask.key, "ask", [ask.chatId, ask.question])
          ).pipe(
            Effect.provideService(Digest.Digest, digest),
            Effect.flatMap((key) => FiberSet.run(running, run(chatbot, ask, key))),
            Effect.flatMap(Fiber.join),
          ),
      });
    }),
  );
}
