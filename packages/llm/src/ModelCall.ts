/**
 * One call of one language model.
 */
import type { LanguageModel as AnyLanguageModel, streamText, TextStreamPart, ToolSet } from "ai";
import { Duration, Effect, type Scope, Stream } from "effect";
import { failureOf, ModelFailure } from "./Failure.ts";
import type { Prompt } from "./Prompt.ts";

/**
 * Any model object of the AI SDK, of whichever provider. Not a model's bare name: the AI SDK would
 * send the chat to its hosted gateway for that.
 */
export type LanguageModel = Exclude<AnyLanguageModel, string>;

/** A piece of the answer, or, once and last, how many tokens it took. */
export type CallPart =
  | { readonly _tag: "Delta"; readonly text: string }
  | { readonly _tag: "Tokens"; readonly prompt: number; readonly completion: number };

export interface CallOptions {
  readonly streamText: typeof streamText;
  readonly model: LanguageModel;
  readonly maxOutputTokens: number;
  /** The longest time without any sign of the model. */
  readonly silence: Duration.Duration;
}

/**
 * Calls the model and waits for the first piece that is more than white space; the stream begins with
 * it. A stream that ends without failing has been finished by the model, or by its bound of output.
 * Closing the scope aborts the provider's request.
 */
export const callModel = (
  { maxOutputTokens, model, silence, streamText }: CallOptions,
  prompt: Prompt,
): Effect.Effect<Stream.Stream<CallPart, ModelFailure>, ModelFailure, Scope.Scope> =>
  Effect.gen(function* () {
    const controller = yield* Effect.acquireRelease(
      Effect.sync(() => new AbortController()),
      (abort) => Effect.sync(() => abort.abort()),
    );
    const source = yield* Effect.try({
      try: () =>
        streamText({
          model,
          ...(prompt.system === null ? {} : { instructions: prompt.system }),
          messages: [...prompt.messages],
          maxOutputTokens,
          maxRetries: 0,
          abortSignal: controller.signal,
          telemetry: { isEnabled: false },
          // Left out, it prints the error, the prompt included.
          onError: () => {},
        }).stream,
      catch: failureOf,
    });
    const parts = Stream.fromAsyncIterable(nextOnly(source), failureOf).pipe(
      Stream.timeoutOrElse({
        duration: silence,
        orElse: () =>
          Stream.fail(
            new ModelFailure({
              reason: "timeout",
              detail: `the language model was silent for ${Duration.toMillis(silence)} ms`,
              ill: true,
            }),
          ),
      }),
    );
    const pull = yield* Stream.toPull(piecesOf(parts));
    const first = yield* pull.pipe(
      // The pieces end with the tokens, never with nothing.
      Effect.catchTag("Done", () => Effect.die("the pieces ended before the first")),
    );
    return Stream.concat(Stream.fromIterable(first), Stream.fromPull(Effect.succeed(pull)));
  });

/**
 * The iterator without its `return`, which would wait for the provider to let go of the connection;
 * aborting the request does not.
 */
const nextOnly = <A>(iterable: AsyncIterable<A>): AsyncIterable<A> => ({
  [Symbol.asyncIterator]: () => {
    const iterator = iterable[Symbol.asyncIterator]();
    return { next: () => iterator.next() };
  },
});

type Part = TextStreamPart<ToolSet>;

const piecesOf = (
  parts: Stream.Stream<Part, ModelFailure>,
): Stream.Stream<CallPart, ModelFailure> =>
  Stream.suspend(() => {
    /** White space that came first, until there is more than that; then `null`. */
    let held: string | null = "";
    let finish: Extract<Part, { type: "finish" }> | undefined;
    const deltas = parts.pipe(
      Stream.mapEffect((part): Effect.Effect<ReadonlyArray<CallPart>, ModelFailure> => {
        switch (part.type) {
          case "text-delta": {
            // No store keeps NUL.
            const text: string = (held ?? "") + part.text.replaceAll("\0", "");
            if (text === "") break;
            if (held !== null && text.trim() === "") {
              held = text;
              break;
            }
            held = null;
            return Effect.succeed([{ _tag: "Delta", text }]);
          }
          case "error":
            return Effect.fail(failureOf(part.error));
          case "abort":
            return Effect.fail(broken);
          case "finish":
            finish = part;
            break;
        }
        return Effect.succeed([]);
      }),
      Stream.flattenIterable,
    );
    const end = Effect.suspend((): Effect.Effect<CallPart, ModelFailure> => {
      if (finish === undefined) return Effect.fail(broken);
      const { finishReason, rawFinishReason, totalUsage } = finish;
      // A stream that just ends is told as finished for a reason that nobody gave.
      if (rawFinishReason === undefined && !ending.has(finishReason)) return Effect.fail(broken);
      if (!ending.has(finishReason)) {
        return Effect.fail(
          new ModelFailure({
            reason: finishReason === "content-filter" ? "content_filter" : "abnormal_end",
            detail: `the answer ended abnormally: ${finishReason}`,
            ill: false,
          }),
        );
      }
      if (held !== null) return Effect.fail(empty);
      return Effect.succeed({
        _tag: "Tokens",
        prompt: totalUsage.inputTokens ?? 0,
        completion: totalUsage.outputTokens ?? 0,
      });
    });
    return Stream.concat(deltas, Stream.fromEffect(end));
  });

const ending: ReadonlySet<string> = new Set(["stop", "length"]);

const broken = new ModelFailure({
  reason: "cut_off",
  detail: "the answer broke off",
  retry: true,
  ill: true,
});

const empty = new ModelFailure({ reason: "empty", detail: "the answer is empty", ill: true });
