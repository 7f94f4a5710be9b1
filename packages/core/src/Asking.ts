/**
 * Asking a chatbot (section 4.5): waiting for the chat's turn, moderation, the answer, and the one
 * entry that keeps both. Everything that waits, waits here; the stores never do.
 */
import {
  Cause,
  Clock,
  Context,
  Deferred,
  Duration,
  Effect,
  FiberSet,
  Layer,
  Random,
  Result,
  Semaphore,
  Stream,
  type Fiber,
} from "effect";
import { Digest } from "effect/crypto";
import { Answerer, type AnswerPart } from "./Answerer.ts";
import type { Chatbot } from "./Chatbot.ts";
import { storableUsage, type Entry, type NewEntry, type Usage } from "./Entry.ts";
import {
  AnswerUnavailable,
  Overloaded,
  RetryKeyReused,
  type AskError,
  type ChatNotFound,
  type StorageUnavailable,
} from "./Errors.ts";
import { makeFailureLog } from "./FailureLog.ts";
import {
  begin,
  end,
  ended,
  follow,
  grow,
  makeLive,
  type AnswerEvent,
  type Asked,
  type Live,
  type Progress,
} from "./Live.ts";
import { Moderator } from "./Moderator.ts";
import { retryKey, type IdempotencyKey, type RetryKey } from "./RetryKey.ts";
import { isBlank, storableText, type Question } from "./Text.ts";
import { TurnStore, turnEntries, type Taken, type Turn } from "./TurnStore.ts";

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

/** The bounds of asking. */
export const AskLimits = Context.Reference("@parley/core/AskLimits", {
  defaultValue: () => ({
    /** From the start of the turn to the last piece of the answer. */
    deadline: Duration.seconds(30),
    /** How long an ask waits for its turn. */
    patience: Duration.seconds(60),
    /** How many asks wait in one chat. */
    waiting: 256,
    /** How many asks there are at once in this process, waiting ones included. */
    asks: 10_000,
    /** How often a held turn is renewed. */
    renewal: Duration.seconds(3),
    /** How often a turn that another process holds is asked for again when no hint comes; within `turnPrecedence`. */
    poll: Duration.seconds(1),
    /** How often the answer to a key that another process works on is asked for. */
    keyPoll: Duration.millis(100),
    /** Code units of an answer; what goes beyond is cut off. */
    length: 100_000,
    /** How often an answer is begun, as long as nobody saw a piece of it and it may come yet. */
    tries: 5,
    /** How long to wait before the second time; it doubles, and is jittered. */
    pause: Duration.millis(200),
    /** How long an answer that was cut off is read on, for its usage alone. */
    rest: Duration.seconds(5),
  }),
});

/** The asks of one chat in this process, in order of arrival. */
interface Room {
  readonly turn: Semaphore.Semaphore;
  inside: number;
  /** Whether this process may have a place among those that wait for the chat. */
  inLine: boolean;
  /** Completed by a hint that the chat's turn may be free. */
  freed: Deferred.Deferred<void>;
}

/** An ask under way in this process. */
interface Running {
  readonly live: Live;
  readonly fiber: Fiber.Fiber<unknown, unknown>;
  readonly fingerprint: string | null;
  /** Whether somebody wants the answer even if he does not wait for it. */
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
      const store = yield* TurnStore;
      const answerer = yield* Answerer;
      const moderator = yield* Moderator;
      const digest = yield* Digest.Digest;
      const limits = yield* AskLimits;

      const rooms = new Map<string, Room>();
      const byKey = new Map<string, Running>();
      let asks = 0;
      const hint = (room: Room | undefined) => {
        if (room !== undefined) Deferred.doneUnsafe(room.freed, Effect.void);
      };
      yield* store.freed.pipe(
        Stream.runForEach((freed) =>
          Effect.sync(() => {
            if (freed === null) for (const room of rooms.values()) hint(room);
            else hint(rooms.get(`${freed.chatbot}/${freed.chat}`));
          }),
        ),
        Effect.forkScoped,
      );
      // After the listening, which so goes on while the asks under way are waited for.
      const fibers = yield* FiberSet.make<Asked, AskError>();
      yield* Effect.addFinalizer(() =>
        Effect.timeoutOption(FiberSet.awaitEmpty(fibers), limits.deadline),
      );

      const busy = new Overloaded({ retryAfterSeconds: 1 });

      /** Runs one ask of a room after the other, in order of arrival. */
      const inRoom = <A, E>(
        chatbot: number,
        chat: number,
        ask: (room: Room) => Effect.Effect<A, E>,
      ): Effect.Effect<A, E | Overloaded> =>
        Effect.uninterruptibleMask((restore) => {
          const name = `${chatbot}/${chat}`;
          const room: Room = rooms.get(name) ?? {
            turn: Semaphore.makeUnsafe(1),
            inside: 0,
            inLine: false,
            freed: Deferred.makeUnsafe(),
          };
          rooms.set(name, room);
          const { turn } = room;
          if (room.inside > limits.waiting) return Effect.fail(busy);
          room.inside++;
          return turn.take(1).pipe(
            Effect.timeoutOrElse({
              duration: limits.patience,
              orElse: () => Effect.fail(busy),
            }),
            restore,
            Effect.andThen(Effect.ensuring(restore(ask(room)), turn.release(1))),
            Effect.ensuring(
              Effect.suspend(() => {
                // Whoever else is here goes on with the place.
                if (room.inside > 1 || !room.inLine) return Effect.void;
                room.inLine = false;
                // Who comes meanwhile takes a new place, and not the one that is given up.
                return turn.withPermits(1)(Effect.ignore(store.leave(chatbot, chat)));
              }),
            ),
            Effect.ensuring(
              Effect.sync(() => {
                if (--room.inside === 0) rooms.delete(name);
              }),
            ),
          );
        });

      /** The turn, or the entry that the retry key made before; only the waiting is interruptible. */
      const take = Effect.fnUntraced(function* (
        chatbot: number,
        chat: number | null,
        key: RetryKey | null,
        until: number,
        room: Room | null,
      ): Effect.fn.Return<Exclude<Taken, { _tag: "Held" }>, AskError> {
        while (true) {
          // Made before the question: a hint that comes in between must count.
          const freed = Deferred.makeUnsafe<void>();
          if (room !== null) room.freed = freed;
          const taken = yield* store.take(chatbot, chat, key);
          if (room !== null && taken._tag !== "Done") room.inLine = taken._tag === "Held";
          if (taken._tag !== "Held") return taken;
          const left = until - (yield* Clock.currentTimeMillis);
          if (left <= 0) return yield* busy;
          const poll = taken.by === "key" ? limits.keyPoll : limits.poll;
          yield* Deferred.await(freed).pipe(
            Effect.timeoutOption(
              Duration.min(poll, Duration.millis(Math.min(taken.forMillis + 1, left))),
            ),
            Effect.interruptible,
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

      /** One try to answer, before `until`; the text grows where readers see it. */
      const tryAnswer = (
        live: Live,
        turn: Turn,
        parts: Stream.Stream<AnswerPart, AnswerUnavailable | StorageUnavailable>,
        until: number,
      ) =>
        Effect.suspend(() => {
          begin(live, turn.id);
          let usage: Usage | null = null;
          let dropped = 0;
          const cut = Deferred.makeUnsafe<void>();
          const read = parts.pipe(
            Stream.takeUntil((part) => {
              if (part._tag === "Usage") usage = storableUsage(part.usage);
              else {
                const room = limits.length - live.text.length - live.half.length;
                const kept = dropped > 0 ? "" : part.text.slice(0, room);
                grow(live, kept);
                dropped += part.text.length - kept.length;
                if (dropped > 0) Deferred.doneUnsafe(cut, Effect.void);
              }
              // Who says so much more does not come to an end.
              return dropped > limits.length;
            }),
            Stream.runDrain,
          );
          const rest = Effect.flatMap(Clock.currentTimeMillis, (now) =>
            // Its deadline must not take an answer that is complete.
            Effect.sleep(
              Duration.min(limits.rest, Duration.millis(Math.max(0, until - now - 100))),
            ),
          );
          return read.pipe(
            Effect.catch((error) =>
              Deferred.isDoneUnsafe(cut) ? Effect.void : Effect.fail(error),
            ),
            Effect.raceFirst(Effect.andThen(Deferred.await(cut), rest)),
            Effect.flatMap(() =>
              isBlank(live.text)
                ? Effect.fail(
                    new AnswerUnavailable({ reason: "the answer is empty", passing: true }),
                  )
                : Effect.succeed({ answer: live.text, usage }),
            ),
          );
        });

      /** Tries until there is an answer, as long as that may help before `until`. */
      const tryToAnswer = Effect.fnUntraced(function* (
        live: Live,
        turn: Turn,
        parts: Stream.Stream<AnswerPart, AnswerUnavailable | StorageUnavailable>,
        until: number,
      ) {
        for (let tries = 1; ; tries++) {
          const result = yield* Effect.result(tryAnswer(live, turn, parts, until));
          if (Result.isSuccess(result)) return result.success;
          const { failure } = result;
          // What a reader has seen cannot be taken back.
          const again = failure._tag === "AnswerUnavailable" && failure.passing && !live.seen;
          if (!again || tries === limits.tries) return yield* failure;
          const pause = Duration.toMillis(limits.pause) * 2 ** (tries - 1);
          const wait = (failure.retryAfterMillis ?? 0) + pause * (0.8 + 0.4 * (yield* Random.next));
          if ((yield* Clock.currentTimeMillis) + wait >= until) return yield* failure;
          // Who comes during the pause must not see what is taken back.
          begin(live, turn.id);
          yield* Effect.sleep(wait);
        }
      });

      const answer = Effect.fnUntraced(function* (
        live: Live,
        chatbot: Chatbot,
        turn: Turn,
        question: string,
      ) {
        const until = (yield* Clock.currentTimeMillis) + Duration.toMillis(limits.deadline);
        const { category, flagged } = yield* moderator.check(chatbot, question);
        const moderation = storableText(category);
        if (flagged) {
          const text = chatbot.settings.moderationErrorMessage;
          return { question, answer: text, moderation, flagged, usage: null };
        }
        const parts = answerer.answer(chatbot, earlier(turn), question);
        const answered = yield* tryToAnswer(live, turn, parts, until);
        return { question, ...answered, moderation, flagged } satisfies NewEntry;
      });

      const lost = new AnswerUnavailable({ reason: "the turn was lost", passing: false });

      /** Never succeeds: fails once the turn is not ours any more, or its chat is gone. */
      const renewing = (turn: Turn): Effect.Effect<never, AnswerUnavailable | ChatNotFound> =>
        store.renew(turn).pipe(
          // The storage may be back before the lease ends; if it is not, the append tells.
          Effect.catchTag("StorageUnavailable", () => Effect.succeed(true)),
          Effect.flatMap((ours) => (ours ? Effect.void : Effect.fail(lost))),
          Effect.delay(limits.renewal),
          Effect.forever,
        );

      /** Answers in a turn that was taken; it ends with the entry stored or the turn released. */
      const inTurn = (live: Live, chatbot: Chatbot, turn: Turn, question: string) =>
        answer(live, chatbot, turn, question).pipe(
          Effect.raceFirst(renewing(turn)),
          Effect.timeoutOrElse({
            duration: limits.deadline,
            orElse: () =>
              Effect.fail(new AnswerUnavailable({ reason: "the deadline passed", passing: false })),
          }),
          Effect.interruptible,
          Effect.flatMap((entry) => store.append(turn, entry)),
          Effect.catchTag("TurnLost", () => Effect.fail(lost)),
          Effect.onError(() => Effect.ignore(store.release(turn))),
          Effect.map((entry) => ({ entry, replayed: false, turn: turn.id })),
        );

      const run = (live: Live, chatbot: Chatbot, { chatId, question }: Ask, key: RetryKey | null) =>
        Effect.flatMap(Clock.currentTimeMillis, (now) => {
          const until = now + Duration.toMillis(limits.patience);
          // Between taking a turn and holding it nothing may interrupt: it would stay taken.
          const ask = (room: Room | null) =>
            Effect.uninterruptible(
              Effect.flatMap(take(chatbot.id, chatId, key, until, room), (taken) =>
                taken._tag === "Done"
                  ? Effect.succeed({ entry: taken.entry, replayed: true, turn: taken.turn })
                  : inTurn(live, chatbot, taken.turn, question),
              ),
            );
          return chatId === null ? ask(null) : inRoom(chatbot.id, chatId, ask);
        });

      const log = makeFailureLog();
      /** Tells the log of an ask that failed when nobody was left to be told. */
      const unread = (cause: Cause.Cause<AskError>) => {
        if (Cause.hasInterruptsOnly(cause)) return Effect.void;
        const error = Cause.findErrorOption(cause);
        return error._tag === "Some" ? log.failure(error.value) : log.defect(cause);
      };

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
        if (asks >= limits.asks) return yield* busy;
        const live = makeLive();
        live.readers++;
        const fiber = yield* FiberSet.run(
          fibers,
          Effect.tapCause(run(live, chatbot, ask, key), (cause) =>
            live.readers > 0 ? Effect.void : unread(cause),
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
          end(live, exit as NonNullable<Live["exit"]>);
        });
        return { running: begins, name, joined: false };
      }, Effect.uninterruptible);

      /** What is under way, watched until the scope closes. */
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
              // Who comes with the same key from now on begins anew.
              if (byKey.get(name) === running) byKey.delete(name);
              running.fiber.interruptUnsafe();
            }),
        );

      return Asking.of({
        ask: (chatbot, ask) =>
          Effect.scoped(
            Effect.flatMap(watched(chatbot, ask), ({ joined, running }) =>
              Effect.map(ended(running.live), ({ entry, replayed }) => ({
                entry,
                replayed: replayed || joined,
              })),
            ),
          ),
        stream: (chatbot, ask, after = null) =>
          Stream.unwrap(
            Effect.map(watched(chatbot, ask), ({ joined, running }) =>
              follow(running.live, after, joined),
            ),
          ),
      });
    }),
  );
}
