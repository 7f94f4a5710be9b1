/**
 * Answers from a script, for tests.
 */
import { Answerer, type AnswerUnavailable, type Chatbot, type Entry } from "@parley/core/ports";
import { Effect, Layer, Stream } from "effect";

/** The arguments of one call of the answerer. */
export interface ScriptedCall {
  readonly chatbot: Chatbot;
  /** All unflagged entries of the chat, newest first. */
  readonly earlier: ReadonlyArray<Entry>;
  readonly question: string;
}

/** Returns the pieces of one answer; a stream may fail midway. */
export type Script = (
  call: ScriptedCall,
) => ReadonlyArray<string> | Stream.Stream<string, AnswerUnavailable>;

/** An `Answerer` that answers with the pieces that `script` returns, without usage. */
export const layerScripted = (script: Script): Layer.Layer<Answerer> =>
  Layer.succeed(
    Answerer,
    Answerer.of({
      answer: (chatbot, earlier, question) =>
        Stream.runCollect(earlier).pipe(
          Effect.map((entries) => script({ chatbot, earlier: entries, question })),
          Effect.map((pieces) => (Stream.isStream(pieces) ? pieces : Stream.fromIterable(pieces))),
          Stream.unwrap,
          Stream.map((text) => ({ _tag: "Delta", text }) as const),
        ),
    }),
  );
