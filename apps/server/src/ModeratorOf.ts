/**
 * Who judges questions: nobody, a list of words, or an endpoint, as a chatbot's settings say or else the
 * server's.
 */
import { AnswerUnavailable, Moderator } from "@parley/core";
import { layerModerationEndpoint, layerWordList } from "@parley/llm";
import { Context, Effect, Layer } from "effect";
import { Settings } from "./Settings.ts";

/** An endpoint that is not set must not let anything pass. */
const noEndpoint = Layer.succeed(
  Moderator,
  Moderator.of({
    check: () =>
      Effect.fail(
        new AnswerUnavailable({
          reason: "a chatbot's questions are for the moderation endpoint, but none is set",
        }),
      ),
  }),
);

export const layerModerator = Layer.effect(
  Moderator,
  Effect.gen(function* () {
    const { endpoint, failOpen, usual } = (yield* Settings).moderation;
    const scope = yield* Effect.scope;
    /** Built when it is first needed: the words are loaded for nobody else. */
    const judge = (layer: Layer.Layer<Moderator>) =>
      Effect.cached(
        Effect.map(Layer.buildWithScope(layer, scope), (context) =>
          Context.get(context, Moderator),
        ),
      );
    const judges = {
      off: yield* judge(Moderator.layerOff),
      words: yield* judge(layerWordList),
      endpoint: yield* judge(
        endpoint === null ? noEndpoint : layerModerationEndpoint({ ...endpoint, failOpen }),
      ),
    };
    return Moderator.of({
      check: (chatbot, question) =>
        Effect.flatMap(judges[chatbot.settings.moderation ?? usual], (moderator) =>
          moderator.check(chatbot, question),
        ),
    });
  }),
);
