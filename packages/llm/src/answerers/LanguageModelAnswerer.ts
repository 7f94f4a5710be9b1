/**
 * Answers questions with language models.
 */
import {
  Answerer,
  type AnswerPart,
  AnswerUnavailable,
  AskedModel,
  AskLimits,
  optionsOf,
  type StorageUnavailable,
} from "@parley/core/ports";
import {
  Cache,
  Clock,
  type Context,
  Duration,
  Effect,
  Exit,
  Layer,
  Option,
  Queue,
  Result,
  Schedule,
  Scope,
  Stream,
} from "effect";
import { lookUpIn, type KnowledgeSource, templateOf } from "../documents/Knowledge.ts";
import { sourcesOf } from "../documents/Source.ts";
import { maxOutputTokensOf, type LanguageModel } from "../models/ModelCall.ts";
import { retrySchedule, type ModelFailure, type Tokens } from "../models/ModelFailure.ts";
import { type Prompt, promptBuilder } from "../models/Prompt.ts";
import { makeProvider, type Provider } from "../models/Provider.ts";

/** Options for `layerLanguageModel`. The limits apply to each model separately. */
export interface LanguageModelOptions {
  /** The size of a model's context window in tokens, including the answer (default 32,000). */
  readonly contextTokens?: number | undefined;
  /** The maximum number of tokens in an answer (default: a quarter of the context window, at most 4096). */
  readonly maxOutputTokens?: number | undefined;
  /** The documents to answer from; `null` (the default) for none. */
  readonly knowledge?: KnowledgeSource;
  /**
   * Returns the model that a chatbot's settings name, which replaces the first model for that chatbot. Without this
   * option, a chatbot whose settings name a model cannot answer.
   */
  readonly modelNamed?: (name: string) => Effect.Effect<LanguageModel, AnswerUnavailable>;
  /** The maximum number of retries per provider for one question (default 4). */
  readonly retries?: number;
  /**
   * The maximum wait for the first part of a model's response, and between parts. The default is 8/30 of the deadline
   * in `AskLimits`, or 20/30 for the last or only model, which may still be loading or not stream its reasoning.
   */
  readonly idleTimeout?: Duration.Input;
}

/** With these shares of the deadline, one ask has time for two models and a pause between them. */
const idleShare = 8 / 30;
const idleShareOfLast = 20 / 30;

const maxPassages = 5;

const optionNames = {
  contextTokens: false,
  maxOutputTokens: false,
  knowledge: false,
  modelNamed: false,
  retries: false,
  idleTimeout: false,
} as const;

/**
 * Provides an `Answerer` that calls one or several models, in order of preference.
 *
 * - A call that fails for a transient reason (network, idle timeout, 408, 429, 5xx, an answer that is empty or cut off)
 *   is retried with jittered exponential backoff, after any `Retry-After`. Meanwhile the next model is called. No
 *   attempt begins after the ask's deadline. Every failed attempt but the last ends with a `Restart` part, before the
 *   pause.
 * - A provider that fails ten questions in a row is not called for a while: for the key or visitor whose questions
 *   failed, or for everybody if they had three or more. Then a single question tries it again.
 * - If no attempt succeeds, the answer fails with `AnswerUnavailable`. Errors, logs and metrics contain names, statuses
 *   and codes, never text from the chat or an API key.
 * - Interrupting the stream aborts the provider's request.
 */
export const layerLanguageModel = (
  models: LanguageModel | readonly [LanguageModel, ...Array<LanguageModel>],
  options: LanguageModelOptions = {},
): Layer.Layer<Answerer> => {
  const ownOptions = optionsOf("layerLanguageModel", options, optionNames);
  return Layer.effect(
    Answerer,
    Effect.gen(function* () {
      const { deadline } = yield* AskLimits;
      const {
        contextTokens = 32_000,
        knowledge = null,
        maxOutputTokens = maxOutputTokensOf(contextTokens),
        modelNamed = () => Effect.fail(noModel),
        retries,
      } = ownOptions;
      const list = "length" in models ? models : [models];
      const providerAt = (model: LanguageModel, index: number) => {
        const share = index === list.length - 1 ? idleShareOfLast : idleShare;
        const idleTimeout = Duration.fromInputUnsafe(
          ownOptions.idleTimeout ?? Duration.times(deadline, share),
        );
        return makeProvider({ model, maxOutputTokens, idleTimeout });
      };
      const defaults = yield* Effect.forEach(list, providerAt);
      const scope = yield* Effect.scope;
      // A provider outlives the ask that first needs it, so its log lines must not carry that ask's fields and span.
      const context = yield* Effect.context<never>();
      const providersByName = yield* Cache.makeWith(
        (name: string) =>
          Effect.flatMap(modelNamed(name), (model) =>
            Scope.provide(providerAt(model, 0), scope),
          ).pipe(Effect.updateContext((_: Context.Context<never>) => context)),
        {
          capacity: 1000,
          timeToLive: (exit) => (Exit.isSuccess(exit) ? Duration.infinity : Duration.zero),
        },
      );

      const knowledgeOf = lookUpIn(knowledge);
      return Answerer.of({
        answer: (chatbot, earlier, question) =>
          Stream.callback<AnswerPart, AnswerUnavailable | StorageUnavailable>(
            Effect.fnUntraced(function* (queue) {
              const documents = yield* knowledgeOf(chatbot);
              const passages = documents && documents.search(question, maxPassages);
              const { model } = chatbot.settings;
              const providers =
                model === null
                  ? defaults
                  : [yield* Cache.get(providersByName, model), ...defaults.slice(1)];
              const tokens = contextTokens - maxOutputTokens;
              const promptOf = yield* promptBuilder(chatbot, question, passages, earlier, tokens);
              const { messages } = yield* answerWith(providers, promptOf, tokens, retries, queue);
              const cited =
                passages?.filter(({ text }) => messages[0]!.content.includes(text)) ?? [];
              if (cited.length > 0) {
                const metadata = sourcesOf(cited, templateOf(chatbot, documents));
                yield* Queue.offer(queue, { _tag: "Metadata", metadata });
              }
              yield* Queue.end(queue);
            }),
          ),
      });
    }),
  );
};

const noModel = new AnswerUnavailable({
  reason: "the chatbot's settings name a model, but the answerer has no `modelNamed` option",
});

/**
 * Returns the tokens of a call, as reported by the provider. If it reports none, estimates one token per four
 * characters of prompt and answer, unless the call cost nothing: providers also bill calls that break off or are
 * cancelled.
 */
const tokensOf = (
  exit: Exit.Exit<Tokens, ModelFailure>,
  messages: Prompt["messages"],
  answerLength: number,
): number => {
  const failure = Option.getOrNull(Exit.findErrorOption(exit));
  const report = Exit.isSuccess(exit) ? exit.value : failure?.tokens;
  const reportedTokens = report === undefined ? 0 : report.prompt + report.completion;
  if (reportedTokens > 0) return reportedTokens;
  if (answerLength === 0 && failure?.is("free") === true) return 0;
  const promptLength = messages.reduce((sum, { content }) => sum + content.length, 0);
  return Math.ceil((promptLength + answerLength) / 4);
};

/**
 * Calls providers until one answers: always the provider that is ready first or, in a tie, comes first in the list. A
 * provider that failed is ready again after the next pause of {@link retrySchedule}, and gets no more attempts once
 * that schedule ends. A request that a provider rejects is repeated once without a pause, with half the prompt, if the
 * prompt used more than half of its budget: it may be too long, whatever the provider's words are. A content filter
 * ends all attempts.
 *
 * @param providers at least one
 * @param promptOf builds a prompt of at most the given number of tokens
 * @param tokens the maximum number of tokens in the first prompt
 */
const answerWith = Effect.fnUntraced(function* (
  providers: ReadonlyArray<Provider>,
  promptOf: (tokens: number) => Prompt,
  tokens: number,
  retries: number | undefined,
  queue: Queue.Enqueue<AnswerPart>,
) {
  const startedAt = yield* Clock.currentTimeMillis;
  const askedModel = yield* AskedModel;
  const details = new Set<string>();
  let candidates = yield* Effect.forEach(providers, (provider) =>
    Effect.map(Schedule.toStep(retrySchedule(retries)), (nextPause) => ({
      provider,
      nextPause,
      readyAt: startedAt,
      prompt: promptOf(tokens),
      isHalved: false,
      hasFailed: false,
    })),
  );
  let candidate = candidates[0]!;
  let attempts = 0;
  while (true) {
    const { model, name: provider } = candidate.provider;
    askedModel.model = model;
    const { messages } = candidate.prompt;
    let answerLength = 0;
    const emit = (text: string) => {
      answerLength += text.length;
      const part = { _tag: "Delta", text } as const;
      return Queue.offerUnsafe(queue, part) || Effect.runPromise(Queue.offer(queue, part));
    };
    const result = yield* candidate.provider.call(candidate, messages, emit).pipe(
      Effect.onExit((exit) =>
        Effect.sync(() => {
          askedModel.tokens = (askedModel.tokens ?? 0) + tokensOf(exit, messages, answerLength);
        }),
      ),
      Effect.result,
    );
    const now = yield* Clock.currentTimeMillis;
    if (Result.isSuccess(result)) {
      const { completion: completionTokens, prompt: promptTokens } = result.success;
      attempts++;
      const latencyMillis = now - startedAt;
      const usage = { provider, model, promptTokens, completionTokens, attempts, latencyMillis };
      yield* Queue.offer(queue, { _tag: "Usage", usage });
      return candidate.prompt;
    }
    const { failure } = result;
    details.add(providers.length > 1 ? `${provider}: ${failure.detail}` : failure.detail);
    if (failure.reason !== "circuit_open") attempts++;
    askedModel.attempts = attempts;
    const isLong = !candidate.isHalved && candidate.prompt.tokens > tokens / 2;
    if (isLong && failure.is("rejection")) {
      candidate.isHalved = true;
      candidate.prompt = promptOf(candidate.prompt.tokens / 2);
      yield* Queue.offer(queue, { _tag: "Restart" });
      continue;
    }
    const pause = yield* Effect.option(candidate.nextPause(now, failure));
    if (Option.isSome(pause)) candidate.readyAt = now + Duration.toMillis(pause.value[1]);
    else candidates = candidates.filter((other) => other !== candidate);
    const [next] = candidates.toSorted((a, b) => a.readyAt - b.readyAt);
    if (next === undefined || failure.reason === "content_filter") {
      const reason = `no language model answered: ${[...details].join("; ")}`;
      return yield* new AnswerUnavailable({ reason });
    }
    yield* Queue.offer(queue, { _tag: "Restart" });
    yield* Effect.sleep(Math.max(0, next.readyAt - now));
    candidate = next;
  }
});
