/**
 * Each chatbot's moderator: none or an endpoint, as set for the chatbot or else for the server.
 */
import { AnswerUnavailable, Moderator } from "@parley/core/ports";
import { layerModerationEndpoint } from "@parley/llm";
import { Context, Effect, Layer } from "effect";
import { Settings } from "../Settings.ts";

/** Fails each check, so that no question passes unmoderated for lack of an endpoint. */
const layerMissing = Layer.succeed(Moderator, {
  check: () =>
    new AnswerUnavailable({
      reason: "the chatbot uses endpoint moderation, but no moderation endpoint is set",
    }),
});

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
