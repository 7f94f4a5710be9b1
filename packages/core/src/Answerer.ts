/**
 * Port: what answers a question. Budgets, retries and fallbacks live behind it.
 */
import { Context, type Stream } from "effect";
import type { Chatbot } from "./Chatbot.ts";
import type { Entry, Usage } from "./Entry.ts";
import type { AnswerUnavailable, StorageUnavailable } from "./Errors.ts";

/** A piece of the answer, or, once and last, what it cost. */
export type AnswerPart =
  | { readonly _tag: "Delta"; readonly text: string }
  | { readonly _tag: "Usage"; readonly usage: Usage };

export class Answerer extends Context.Service<
  Answerer,
  {
    /**
     * The answer as it comes; `earlier` gives the chat's unflagged entries, newest first, on demand. To run
     * the stream again is to try again: its usage then tells the calls and the time of all tries.
     */
    readonly answer: (
      chatbot: Chatbot,
      earlier: Stream.Stream<Entry, StorageUnavailable>,
      question: string,
    ) => Stream.Stream<AnswerPart, AnswerUnavailable | StorageUnavailable>;
  }
>()("@parley/core/Answerer") {}
