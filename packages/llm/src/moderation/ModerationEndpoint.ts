/**
 * Moderation by any endpoint that speaks OpenAI's moderations.
 */
import { AnswerUnavailable, type Moderation, Moderator } from "@parley/core";
import { Effect, Layer, Redacted, Schema } from "effect";
import { failure, httpFailure, type ModelFailure } from "../models/ModelFailure.ts";
import { defaultRetries, retrySchedule } from "../models/Retry.ts";

export interface ModerationEndpointSettings {
  /** The address before `/moderations`, for example `https://api.openai.com/v1`. */
  readonly baseUrl: string;
  /** Sent as a bearer token; `undefined` for an endpoint that wants none. */
  readonly apiKey: Redacted.Redacted | undefined;
  readonly model: string;
  /** Whether questions pass unjudged while the endpoint fails; default `false`. */
  readonly failOpen?: boolean;
}

const Judged = Schema.Struct({
  results: Schema.NonEmptyArray(
    Schema.Struct({
      flagged: Schema.Boolean,
      categories: Schema.Record(Schema.String, Schema.NullOr(Schema.Boolean)),
      category_scores: Schema.optionalKey(
        Schema.Record(Schema.String, Schema.NullOr(Schema.Number)),
      ),
    }),
  ),
});
const decodeJudged = Schema.decodeUnknownEffect(Schema.fromJsonString(Judged));
type Result = (typeof Judged.Type)["results"][number];

const none: Moderation = { category: "none", flagged: false };

/**
 * A `Moderator` that asks the endpoint and takes the flagged category with the highest score. It waits
 * for 5 seconds. A call that fails by the network, 408, 429 or 5xx is made again like a language model's. A failure
 * is `AnswerUnavailable`, or with `failOpen` a warning in the log; neither tells the question or the key.
 */
export const layerModerationEndpoint = (
  settings: ModerationEndpointSettings,
): Layer.Layer<Moderator> =>
  Layer.succeed(
    Moderator,
    Moderator.of({
      check: (_chatbot, question) => {
        const judged = Effect.retry(judge(settings, question), retrySchedule(defaultRetries));
        return Effect.catch(judged, ({ detail }) => {
          const reason = `the moderation endpoint failed: ${detail}`;
          return settings.failOpen === true
            ? Effect.as(Effect.logWarning(reason), none)
            : Effect.fail(new AnswerUnavailable({ reason }));
        });
      },
    }),
  );

const judge = (
  { apiKey, baseUrl, model }: ModerationEndpointSettings,
  question: string,
): Effect.Effect<Moderation, ModelFailure> =>
  Effect.tryPromise({
    try: (signal) =>
      fetch(`${baseUrl.replace(/\/+$/, "")}/moderations`, {
        method: "POST",
        headers: {
          "content-type": "application/json",
          ...(apiKey === undefined ? {} : { authorization: `Bearer ${Redacted.value(apiKey)}` }),
        },
        body: JSON.stringify({ model, input: question }),
        // A redirect would carry the question to another address.
        redirect: "error",
        signal,
      }).then(async (response) => ({ response, body: await response.text() })),
    catch: () => failure("network", "it cannot be reached"),
  }).pipe(
    Effect.timeoutOrElse({
      duration: "5 seconds",
      // Five such waits would take the time of the answer.
      orElse: () =>
        Effect.fail(failure("timeout", "it did not answer in time", { retryable: false })),
    }),
    Effect.flatMap(({ body, response: { headers, ok, status } }) =>
      ok
        ? Effect.mapError(decodeJudged(body), () =>
            failure("abnormal_end", "its answer makes no sense"),
          )
        : Effect.fail(httpFailure(status, Object.fromEntries(headers), body, `HTTP ${status}`)),
    ),
    Effect.map(({ results: [result] }) =>
      result.flagged ? { category: categoryOf(result), flagged: true } : none,
    ),
  );

/** `flagged` when the endpoint names no category. */
const categoryOf = ({ categories, category_scores: scores }: Result): string => {
  let best = { name: "flagged", score: -1 };
  for (const [name, flagged] of Object.entries(categories)) {
    const score = scores?.[name] ?? 0;
    if (flagged === true && score > best.score && /^[\w/ -]{1,64}$/.test(name)) {
      best = { name, score };
    }
  }
  return best.name;
};
