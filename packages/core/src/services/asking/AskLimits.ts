import { Context, Duration } from "effect";
import type { ChatId } from "../../model/Ids.ts";

/** The limits on asks. A layer can replace them. */
export const AskLimits = Context.Reference("@parley/core/AskLimits", {
  defaultValue: () => ({
    /** How long an answer may take, from the start of the turn to the last delta. */
    deadline: Duration.seconds(30),
    /** How long an ask may wait for its turn. */
    queueTimeout: Duration.seconds(60),
    /** How many asks from each visitor, and from all other clients together, may wait in one chat in this process. */
    queueLimit: 256,
    /**
     * How many requests for entries may be in progress in this process, including those that wait and those that join an
     * ask. A key may have all but one eighth of those that the other keys leave, and a visitor likewise in its key.
     */
    asks: 10_000,
    /** How many of them a key with a budget may have, because they can exceed the budget by what they cost. */
    budgetedAsks: 64,
    /** How many requests may read one answer at a time. */
    readers: 8,
    /** The interval at which a held turn is renewed. */
    renewal: Duration.seconds(3),
    /** The maximum length of an answer, in UTF-16 code units. The rest of a longer answer is cut off and not read. */
    answerLength: 100_000,
    /** The maximum length of a question, in code points. */
    questionLength: 200,
  }),
});
export type AskLimits = typeof AskLimits.Service;

/**
 * The deadline of the current ask, in milliseconds since the Unix epoch. `answerInTurn` sets it for the moderator, the
 * answerer and the append, so that none of them starts an attempt after the deadline.
 */
export const AskDeadline = Context.Reference("@parley/core/AskDeadline", {
  defaultValue: () => Infinity,
});

/** Who asks in which chat. `answerInTurn` provides it to the moderator and the answerer. */
export interface AskOrigin {
  /** `null` for a chat that the ask creates. */
  readonly chatId: ChatId | null;
  /** The `userRef` of the chat or, for a new chat, of the visitor. */
  readonly userRef: string | null;
  /** `null` for an ask without an API key, for example from one's own process. */
  readonly apiKeyId: string | null;
  /** The visitor who asks with a visitor token; otherwise `null`. */
  readonly visitor: string | null;
  /** What the caller of the ask has passed as its `context`. */
  readonly context: unknown;
}

/** The origin of the current ask. */
export const CurrentAsk = Context.Reference<AskOrigin>("@parley/core/CurrentAsk", {
  defaultValue: () => ({
    chatId: null,
    userRef: null,
    apiKeyId: null,
    visitor: null,
    context: undefined,
  }),
});

/**
 * The model that the current ask called last, for the metrics of failed asks, the number of its calls, and the tokens of
 * those that have ended, for the budget of its key. `answerInTurn` provides the object, and the answerer fills it in. `model` is
 * `null` if the answerer has called no model; `tokens` is `null` if the answerer does not count tokens.
 */
export const AskedModel = Context.Reference<{
  model: string | null;
  attempts: number;
  tokens: number | null;
}>("@parley/core/AskedModel", {
  defaultValue: () => ({ model: null, attempts: 0, tokens: null }),
});
