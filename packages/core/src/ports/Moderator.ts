/**
 * Port: judges whether a question violates the usage policy.
 */
import { Context, Effect, Layer } from "effect";
import type { Chatbot } from "../model/Chatbot.ts";
import { AnswerUnavailable, placeOf } from "../model/Errors.ts";
import { CurrentAsk, type AskOrigin } from "../services/asking/AskLimits.ts";

/** The judgement on a question. */
export interface Moderation {
  /** Stored as the entry's `moderation`: the category of a flagged question, or `none`. */
  readonly category: string;
  readonly flagged: boolean;
}

/** The judgement on a question that passes moderation. */
export const unflagged: Moderation = { category: "none", flagged: false };

/**
 * Judges a question: returns a category if the question violates the usage policy, else `null`. Parley aborts `signal`
 * if the ask is cancelled. `ask` identifies the chat, the user and the API key. If the function throws, the ask fails
 * with `AnswerUnavailable`.
 */
export type ModeratorFunction = (
  question: string,
  chatbot: Chatbot,
  signal: AbortSignal,
  ask: AskOrigin,
) => string | null | Promise<string | null>;

/** Judges questions. */
export class Moderator extends Context.Service<
  Moderator,
  {
    /** Judges a question before the answerer receives it. If the check fails, the ask fails and nothing is stored. */
    readonly check: (
      chatbot: Chatbot,
      question: string,
    ) => Effect.Effect<Moderation, AnswerUnavailable>;
  }
>()("@parley/core/Moderator") {
  /** A moderator that flags nothing. */
  static readonly layerOff: Layer.Layer<Moderator> = Layer.succeed(
    Moderator,
    Moderator.of({ check: () => Effect.succeed(unflagged) }),
  );

  /** Creates a moderator from a plain function. */
  static readonly layerFunction = (judge: ModeratorFunction): Layer.Layer<Moderator> =>
    Layer.succeed(
      Moderator,
      Moderator.of({
        check: (chatbot, question) =>
          Effect.flatMap(CurrentAsk, (ask) =>
            Effect.tryPromise({
              try: async (signal) => judge(question, chatbot, signal, ask),
              catch: (cause) =>
                new AnswerUnavailable({ reason: `the moderator threw ${placeOf(cause)}`, cause }),
            }),
          ).pipe(
            Effect.flatMap((category): Effect.Effect<Moderation, AnswerUnavailable> => {
              if (category == null) return Effect.succeed(unflagged);
              if (typeof category === "string" && category !== "" && category !== "none")
                return Effect.succeed({ category, flagged: true });
              const result = category === "none" ? '"none"' : `a value of type ${typeof category}`;
              const reason = `the moderator returned ${result} instead of a category or null`;
              return new AnswerUnavailable({ reason });
            }),
          ),
      }),
    );
}

/** A layer that provides a moderator. */
export interface ModeratorLayer extends Layer.Layer<Moderator, unknown> {}
