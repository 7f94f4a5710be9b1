/**
 * The moderator of each chatbot: none, a word list or an endpoint, by its own settings or else the server's.
 */
import { AnswerUnavailable, Moderator, unflagged } from "@parley/core";
import { layerModerationEndpoint, layerWordList } from "@parley/llm";
import { Context, Effect, Layer } from "effect";
import { Settings } from "../Settings.ts";

/** Fails, so that a missing endpoint lets no question pass. */
const layerMissing = Layer.succeed(Moderator, {
  check: () =>
    Effect.fail(
      new AnswerUnavailable({
        reason: "a chatbot is set to be moderated by the endpoint, but no endpoint is set",
      }),
    ),
});

export const layerModerator = Layer.effect(
  Moderator,
  Effect.gen(function* () {
    const { endpoint, failOpen, fallback } = (yield* Settings).moderation;
    const scope = yield* Effect.scope;
    // Built at the first question: the word list takes memory.
    const lazily = (layer: Layer.Layer<Moderator>) =>
      Effect.cached(
        Effect.map(Layer.buildWithScope(layer, scope), (context) =>
          Context.get(context, Moderator),
        ),
      );
    const moderators = {
      words: yield* lazily(layerWordList),
      endpoint: yield* lazily(
        endpoint === null ? layerMissing : layerModerationEndpoint({ ...endpoint, failOpen }),
      ),
    };
    return Moderator.of({
      check: (chatbot, question) => {
        const kind = chatbot.settings.moderation ?? fallback;
        if (kind === "off") return Effect.succeed(unflagged);
        return Effect.flatMap(moderators[kind], ({ check }) => check(chatbot, question));
      },
    });
  }),
);
