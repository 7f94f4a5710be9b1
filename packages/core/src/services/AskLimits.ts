import { Context, Duration } from "effect";

/** The limits of asking; a layer may replace them. */
export const AskLimits = Context.Reference("@parley/core/AskLimits", {
  defaultValue: () => ({
    /** How long an answer may take, from the start of the turn to the last delta. */
    deadline: Duration.seconds(30),
    /** How long an ask may wait for its turn. */
    queueTimeout: Duration.seconds(60),
    /** How many asks of each visitor, and of all other clients together, may wait in one chat in this process. */
    queueLimit: 256,
    /** How many asks may be in progress in this process, waiting ones included. */
    asks: 10_000,
    /** The interval at which a held turn is renewed. */
    renewal: Duration.seconds(3),
    /** The interval at which an ask tries again for a turn that is held or reserved; less than `turnPrecedence`. */
    poll: Duration.seconds(1),
    /** The interval at which an ask tries again while another ask holds its idempotency key. */
    keyPoll: Duration.millis(100),
    /** The greatest length of an answer in UTF-16 code units; the rest is cut off and not read. */
    answerLength: 100_000,
  }),
});
export type AskLimits = typeof AskLimits.Service;

/**
 * The time by which the ask in progress must be answered, in milliseconds since 1970. `answerInTurn` sets it for the
 * moderator, the answerer and the append, so that none of them starts an attempt later.
 */
export const AskDeadline = Context.Reference("@parley/core/AskDeadline", {
  defaultValue: () => Infinity,
});

/**
 * The model that the ask in progress called last, for the metrics of asks that fail, and the tokens of all of the ask's
 * calls that ended, for the budget of its key. `answerInTurn` provides the object, and the answerer fills it in.
 * `model` is `null` if the answerer called none; `tokens` is `null` if the answerer does not count them.
 */
export const AskedModel = Context.Reference<{ model: string | null; tokens: number | null }>(
  "@parley/core/AskedModel",
  { defaultValue: () => ({ model: null, tokens: null }) },
);
