/**
 * Both interfaces as a function from a web `Request` to a `Response`, to mount in any framework that
 * speaks those.
 */
import type { Access, Asking, Chats } from "@parley/core";
import { Effect, Layer } from "effect";
import { HttpEffect } from "effect/http";
import { makeApp, type AppOptions } from "./App.ts";
import { layerRedaction } from "./Redaction.ts";

export interface WebHandler {
  /** Answers every request, also those outside the base paths; rejects only if `layer` fails. */
  readonly handler: (request: Request) => Promise<Response>;
  /** Releases what `layer` acquired, after the requests under way. */
  readonly dispose: () => Promise<void>;
}

/** Builds the core's services by `layer` and serves them. */
export const makeWebHandler = <E>(
  layer: Layer.Layer<Access | Asking | Chats, E>,
  options?: AppOptions,
): WebHandler =>
  HttpEffect.toWebHandlerLayerWith(Layer.merge(layer, layerRedaction), {
    toHandler: (context) => Effect.provideContext(makeApp(options), context),
  });
