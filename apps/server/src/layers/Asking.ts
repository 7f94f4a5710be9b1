/**
 * Asking and chats, with the limits, the answerer and the moderator of the settings.
 */
import { Asking, AskLimits, Chats } from "@parley/core";
import { Effect, Layer } from "effect";
import { Settings } from "../Settings.ts";
import { layerAnswerer } from "./Answerer.ts";
import { layerDigest } from "./Digest.ts";
import { layerModerator } from "./Moderator.ts";

const layerLimits = Layer.effect(
  AskLimits,
  Effect.map(Settings, ({ asks }) => ({ ...AskLimits.defaultValue(), ...asks })),
);

export const layerAsking = Layer.merge(Asking.layer, Chats.layer).pipe(
  Layer.provide([layerAnswerer, layerModerator, layerDigest]),
  Layer.provide(layerLimits),
);
