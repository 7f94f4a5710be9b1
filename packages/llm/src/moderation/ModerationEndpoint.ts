/**
 * Moderation by an endpoint that speaks OpenAI's moderations.
 */
import {
  AnswerUnavailable,
  type Moderation,
  Moderator,
  traceHeaders,
  unflagged,
} from "@parley/core/ports";
import { Effect, Layer, Redacted, Schema } from "effect";
import {
  classifyError,
  makeFailure,
  type ModelFailure,
  retrySchedule,
} from "../models/ModelFailure.ts";

/** Where the endpoint is, and what happens when it fails. */
export interface ModerationEndpointSettings {
  /** The address before `/moderations`, for example `https://api.openai.com/v1`. */
  readonly baseUrl: string;
  /** Sent as a bearer token; `undefined` for an endpoint without authentication. */
  readonly apiKey: Redacted.Redacted | undefined;
  readonly model: string;
  /** Whether questions pass unflagged while the endpoint fails; default `false`. */
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
 * A `Moderator` that returns the endpoint's flagged category with the highest score. A call that fails by the network,
 * 408, 429 or 5xx is repeated like a language model's; a call without a response in 5 seconds is not. A failure is
 * `AnswerUnavailable`, or with `failOpen` a warning in the log; neither contains the question or the key.
 */
export const layerModerationEndpoint = (
  settings: ModerationEndpointSettings,
): Layer.Layer<Moderator> =>
  Layer.succeed(
    Moderator,
    Moderator.of({
      check: (_chatbot, question) =>
        moderate(settings, question).pipe(
          Effect.timeoutOrElse({
            duration: "5 seconds",
            // No reason that is retried: five timeouts would use up the time of the answer.
            orElse: () => Effect.fail(makeFailure("abnormal_end", "it did not answer in time")),
          }),
          Effect.retry(retrySchedule()),
          Effect.catch(({ detail }) => {
            const reason = `the moderation endpoint failed: ${detail}`;
            return settings.failOpen === true
              ? Effect.as(Effect.logWarning(reason), unflagged)
              : Effect.fail(new AnswerUnavailable({ reason }));
          }),
        ),
    }),
  );

const moderate = (
  { apiKey, baseUrl, model }: ModerationEndpointSettings,
  question: string,
): Effect.Effect<Moderation, ModelFailure> =>
  Effect.gen(function* () {
    const headers = new Headers({ "content-type": "application/json", ...(yield* traceHeaders) });
    if (apiKey !== undefined) headers.set("authorization", `Bearer ${Redacted.value(apiKey)}`);
    const body = yield* Effect.tryPromise({
      try: async (signal) => {
        const response = await fetch(`${baseUrl.replace(/\/+$/, "")}/moderations`, {
          method: "POST",
          headers,
          body: JSON.stringify({ model, input: question }),
          // A redirect would send the question to another address.
          redirect: "manual",
          signal,
        });
        const responseBody = await response.text();
        if (response.ok) return responseBody;
        const responseHeaders = Object.fromEntries(response.headers);
        throw { statusCode: response.status, responseHeaders, responseBody };
      },
      catch: classifyError,
    });
    const { results } = yield* Effect.mapError(decodeResponse(body), () =>
      makeFailure("abnormal_end", "its answer makes no sense"),
    );
    return results[0].flagged
      ? { category: flaggedCategory(results[0]), flagged: true }
      : unflagged;
  });

/** The flagged category with the highest score; `flagged` when the endpoint names none. */
const flaggedCategory = ({
  categories,
  category_scores: scores = {},
}: typeof Result.Type): string =>
  Object.keys(categories)
    .filter((name) => categories[name] === true && /^[\w/ -]{1,64}$/.test(name))
    .toSorted((a, b) => (scores[b] ?? 0) - (scores[a] ?? 0))[0] ?? "flagged";
