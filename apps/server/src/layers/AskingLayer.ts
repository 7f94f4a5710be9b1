/**
 * The services `Asking` and `Chats`, with the limits, answerer and moderator that the settings select.
 */
import { Asking, AskLimits, type Chatbot, Chats } from "@parley/core";
import { Answerer, AnswerUnavailable, Moderator } from "@parley/core/ports";
import {
  layerLanguageModel,
  layerModerationEndpoint,
  layerOffline,
  openAiCompatible,
} from "@parley/llm";
import { Context, Duration, Effect, Layer } from "effect";
import { type ModelSettings, Settings } from "../Settings.ts";
import { Documents } from "./Documents.ts";

/** Answers with the configured language models or, if there are none, with quotations from the documents. */
export const layerAnswerer = Layer.unwrap(
  Effect.gen(function* () {
    const { contextTokens, llms } = yield* Settings;
    const { byName } = yield* Documents;
    const knowledge = ({ settings }: Chatbot) => byName(settings.knowledge);
    const [first, ...fallbacks] = llms;
    if (first === undefined) return layerOffline(knowledge);
    const connect = ({ options, provider }: ModelSettings, model = options.model) =>
      openAiCompatible({ ...options, provider, model });
    const others = yield* Effect.forEach(fallbacks, (settings) => connect(settings));
    const models = [yield* connect(first), ...others] as const;
    return layerLanguageModel(models, {
      contextTokens,
      modelNamed: (model) => Effect.orDie(connect(first, model)),
      knowledge,
    });
  }),
);

/** Fails each check, so that no question passes unmoderated for lack of an endpoint. */
const layerMissing = Layer.succeed(Moderator, {
  check: () =>
    new AnswerUnavailable({
      reason: "the chatbot uses endpoint moderation, but no moderation endpoint is set",
    }),
});

/** Each chatbot's moderator: none or an endpoint, as set for the chatbot or else for the server. */
export const layerModerator = Layer.effect(
  Moderator,
  Effect.gen(function* () {
    const { endpoint, failOpen, fallback } = (yield* Settings).moderation;
    const build = <E>(layer: Layer.Layer<Moderator, E>) =>
      Effect.map(Layer.build(layer), (context) => Context.get(context, Moderator));
    const moderators = {
      off: yield* build(Moderator.layerOff),
      endpoint: yield* build(
        endpoint === null
          ? layerMissing
          : layerModerationEndpoint({ ...endpoint.options, failOpen }),
      ),
    };
    return Moderator.of({
      check: (chatbot, question) =>
        moderators[chatbot.settings.moderation ?? fallback].check(chatbot, question),
    });
  }),
);

/** Limits an ask's wait for its turn to twice the answer deadline. */
const layerLimits = Layer.effect(
  AskLimits,
  Effect.map(Settings, ({ asks }) => ({
    ...AskLimits.defaultValue(),
    ...asks,
    queueTimeout: Duration.times(asks.deadline, 2),
  })),
);

/** `Asking` for posts alone, for which nothing is answered or moderated, so that no documents are read. */
export const layerPosting = Asking.layer.pipe(
  Layer.provide([Answerer.layerFunction(() => ""), Moderator.layerOff, layerLimits]),
);

export const layerAsking = Layer.merge(Asking.layer, Chats.layer).pipe(
  Layer.provide([layerAnswerer, layerModerator]),
  // The HTTP application reads the limits, too.
  Layer.provideMerge(layerLimits),
);
