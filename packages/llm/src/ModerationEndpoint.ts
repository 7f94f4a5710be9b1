/**
 * Moderation by any endpoint that speaks OpenAI's moderations.
 */
import { AnswerUnavailable, type Moderation, Moderator } from "@parley/core";
import { Effect, Layer, Redacted, Schema } from "effect";

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
type Result = (typeof Judged.Type)["results"][number];

const none: Moderation = { category: "none", flagged: false };

/**
 * A `Moderator` that asks the endpoint and takes the flagged category with the highest score. It waits
 * for 5 seconds. A failure is `AnswerUnavailable`, or with `failOpen` a warning in the log; neither
 * tells the question or the key.
 */
export const layerModerationEndpoint = (
  settings: ModerationEndpointSettings,
): Layer.Layer<Moderator> =>
  Layer.succeed(
    Moderator,
    Moderator.of({
      check: (_chatbot, question) => {
        const judged = judge(settings, question);
        return settings.failOpen === true
          ? Effect.catch(judged, ({ reason }) => Effect.as(Effect.logWarning(reason), none))
          : judged;
      },
    }),
  );

const judge = (
  { apiKey, baseUrl, model }: ModerationEndpointSettings,
  question: string,
): Effect.Effect<Moderation, AnswerUnavailable> =>
  Effect.tryPromise({
    try: async (signal) => {
      const response = await fetch(`${baseUrl.replace(/\/+$/, "")}/moderations`, {
        method: "POST",
        headers: {
          "content-type": "application/json",
          ...(apiKey === undefined ? {} : { authorization: `Bearer ${Redacted.value(apiKey)}` }),
        },
        body: JSON.stringify({ model, input: question }),
        // A redirect would carry the question to somebody else.
        redirect: "error",
        signal,
      });
      if (response.ok) return (await response.json()) as unknown;
      await response.body?.cancel();
      return response.status;
    },
    catch: () => failed("it cannot be reached"),
  }).pipe(
    Effect.timeoutOrElse({
      duration: "5 seconds",
      orElse: () => Effect.fail(failed("it did not answer in time")),
    }),
    Effect.flatMap((answer) =>
      typeof answer === "number"
        ? Effect.fail(failed(`HTTP ${answer}`))
        : Schema.decodeUnknownEffect(Judged)(answer).pipe(
            Effect.mapError(() => failed("its answer makes no sense")),
          ),
    ),
    Effect.map(({ results: [result] }) =>
      result.flagged ? { category: categoryOf(result), flagged: true } : none,
    ),
  );

const failed = (what: string) =>
  new AnswerUnavailable({ reason: `the moderation endpoint failed: ${what}`, passing: true });

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
