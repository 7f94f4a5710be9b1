/**
 * Whether the language models and the moderation endpoint answer, by the shortest calls there are.
 */
import { defaultSettings, Moderator } from "@parley/core";
import { layerModerationEndpoint, openAiCompatible, tryModel } from "@parley/llm";
import { Effect } from "effect";
import { Settings, type LlmSettings } from "../Settings.ts";
import { failed, ok, warning, type Finding } from "./Finding.ts";

/** Asks one model for one token. What was found names no key, and of its address only the host. */
export const checkModel = Effect.fnUntraced(function* (
  settings: LlmSettings,
): Effect.fn.Return<Finding> {
  const called = `${settings.model} at ${settings.provider}`;
  return yield* Effect.flatMap(openAiCompatible(settings), tryModel).pipe(
    Effect.as(ok("model", `${called} answers.`)),
    Effect.catch(({ detail, reason }) => {
      const told = (reason === "rate_limit" ? warning : failed)(
        "model",
        `${called}: ${detail}.`,
        hintFor(detail, settings.names),
      );
      return Effect.succeed(told);
    }),
  );
});

const hintFor = (detail: string, { apiKey, baseUrl, model }: LlmSettings["names"]): string => {
  if (/HTTP 40[13]/.test(detail)) return `Set ${apiKey} to a key that the endpoint accepts.`;
  if (/HTTP 404/.test(detail)) {
    return `Correct ${baseUrl}, which often ends with /v1, or ${model}: the endpoint does not know one of them.`;
  }
  if (/HTTP 429/.test(detail))
    return `The endpoint limits its calls: look after the account of ${apiKey}.`;
  if (/HTTP 5/.test(detail))
    return "The endpoint has trouble of its own: look into its logs, or try later.";
  if (/HTTP 4/.test(detail))
    return `The endpoint may not know ${model}, or does not speak this protocol.`;
  return `Correct ${baseUrl}, and see that the endpoint runs and can be reached from here.`;
};

const nobody = {
  id: 0,
  name: "doctor",
  description: "",
  workspaceName: "doctor",
  settings: defaultSettings,
};

export const checkModels = Effect.gen(function* () {
  const { llms, moderation } = yield* Settings;
  const models = yield* Effect.forEach(llms, checkModel, { concurrency: "unbounded" });
  const answers =
    models.length > 0 ? models : [ok("model", "None is set: answers are quoted from documents.")];
  const { endpoint } = moderation;
  if (endpoint === null) return answers;
  const judged = yield* Moderator.use((moderator) => moderator.check(nobody, "ping")).pipe(
    Effect.provide(layerModerationEndpoint(endpoint)),
    Effect.as(ok("moderation", `${endpoint.model} at ${endpoint.provider} answers.`)),
    Effect.catchTag("AnswerUnavailable", ({ reason }) =>
      Effect.succeed(
        failed(
          "moderation",
          `${endpoint.model} at ${endpoint.provider}: ${reason}.`,
          hintFor(reason, endpoint.names),
        ),
      ),
    ),
  );
  return [...answers, judged];
});
