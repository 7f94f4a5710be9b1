/**
 * Both interfaces as a function from a web `Request` to a `Response`, to mount in any framework that
 * speaks those.
 */
import { makeDrainingRuntime, type Access, type Asking, type Chats } from "@parley/core";
import { Context, Effect, Layer } from "effect";
import { HttpEffect, HttpServerResponse } from "effect/http";
import { makeApp, requestIdOf, type AppOptions } from "./App.ts";
import { generalFailure } from "./ErrorResponses.ts";
import { layerRedaction } from "./Redaction.ts";

export interface WebHandler {
  /** Fulfilled when `layer` is built; rejects with what it failed with, and then so does every request. */
  readonly ready: Promise<void>;
  /**
   * Answers every request, also those outside the base paths, and after `dispose`; rejects only if `layer` failed.
   */
  readonly handler: (request: Request) => Promise<Response>;
  /**
   * Releases what `layer` acquired, after the requests under way; ends its building if that is not over. None of these
   * requests must wait for it: neither would end.
   */
  readonly dispose: () => Promise<void>;
}

/** Builds the core's services by `layer` and serves them. */
export const makeWebHandler = <E>(
  layer: Layer.Layer<Access | Asking | Chats, E>,
  options?: AppOptions,
): WebHandler => {
  const { dispose, run } = makeDrainingRuntime(
    Layer.provide(
      Layer.effect(
        Handler,
        Effect.flatMap(Effect.context<Access | Asking | Chats>(), (context) =>
          Effect.map(makeApp(options), HttpEffect.toWebHandlerWith(context)),
        ),
      ),
      Layer.merge(layer, layerRedaction),
    ),
  );
  const ready = run(
    async () => {},
    () => Promise.reject(new Error("the handler was disposed of")),
  );
  // Who does not wait for it learns it from the first request.
  ready.catch(() => undefined);
  return {
    ready,
    handler: (request) =>
      run(
        (context) => Context.get(context, Handler)(request),
        async () =>
          HttpServerResponse.toWeb(
            HttpServerResponse.setHeader(
              generalFailure("STORAGE_UNAVAILABLE"),
              "x-request-id",
              requestIdOf(request.headers.get("x-request-id")),
            ),
            { withoutBody: request.method === "HEAD" },
          ),
      ),
    dispose,
  };
};

const Handler = Context.Service<(request: Request) => Promise<Response>>("@parley/http/WebHandler");
