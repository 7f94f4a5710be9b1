/**
 * Who judges questions: nobody, a list of words, or an endpoint.
 */
import { Moderator } from "@parley/core";
import { layerModerationEndpoint, layerWordList } from "@parley/llm";
import { Effect, Layer } from "effect";
import { Settings } from "./Settings.ts";

export const layerModerator: Layer.Layer<Moderator, never, Settings> = Layer.unwrap(
  Effect.map(Settings, ({ moderation }) => {
    switch (moderation._tag) {
      case "Off":
        return Moderator.layerOff;
      case "Words":
        return layerWordList();
      case "Endpoint":
        return layerModerationEndpoint(moderation);
    }
  }),
);
