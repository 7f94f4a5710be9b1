/**
 * One call of one language model.
 */
import { isBlank } from "@parley/core";
import type * as Ai from "ai";
import { Duration, Effect, Scope, Stream } from "effect";
import { failure, failureOf, type ModelFailure } from "./ModelFailure.ts";
import type { Prompt } from "./Prompt.ts";

/**
 * Any model object of the AI SDK, of whichever provider. Not a model's bare name: the AI SDK would
 * send the chat to its hosted gateway for that.
 */
export type LanguageModel = Exclude<Ai.LanguageModel, string>;

/**
 * A piece of the answer; `Restart`, when the pieces so far turn out to be reasoning; or, once and last, how many
 * tokens it took.
 */
export type CallPart =
  | { readonly _tag: "Delta"; readonly text: string }
  | { readonly _tag: "Restart" }
  | { readonly _tag: "Tokens"; readonly prompt: number; readonly completion: number };

/** The AI SDK. Its warnings would go to stderr past our logger; an embedder that set a logger keeps it. */
export const loadAi = Effect.promise(() => {
  globalThis.AI_SDK_LOG_WARNINGS ??= false;
  return import("ai");
});

export interface CallOptions {
  readonly ai: typeof Ai;
  readonly model: LanguageModel;
  readonly maxOutputTokens: number;
  /** The longest time without any sign of the model. */
  readonly idleTimeout: Duration.Duration;
  /** Learnt from earlier calls, and changed by each. */
  readonly habits: {
    /** Its answers begin with reasoning that has a closing tag only: the opening one is in its prompt's template. */
    opensThinking: boolean;
  };
}

/**
 * Calls the model and waits for the first piece that is more than white space; the stream begins with
 * it. A stream that ends without failing has been finished by the model, or by its bound of output.
 * Closing the scope aborts the provider's request.
 */
export const callModel = (
  { ai, habits, idleTimeout, maxOutputTokens, model }: CallOptions,
  prompt: Prompt,
): Effect.Effect<Stream.Stream<CallPart, ModelFailure>, ModelFailure, Scope.Scope> =>
  Effect.gen(function* () {
    const controller = yield* Effect.acquireRelease(
      Effect.sync(() => new AbortController()),
      (abort) => Effect.sync(() => abort.abort()),
    );
    const source = yield* Effect.try({
      try: () =>
        ai.streamText({
          model: ai.wrapLanguageModel({
            model,
            middleware: ai.extractReasoningMiddleware({ tagName: "think" }),
          }),
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
    const silent = `the language model was silent for ${Duration.toMillis(idleTimeout)} ms`;
    const parts = Stream.fromAsyncIterable(nextOnly(source), failureOf).pipe(
      Stream.timeoutOrElse({
        duration: idleTimeout,
        orElse: () => Stream.fail(failure("timeout", silent)),
      }),
    );
    const pull = yield* Stream.toPull(piecesOf(parts, habits));
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

type Part = Ai.TextStreamPart<Ai.ToolSet>;

const closingTag = "</think>";

/** How many characters at the end of a text may be the beginning of a closing tag. */
const startedTag = (text: string): number => {
  let length = closingTag.length - 1;
  while (!text.endsWith(closingTag.slice(0, length))) length--;
  return length;
};

const piecesOf = (
  parts: Stream.Stream<Part, ModelFailure>,
  habits: CallOptions["habits"],
): Stream.Stream<CallPart, ModelFailure> =>
  Stream.suspend(() => {
    let holdsAll = habits.opensThinking;
    /** Text that is not given yet. */
    let held = "";
    let begun = false;
    let reasoned = false;
    let finish: Extract<Part, { type: "finish" }> | undefined;

    /** Gives the text but its last characters, once it is more than white space. */
    const give = (kept: number): ReadonlyArray<CallPart> => {
      const text = held.slice(0, held.length - kept);
      if (text === "" || (!begun && isBlank(text))) return [];
      held = held.slice(text.length);
      const delta = { _tag: "Delta", text: begun || !reasoned ? text : text.trimStart() } as const;
      begun = true;
      return [delta];
    };

    const piecesOfText = (text: string): ReadonlyArray<CallPart> => {
      // No store keeps NUL.
      held += text.replaceAll("\0", "");
      const pieces: Array<CallPart> = [];
      const end = held.lastIndexOf(closingTag);
      if (end !== -1) {
        held = held.slice(end + closingTag.length);
        if (begun) pieces.push({ _tag: "Restart" });
        begun = holdsAll = false;
        reasoned = habits.opensThinking = true;
      }
      return holdsAll ? pieces : [...pieces, ...give(startedTag(held))];
    };

    const pieces = parts.pipe(
      Stream.mapEffect((part): Effect.Effect<ReadonlyArray<CallPart>, ModelFailure> => {
        switch (part.type) {
          case "text-delta":
            return Effect.succeed(piecesOfText(part.text));
          case "reasoning-start":
            reasoned = true;
            break;
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
    );
    const last = Effect.suspend((): Effect.Effect<ReadonlyArray<CallPart>, ModelFailure> => {
      if (finish === undefined) return Effect.fail(broken);
      const { finishReason, rawFinishReason, totalUsage } = finish;
      if (finishReason !== "stop" && finishReason !== "length") {
        // The AI SDK ends a stream that just stops with a finish that has no raw reason.
        if (rawFinishReason === undefined) return Effect.fail(broken);
        const reason = finishReason === "content-filter" ? "content_filter" : "abnormal_end";
        return Effect.fail(failure(reason, `the answer ended abnormally: ${finishReason}`));
      }
      if (holdsAll) habits.opensThinking = false;
      const rest = give(0);
      if (!begun) {
        const { reasoningTokens = 0 } = totalUsage.outputTokenDetails;
        const thought = reasoned || reasoningTokens > 0 || finishReason === "length";
        return Effect.fail(thought ? onlyReasoning : empty);
      }
      const tokens = {
        _tag: "Tokens",
        prompt: totalUsage.inputTokens ?? 0,
        completion: totalUsage.outputTokens ?? 0,
      } as const;
      return Effect.succeed([...rest, tokens]);
    });
    return Stream.flattenIterable(Stream.concat(pieces, Stream.fromEffect(last)));
  });

const broken = failure("cut_off", "the answer broke off");
const empty = failure("empty", "the answer is empty");
const onlyReasoning = failure(
  "reasoning_only",
  "the model spent the tokens of its answer on reasoning, and said nothing",
);
