/**
 * Answers a question in its turn: moderates the question, reads the answer, and stores both in an entry.
 */
import { Cause, Clock, Duration, Effect, Option, Pull, Stream } from "effect";
import type { Ask } from "../../model/Ask.ts";
import type { Chatbot } from "../../model/Chatbot.ts";
import type { Entry, Metadata, NewEntry, Usage } from "../../model/Entry.ts";
import {
  AnswerUnavailable,
  type AnswerStopped,
  type AskError,
  type ChatNotFound,
  type StorageUnavailable,
} from "../../model/Errors.ts";
import { metadataProblem } from "../../model/Metadata.ts";
import { isBlank, storableText } from "../../model/Text.ts";
import type { Answerer, AnswerPart } from "../../ports/Answerer.ts";
import type { Moderator } from "../../ports/Moderator.ts";
import { turnEntries, type Turn, type TurnStore } from "../../ports/TurnStore.ts";
import { AskDeadline, AskedModel, CurrentAsk, type AskLimits } from "./AskLimits.ts";
import type { EntryEvents } from "./EntryEvents.ts";
import type { CompletedAsk, LiveAnswer } from "./LiveAnswer.ts";
import { inSpan, type AskTimes } from "../Telemetry.ts";

export interface AnswerServices {
  readonly store: TurnStore["Service"];
  readonly answerer: Answerer["Service"];
  readonly moderator: Moderator["Service"];
  readonly limits: AskLimits;
  readonly events: EntryEvents;
}

const turnEnded = "another ask or an erasure ended the turn";

const unavailable = (reason: string) => new AnswerUnavailable({ reason });

/** Answers the question in the turn, and finally stores the entry or releases the turn. */
export const answerInTurn = (
  services: AnswerServices,
  live: LiveAnswer,
  chatbot: Chatbot,
  turn: Turn,
  ask: Ask,
  times: AskTimes,
): Effect.Effect<CompletedAsk, AskError> => {
  const { events, limits, store } = services;
  const { apiKeyId = null, question, requestId = null, tokensPerDay = null } = ask;
  const userRef = (turn.chat === null ? turn.visitor : turn.chat.userRef) ?? null;
  /** Filled in by the answerer. */
  const askedModel: typeof AskedModel.Service = { model: null, attempts: 0, tokens: null };
  const cost: Cost = { usage: null, characters: 0 };
  const hasBudget = tokensPerDay !== null && apiKeyId !== null;
  const spentTokens = () => wholeCount(askedModel.tokens ?? toTokens(cost));
  return Effect.flatMap(Clock.currentTimeMillis, (now) =>
    makeEntry(services, live, chatbot, turn, question, times, cost).pipe(
      Effect.raceFirst(keepTurn(services, turn)),
      Effect.timeoutOrElse({
        duration: limits.deadline,
        orElse: () => Effect.fail(unavailable("the ask's deadline passed")),
      }),
      Effect.interruptible,
      Effect.flatMap((entry) =>
        Effect.tap(
          Effect.suspend(() => {
            const spending = hasBudget ? { spentTokens: spentTokens() } : {};
            return store.append(turn, { ...entry, apiKeyId, requestId, ...spending });
          }),
          (stored) =>
            Effect.sync(() => {
              times.onStored(entry.usage, stored);
              const { chatId: id, createTime } = stored;
              const chat = turn.chat ?? { id, name: null, userRef, createTime };
              events.publish("entry", {
                chatbot: chatbot.id,
                chat,
                entry: stored,
                usage: entry.usage,
              });
            }),
        ),
      ),
      Effect.catchTag("TurnLost", () => Effect.fail(unavailable(turnEnded))),
      // As if the stop had reached this process: a stop is no failure.
      Effect.catchTag("AnswerStopped", () => {
        live.isStopped = true;
        return Effect.interrupt;
      }),
      Effect.onError((cause) => {
        if (!Cause.hasInterruptsOnly(cause)) times.onFailure(askedModel);
        // The provider also bills for an answer that nobody receives.
        const tokens = hasBudget ? spentTokens() : 0;
        return store
          .release(turn, tokens === 0 ? null : { apiKeyId: apiKeyId!, tokens })
          .pipe(
            Effect.catch(({ message: reason }) =>
              tokens === 0
                ? Effect.void
                : Effect.logWarning("The tokens used by a failed ask could not be counted").pipe(
                    Effect.annotateLogs({ key: apiKeyId, tokens, reason }),
                  ),
            ),
          );
      }),
      Effect.map((entry) => ({ entry, replayed: false, turnId: turn.id })),
      Effect.provideService(AskDeadline, now + Duration.toMillis(limits.deadline)),
      Effect.provideService(AskedModel, askedModel),
      Effect.provideService(CurrentAsk, {
        chatId: turn.chatId,
        userRef,
        apiKeyId,
        visitor: ask.visitor ?? null,
        context: ask.context,
      }),
    ),
  );
};

/** Renews the turn repeatedly. Fails if another ask or an erasure has ended the turn. */
const keepTurn = (
  { limits, store }: AnswerServices,
  turn: Turn,
): Effect.Effect<never, AnswerStopped | AnswerUnavailable | ChatNotFound> =>
  store.renew(turn).pipe(
    // The store may recover in time. If it does not, or if another ask takes the turn meanwhile, the append fails.
    Effect.catchTag("StorageUnavailable", () => Effect.succeed(true)),
    Effect.flatMap((isHeld) => (isHeld ? Effect.void : unavailable(turnEnded))),
    Effect.delay(limits.renewal),
    Effect.forever,
  );

const makeEntry = Effect.fnUntraced(function* (
  { answerer, limits, moderator, store }: AnswerServices,
  live: LiveAnswer,
  chatbot: Chatbot,
  turn: Turn,
  question: string,
  times: AskTimes,
  cost: Cost,
): Effect.fn.Return<NewEntry, AnswerUnavailable | StorageUnavailable> {
  live.reset(turn.id);
  const { category, flagged } = yield* inSpan(moderator.check(chatbot, question), "moderation");
  const moderation = storableText(category);
  if (flagged) {
    const text = chatbot.settings.moderationErrorMessage;
    return { question, answer: text, moderation, flagged, usage: null };
  }
  cost.characters = [...question].length;
  let metadata: Metadata | null = null;
  let problem: string | null = null;
  /** Adds a part to the answer, and returns whether to continue reading. */
  const addPart = (part: AnswerPart): boolean => {
    switch (part._tag) {
      case "Delta":
        times.onDelta();
        for (const _ of part.text) cost.characters++;
        return live.append(part.text, limits.answerLength);
      case "Restart":
        if (live.hasBeenRead) problem = "the answer was cut off after part of it had been sent";
        metadata = null;
        if (problem === null) live.reset(turn.id);
        return problem === null;
      case "Metadata": {
        metadata = { ...metadata, ...part.metadata };
        const flaw = metadataProblem(metadata);
        if (flaw !== null) problem = `the answer's metadata ${flaw}`;
        return problem === null;
      }
      case "Usage":
        cost.usage = storableUsage(part.usage);
        return true;
      default:
        problem = `the answerer yielded a part with the unknown tag ${(part as AnswerPart)._tag}`;
        return false;
    }
  };
  yield* answerer.answer(chatbot, unflaggedEntries(store, turn), question).pipe(
    Stream.runForEachArray((parts) => (parts.every(addPart) ? Effect.void : Cause.done())),
    Pull.catchDone(() => Effect.void),
  );
  if (problem !== null) return yield* unavailable(problem);
  if (isBlank(live.text)) return yield* unavailable("the answer is empty");
  return { question, answer: live.text, moderation, flagged, usage: cost.usage, metadata };
});

interface Cost {
  usage: Usage | null;
  /** The number of characters in the question and all deltas, including those of failed attempts. */
  characters: number;
}

/** Returns the tokens of an ask whose answerer does not count them: from its usage, or else one per four characters. */
const toTokens = ({ characters, usage }: Cost): number =>
  usage === null ? Math.ceil(characters / 4) : usage.promptTokens + usage.completionTokens;

/** Streams the chat's unflagged entries, newest first. Pages are read from the store on demand. */
const unflaggedEntries = (
  store: TurnStore["Service"],
  turn: Turn,
): Stream.Stream<Entry, StorageUnavailable> =>
  Stream.paginate(null as number | null, (before) =>
    Effect.map(
      before === null ? Effect.succeed(turn.newest) : store.earlier(turn, before),
      (page) =>
        [page, page.length < turnEntries ? Option.none() : Option.some(page.at(-1)!.id)] as const,
    ),
  ).pipe(Stream.filter((entry) => !entry.flagged));

/** Clamps the provider's counts, so that an invalid number does not fail the append of an answer already paid for. */
const storableUsage = (usage: Usage): Usage => ({
  ...usage,
  promptTokens: wholeCount(usage.promptTokens),
  completionTokens: wholeCount(usage.completionTokens),
  attempts: wholeCount(usage.attempts),
  latencyMillis: wholeCount(usage.latencyMillis),
});

const wholeCount = (count: number): number =>
  Math.min(Math.max(0, Math.round(Number(count)) || 0), 2 ** 31 - 1);
