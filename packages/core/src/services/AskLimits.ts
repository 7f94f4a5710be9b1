import { Context, Duration } from "effect";

/** The limits on asks. A layer can replace them. */
export const AskLimits = Context.Reference("@parley/core/AskLimits", {
  defaultValue: () => ({
    /** How long an answer may take, from the start of the turn to the last delta. */
    deadline: Duration.seconds(30),
    /** How long an ask may wait for its turn. */
    queueTimeout: Duration.seconds(60),
    /** How many asks from each visitor, and from all other clients together, may wait in one chat in this process. */
    queueLimit: 256,
    /** How many asks may be in progress in this process, including those that are waiting. */
    asks: 10_000,
    /** The interval at which a held turn is renewed. */
    renewal: Duration.seconds(3),
    /** The maximum length of an answer, in UTF-16 code units. The rest of a longer answer is cut off and not read. */
    answerLength: 100_000,
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

/**
 * The model that the current ask called last, for the metrics of failed asks, and the tokens of all of its calls that
 * have ended, for the budget of its key. `answerInTurn` provides the object, and the answerer fills it in. `model` is
 * `null` if the answerer has called no model; `tokens` is `null` if the answerer does not count tokens.
 */
export const AskedModel = Context.Reference<{ model: string | null; tokens: number | null }>(
  "@parley/core/AskedModel",
  { defaultValue: () => ({ model: null, tokens: null }) },
);
