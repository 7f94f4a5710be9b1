/**
 * One answer in a turn that was taken: moderation, the answer, and the entry that keeps both.
 */
import { Clock, Deferred, Duration, Effect, Stream } from "effect";
import type { Answerer, AnswerPart } from "../ports/Answerer.ts";
import { AskDeadline, type AskLimits } from "./AskLimits.ts";
import type { Chatbot } from "../model/Chatbot.ts";
import { storableUsage, type Entry, type NewEntry, type Usage } from "../model/Entry.ts";
import {
  AnswerUnavailable,
  type AskError,
  type ChatNotFound,
  type StorageUnavailable,
} from "../model/Errors.ts";
import { append, reset, type Completed, type LiveAnswer } from "./LiveAnswer.ts";
import type { Moderator } from "../ports/Moderator.ts";
import { isBlank, storableText } from "../model/Text.ts";
import { turnEntries, type Turn, type TurnStore } from "../ports/TurnStore.ts";

export interface AnswerServices {
  readonly store: TurnStore["Service"];
  readonly answerer: Answerer["Service"];
  readonly moderator: Moderator["Service"];
  readonly limits: AskLimits;
}

const unavailable = (reason: string) => new AnswerUnavailable({ reason });

/** Answers in the turn; it ends with the entry stored or the turn released. */
export const answerInTurn = (
  services: AnswerServices,
  live: LiveAnswer,
  chatbot: Chatbot,
  turn: Turn,
  question: string,
): Effect.Effect<Completed, AskError> => {
  const { limits, store } = services;
  return Effect.flatMap(Clock.currentTimeMillis, (now) => {
    const deadline = now + Duration.toMillis(limits.deadline);
    return answer(services, live, chatbot, turn, question, deadline).pipe(
      Effect.provideService(AskDeadline, deadline),
      Effect.raceFirst(renewing(services, turn)),
      Effect.timeoutOrElse({
        duration: limits.deadline,
        orElse: () => Effect.fail(unavailable("the deadline passed")),
      }),
      Effect.interruptible,
      Effect.flatMap((entry) => store.append(turn, entry)),
      Effect.catchTag("TurnLost", () => Effect.fail(unavailable("the turn was lost"))),
      Effect.onError(() => Effect.ignore(store.release(turn))),
      Effect.map((entry) => ({ entry, replayed: false, turn: turn.id })),
    );
  });
};

/** Never succeeds: fails once another process has the turn, or its chat is gone. */
const renewing = (
  { limits, store }: AnswerServices,
  turn: Turn,
): Effect.Effect<never, AnswerUnavailable | ChatNotFound> =>
  store.renew(turn).pipe(
    // The storage may be back before the lease ends; if it is not, the append tells.
    Effect.catchTag("StorageUnavailable", () => Effect.succeed(true)),
    Effect.flatMap((ours) => (ours ? Effect.void : unavailable("the turn was lost"))),
    Effect.delay(limits.renewal),
    Effect.forever,
  );

const answer = Effect.fnUntraced(function* (
  { answerer, limits, moderator, store }: AnswerServices,
  live: LiveAnswer,
  chatbot: Chatbot,
  turn: Turn,
  question: string,
  deadline: number,
) {
  reset(live, turn.id);
  const { category, flagged } = yield* moderator.check(chatbot, question);
  const moderation = storableText(category);
  if (flagged) {
    const text = chatbot.settings.moderationErrorMessage;
    return { question, answer: text, moderation, flagged, usage: null };
  }
  const parts = answerer.answer(chatbot, earlier(store, turn), question);
  const usage = yield* readAnswer(live, turn, parts, limits, deadline);
  if (isBlank(live.text)) return yield* unavailable("the answer is empty");
  return { question, answer: live.text, moderation, flagged, usage } satisfies NewEntry;
});

/** The unflagged entries before the turn, newest first, read as far as they are wanted. */
const earlier = (
  store: TurnStore["Service"],
  turn: Turn,
): Stream.Stream<Entry, StorageUnavailable> => {
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

/** Reads the answer into `live`, up to its greatest length, and returns its cost. */
const readAnswer = (
  live: LiveAnswer,
  turn: Turn,
  parts: Stream.Stream<AnswerPart, AnswerUnavailable | StorageUnavailable>,
  limits: AskLimits,
  deadline: number,
): Effect.Effect<Usage | null, AnswerUnavailable | StorageUnavailable> =>
  Effect.suspend(() => {
    let usage: Usage | null = null;
    let dropped = 0;
    const cut = Deferred.makeUnsafe<void>();
    /** Tells whether to read on. */
    const take = (part: AnswerPart): Effect.Effect<boolean, AnswerUnavailable> => {
      switch (part._tag) {
        case "Usage":
          usage = storableUsage(part.usage);
          break;
        case "Restart":
          // An answer that was cut off is complete, whatever comes of the rest.
          if (dropped > 0) return Effect.succeed(false);
          if (live.seen) return Effect.fail(unavailable("the answer broke off"));
          reset(live, turn.id);
          break;
        case "Delta": {
          const room = limits.length - live.text.length - live.half.length;
          const kept = dropped > 0 ? "" : part.text.slice(0, room);
          append(live, kept);
          dropped += part.text.length - kept.length;
          if (dropped > 0) Deferred.doneUnsafe(cut, Effect.void);
        }
      }
      // An answer that goes on for so long does not end.
      return Effect.succeed(dropped <= limits.length);
    };
    const drained = Effect.flatMap(Clock.currentTimeMillis, (now) =>
      // Its deadline must not take an answer that is complete.
      Effect.sleep(
        Duration.min(limits.drainTimeout, Duration.millis(Math.max(0, deadline - now - 100))),
      ),
    );
    return Stream.runForEachWhile(parts, take).pipe(
      Effect.catch((error) => (dropped > 0 ? Effect.void : Effect.fail(error))),
      Effect.raceFirst(Effect.andThen(Deferred.await(cut), drained)),
      Effect.map(() => usage),
    );
  });
