/**
 * Port: whether a question violates the usage policy.
 */
import { Context, Effect, Layer } from "effect";
import type { Chatbot } from "../model/Chatbot.ts";
import type { AnswerUnavailable } from "../model/Errors.ts";

export interface Moderation {
  /** The category, as it is stored in an entry's `moderation`; `none` for an unflagged question. */
  readonly category: string;
  readonly flagged: boolean;
}

export class Moderator extends Context.Service<
  Moderator,
  {
    /** Judges a question before any model sees it. */
    readonly check: (
      chatbot: Chatbot,
      question: string,
    ) => Effect.Effect<Moderation, AnswerUnavailable>;
  }
>()("@parley/core/Moderator") {
  /** Flags nothing. */
  static readonly layerOff: Layer.Layer<Moderator> = Layer.succeed(
    Moderator,
    Moderator.of({ check: () => Effect.succeed({ category: "none", flagged: false }) }),
  );
}
