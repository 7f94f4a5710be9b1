/**
 * Port: judges whether a question violates the usage policy.
 */
import { Context, Effect, Layer } from "effect";
import type { Chatbot } from "../model/Chatbot.ts";
import type { AnswerUnavailable } from "../model/Errors.ts";

/** The judgement of a question. */
export interface Moderation {
  /** Stored as the entry's `moderation`: the category of a flagged question, else `none`. */
  readonly category: string;
  readonly flagged: boolean;
}

/** The judgement of a question that passes. */
export const unflagged: Moderation = { category: "none", flagged: false };

/** Judges questions. */
export class Moderator extends Context.Service<
  Moderator,
  {
    /** Judges a question, before the answerer receives it. If it fails, so does the ask, and nothing is stored. */
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
}
