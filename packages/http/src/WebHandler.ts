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
  /** Fulfilled when `layer` is built; rejects with what it failed with, and then so does every request. */
  readonly ready: Promise<void>;
  /** Answers every request, also those outside the base paths; rejects only if `layer` failed. */
  readonly handler: (request: Request) => Promise<Response>;
  /** Releases what `layer` acquired, after the requests under way. */
  readonly dispose: () => Promise<void>;
}

/** Builds the core's services by `layer` and serves them. */
export const makeWebHandler = <E>(
  layer: Layer.Layer<Access | Asking | Chats, E>,
  options?: AppOptions,
): WebHandler => {
  const { dispose, handler } = HttpEffect.toWebHandlerLayerWith(
    Layer.merge(layer, layerRedaction),
    { toHandler: (context) => Effect.provideContext(makeApp(options), context) },
  );
  const ready = handler(new Request("http://localhost")).then(() => undefined);
  // Who does not wait for it learns it from the first request.
  ready.catch(() => undefined);
  return { ready, handler, dispose };
};
