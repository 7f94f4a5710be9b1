/**
 * Port: answers questions. Prompts, their budgets, retries and fallbacks are the adapter's.
 */
import { Context, type Stream } from "effect";
import type { Chatbot } from "../model/Chatbot.ts";
import type { Entry, Usage } from "../model/Entry.ts";
import type { AnswerUnavailable, StorageUnavailable } from "../model/Errors.ts";

/** A part of an answer. */
export type AnswerPart =
  /** The next piece of the answer's text. */
  | { readonly _tag: "Delta"; readonly text: string }
  /**
   * Takes back the pieces so far, because another attempt starts. The ask fails if a reader has received one of them.
   * Send it as soon as an attempt has failed, so that no reader receives its text during the pause before the next.
   */
  | { readonly _tag: "Restart" }
  /** The cost of the answer; its attempts and latency include failed attempts. The last part, if there is a cost. */
  | { readonly _tag: "Usage"; readonly usage: Usage };

/** Answers questions. */
export class Answerer extends Context.Service<
  Answerer,
  {
    /**
     * Answers the question, part by part. `earlier` emits the chat's unflagged entries, newest first, and reads them
     * on demand. A failure is final: the stream is not run again. At `AskDeadline`, and when the answer has its
     * greatest length, the stream is interrupted.
     */
    readonly answer: (
      chatbot: Chatbot,
      earlier: Stream.Stream<Entry, StorageUnavailable>,
      question: string,
    ) => Stream.Stream<AnswerPart, AnswerUnavailable | StorageUnavailable>;
  }
>()("@parley/core/Answerer") {}
