/**
 * Moderation by an endpoint that is compatible with OpenAI's `/moderations`.
 */
import {
  AnswerUnavailable,
  AskDeadline,
  Moderator,
  optionsOf,
  unflagged,
} from "@parley/core/ports";
import { Clock, Effect, Layer, type Redacted, Schema } from "effect";
import { FetchHttpClient, HttpClient, HttpClientRequest } from "effect/http";
import { classifyError, makeFailure, retrySchedule } from "../models/ModelFailure.ts";
import { traceHeaders } from "../models/TraceHeaders.ts";

/** Where the endpoint is, and what happens when it fails. */
export interface ModerationEndpointSettings {
  /** The endpoint's address without `/moderations`, for example `https://api.openai.com/v1`. */
  readonly baseUrl: string;
  /** Sent as a bearer token; `undefined` for an endpoint without authentication. */
  readonly apiKey: Redacted.Redacted | undefined;
  readonly model: string;
  /** Whether questions pass unflagged when the endpoint fails; default `false`. */
  readonly failOpen?: boolean;
}

const Result = Schema.Struct({
  flagged: Schema.Boolean,
  categories: Schema.Record(Schema.String, Schema.NullOr(Schema.Boolean)),
  category_scores: Schema.optionalKey(Schema.Record(Schema.String, Schema.NullOr(Schema.Number))),
});
const decodeResponse = Schema.decodeUnknownEffect(
  Schema.fromJsonString(Schema.Struct({ results: Schema.NonEmptyArray(Result) })),
);

/**
 * A `Moderator` that flags a question if the endpoint does, with the category that has the highest score. A call that
 * fails because of the network, or with status 408, 429 or 5xx, is retried like a call to a language model, but a
 * call that gets no response within 5 seconds is not. All calls together take at most a third of the time until the
 * ask's deadline, or 10 seconds if there is no deadline. A failure becomes `AnswerUnavailable` or, with `failOpen`, a
 * warning in the log. Neither contains the question or the key.
 */
export const layerModerationEndpoint = (
  settings: ModerationEndpointSettings,
): Layer.Layer<Moderator> => {
  const {
    apiKey,
    baseUrl,
    failOpen = false,
    model,
  } = optionsOf("layerModerationEndpoint", settings, {
    baseUrl: true,
    apiKey: false,
    model: true,
    failOpen: false,
  });
  return Layer.effect(
    Moderator,
    Effect.gen(function* () {
      const client = yield* HttpClient.HttpClient;
      const endpoint = HttpClientRequest.post(`${baseUrl.replace(/\/+$/, "")}/moderations`);
      const request =
        apiKey === undefined ? endpoint : HttpClientRequest.bearerToken(endpoint, apiKey);

      const moderate = Effect.fnUntraced(function* (question: string) {
        const response = yield* request.pipe(
          HttpClientRequest.setHeaders(yield* traceHeaders),
          HttpClientRequest.bodyJsonUnsafe({ model, input: question }),
          client.execute,
        );
        const { headers: responseHeaders, status: statusCode } = response;
        const responseBody = yield* response.text;
        if (statusCode < 200 || statusCode >= 300) {
          return yield* classifyError({ statusCode, responseHeaders, responseBody });
        }
        const { results } = yield* Effect.mapError(decodeResponse(responseBody), () =>
          makeFailure("abnormal_end", "unexpected response"),
        );
        return results[0].flagged
          ? { category: flaggedCategory(results[0]), flagged: true }
          : unflagged;
      }, Effect.mapError(classifyError));

      return Moderator.of({
        check: Effect.fnUntraced(function* (_chatbot, question) {
          const now = yield* Clock.currentTimeMillis;
          const deadline = yield* AskDeadline;
          const limit = deadline === Infinity ? 10_000 : Math.max(0, deadline - now) / 3;
          return yield* moderate(question).pipe(
            // A redirect would send the question to another address.
            Effect.provideService(FetchHttpClient.RequestInit, { redirect: "manual" }),
            Effect.provideService(HttpClient.TracerDisabledWhen, () => true),
            Effect.timeoutOrElse({
              duration: "5 seconds",
              // This reason is not retried, because five timeouts would use up the time for the answer.
              orElse: () =>
                Effect.fail(makeFailure("abnormal_end", "no response within 5 seconds")),
            }),
            Effect.retry(retrySchedule()),
            // A retry that would begin after the limit is not awaited.
            Effect.provideService(AskDeadline, now + limit),
            Effect.timeoutOrElse({
              duration: limit,
              orElse: () =>
                Effect.fail(
                  makeFailure("abnormal_end", `no success within ${Math.round(limit)} ms`),
                ),
            }),
            Effect.catch(({ detail }) => {
              const reason = `the moderation endpoint failed: ${detail}`;
              if (!failOpen) return Effect.fail(new AnswerUnavailable({ reason }));
              const warning = `${reason}; the question passes unflagged`;
              return Effect.as(Effect.logWarning(warning), unflagged);
            }),
          );
        }),
      });
    }),
  ).pipe(Layer.provide(FetchHttpClient.layer));
};

/** Returns the flagged category with the highest score, or `flagged` if the endpoint names no well-formed category. */
const flaggedCategory = ({
  categories,
  category_scores: scores = {},
}: typeof Result.Type): string =>
  Object.keys(categories)
    .filter((name) => categories[name] === true && /^[\w/ -]{1,64}$/.test(name))
    .toSorted((a, b) => (scores[b] ?? 0) - (scores[a] ?? 0))[0] ?? "flagged";
