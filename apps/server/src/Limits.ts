/**
 * The bounds of asking, as the settings say.
 */
import { AskLimits } from "@parley/core";
import { Effect, Layer } from "effect";
import { Settings } from "./Settings.ts";

export const layerLimits = Layer.effect(
  AskLimits,
  Effect.map(Settings, ({ asks: { atOnce, deadline, patience, waiting } }) => ({
    ...AskLimits.defaultValue(),
    asks: atOnce,
    deadline,
    queueLimit: waiting,
    queueTimeout: patience,
  })),
);
