/**
 * An `Answerer` for tests: it says what a script says, and remembers what it was asked.
 */
import {
  Answerer,
  type AnswerPart,
  type AnswerUnavailable,
  type Chatbot,
  type Entry,
} from "@parley/core";
import { Clock, Context, Effect, Layer, Stream } from "effect";
import { usageSince } from "../models/Usage.ts";

/** What the answerer was called with. */
export interface ScriptedCall {
  readonly chatbot: Chatbot;
  /** All of them, newest first, as the port gives them. */
  readonly earlier: ReadonlyArray<Entry>;
  readonly question: string;
}

/** The deltas of one answer, at once or as they come, or why there is none. */
export type Script = (
  call: ScriptedCall,
) =>
  | ReadonlyArray<string>
  | Effect.Effect<ReadonlyArray<string>, AnswerUnavailable>
  | Stream.Stream<string, AnswerUnavailable>;

/** The calls so far, in the order they came; the array grows. */
export class ScriptedAnswerer extends Context.Service<
  ScriptedAnswerer,
  { readonly calls: ReadonlyArray<ScriptedCall> }
>()("@parley/llm/ScriptedAnswerer") {}

/** Answers with what `script` returns; usage: no tokens, one attempt. */
export const layerScripted = (script: Script): Layer.Layer<Answerer | ScriptedAnswerer> =>
  Layer.effectContext(
    Effect.sync(() => {
      const calls: Array<ScriptedCall> = [];
      const answer: Answerer["Service"]["answer"] = (chatbot, earlier, question) =>
        Stream.unwrap(
          Effect.gen(function* () {
            const call = { chatbot, earlier: yield* Stream.runCollect(earlier), question };
            calls.push(call);
            const usage = usageSince(yield* Clock.currentTimeMillis, {
              provider: "scripted",
              model: "scripted",
            });
            return deltas(script(call)).pipe(
              Stream.map((text): AnswerPart => ({ _tag: "Delta", text })),
              Stream.concat(Stream.fromEffect(usage)),
            );
          }),
        );
      return Context.make(Answerer, Answerer.of({ answer })).pipe(
        Context.add(ScriptedAnswerer, { calls }),
      );
    }),
  );

const deltas = (scripted: ReturnType<Script>): Stream.Stream<string, AnswerUnavailable> => {
  if (Stream.isStream(scripted)) return scripted;
  if (Effect.isEffect(scripted)) return Stream.fromIterableEffect(scripted);
  return Stream.fromIterable(scripted);
};
