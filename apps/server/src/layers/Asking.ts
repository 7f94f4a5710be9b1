/**
 * Asking and chats, with the limits, the answerer and the moderator of the settings.
 */
import { Asking, AskLimits, Chats } from "@parley/core";
import { Effect, Layer, type Stream } from "effect";
import { Settings } from "../Settings.ts";
import { layerAnswerer } from "./Answerer.ts";
import { layerDigest } from "./Digest.ts";
import { layerDocuments } from "./Documents.ts";
import { layerModerator } from "./Moderator.ts";

const layerLimits = Layer.effect(
  AskLimits,
  Effect.map(Settings, ({ asks }) => ({ ...AskLimits.defaultValue(), ...asks })),
);

/** @param reload each element has the documents read again */
export const layerAsking = (reload: Stream.Stream<void>) =>
  Layer.merge(Asking.layer, Chats.layer).pipe(
    Layer.provide([layerAnswerer, layerModerator, layerDigest]),
    Layer.provideMerge(layerDocuments(reload)),
    Layer.provide(layerLimits),
  );
