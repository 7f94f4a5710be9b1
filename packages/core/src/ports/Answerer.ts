/**
 * Port: answers questions. Budgets, retries and fallbacks live behind it.
 */
import { Context, type Stream } from "effect";
import type { Chatbot } from "../model/Chatbot.ts";
import type { Entry, Usage } from "../model/Entry.ts";
import type { AnswerUnavailable, StorageUnavailable } from "../model/Errors.ts";

export type AnswerPart =
  /** A piece of the answer. */
  | { readonly _tag: "Delta"; readonly text: string }
  /**
   * Takes back the pieces so far: another attempt begins. The ask fails if a reader has seen one of them. It is sent
   * as soon as the attempt before has failed, so that no reader sees its text during a pause.
   */
  | { readonly _tag: "Restart" }
  /** Once and last: the cost of the answer, failed attempts included. */
  | { readonly _tag: "Usage"; readonly usage: Usage };

export class Answerer extends Context.Service<
  Answerer,
  {
    /**
     * The answer as it comes; `earlier` gives the chat's unflagged entries, newest first, on demand. A failure is final:
     * the stream is not run again. An answer after `AskDeadline` is of no use.
     */
    readonly answer: (
      chatbot: Chatbot,
      earlier: Stream.Stream<Entry, StorageUnavailable>,
      question: string,
    ) => Stream.Stream<AnswerPart, AnswerUnavailable | StorageUnavailable>;
  }
>()("@parley/core/Answerer") {}
