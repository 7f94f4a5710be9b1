/**
 * Moderation by an endpoint that is compatible with OpenAI's `/moderations`.
 */
import {
  AnswerUnavailable,
  AskDeadline,
  type Moderation,
  Moderator,
  optionsOf,
  unflagged,
} from "@parley/core/ports";
import { Clock, Effect, Layer } from "effect";
import { makeEndpoint, type EndpointInvalid, type EndpointSettings } from "../models/Endpoint.ts";
import { isRecord, parseJson } from "../models/Json.ts";
import { classifyError, ErrorInside, makeFailure, retrySchedule } from "../models/ModelFailure.ts";
import { traceHeaders } from "../models/TraceHeaders.ts";

/** Where the endpoint is, and what happens when it fails. */
export interface ModerationEndpointSettings extends EndpointSettings {
  readonly model: string;
  /** Whether questions pass unflagged when the endpoint fails; default `false`. */
  readonly failOpen?: boolean;
}

/**
 * A `Moderator` that flags a question if the endpoint does, with the category that has the highest score. A call that
 * fails because of the network, or with status 408, 429 or 5xx, is retried like a call to a language model, but a
 * call that gets no response within 5 seconds is not. All calls together take at most a third of the time until the
 * ask's deadline, or 10 seconds if there is no deadline. A failure becomes `AnswerUnavailable` or, with `failOpen`, a
 * warning in the log. Neither contains the question or the key.
 */
export const layerModerationEndpoint = (
  options: ModerationEndpointSettings,
): Layer.Layer<Moderator, EndpointInvalid> => {
  const {
    failOpen = false,
    model,
    ...settings
  } = optionsOf("layerModerationEndpoint", options, {
    baseUrl: true,
    apiKey: false,
    fetch: false,
    model: true,
    failOpen: false,
  });
  return Layer.effect(
    Moderator,
    Effect.gen(function* () {
      const { notes, post } = yield* makeEndpoint(settings, "moderations");
      const moderate = Effect.fnUntraced(function* (question: string) {
        const headers = yield* traceHeaders;
        const text = yield* Effect.tryPromise({
          try: async (signal) => (await post({ model, input: question }, headers, signal)).text(),
          catch: (error) => classifyError(error, (text) => question.includes(text)),
        });
        for (const note of notes.splice(0)) {
          yield* Effect.logInfo(`The moderation endpoint is remembered: ${note}`);
        }
        const value = parseJson(text);
        const moderation = readModeration(value);
        if (moderation !== undefined) return moderation;
        if (!isRecord(value) || !value["error"]) {
          return yield* makeFailure("abnormal_end", "unexpected response");
        }
        const error = new ErrorInside(value, false);
        return yield* classifyError(error, (text) => question.includes(text));
      });

      return Moderator.of({
        check: Effect.fnUntraced(function* (_chatbot, question) {
          const now = yield* Clock.currentTimeMillis;
          const deadline = yield* AskDeadline;
          const limit = deadline === Infinity ? 10_000 : Math.max(0, deadline - now) / 3;
          return yield* moderate(question).pipe(
            failAfter(5_000, "no response within 5 seconds"),
            Effect.retry(retrySchedule()),
            // A retry that would begin after the limit is not awaited.
            Effect.provideService(AskDeadline, now + limit),
            failAfter(limit, `no success within ${Math.round(limit)} ms`),
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
  );
};

/** Its reason is not retried, because five timeouts would use up the time for the answer. */
const failAfter = (duration: number, detail: string) =>
  Effect.timeoutOrElse({
    duration,
    orElse: () => Effect.fail(makeFailure("abnormal_end", detail)),
  });

/**
 * Reads what a response says about the question; `undefined` if it says nothing. Some endpoints send one result
 * without a list, or only the categories, or write a boolean in another way. Reading one wrongly must flag, not pass.
 */
const readModeration = (value: unknown): Moderation | undefined => {
  if (!isRecord(value)) return undefined;
  const results: ReadonlyArray<unknown> = [value["results"] ?? value].flat();
  const { categories, category_scores, flagged } = results.find(isRecord) ?? {};
  const scores = isRecord(category_scores) ? category_scores : {};
  const names = isRecord(categories)
    ? Object.keys(categories).filter((name) => isTrue(categories[name]))
    : [];
  if (flagged == null && !isRecord(categories)) return undefined;
  if (flagged == null ? names.length === 0 : !isTrue(flagged)) return unflagged;
  const [category = "flagged"] = names
    .filter((name) => /^[\w/ -]{1,64}$/.test(name))
    .toSorted((a, b) => (Number(scores[b]) || 0) - (Number(scores[a]) || 0));
  return { category, flagged: true };
};

const isTrue = (u: unknown): boolean => !/^(false|0|no|null|undefined|none|)$/i.test(`${u}`);
