/**
 * Both interfaces as a function from a web `Request` to a `Response`.
 */
import type { Access, Asking, Chats } from "@parley/core";
import { makeDrainingRuntime, optionsOf } from "@parley/core/ports";
import { Context, Effect, Layer, Option } from "effect";
import { HttpEffect, HttpServerRequest, HttpServerResponse } from "effect/http";
import { toJsonResponse } from "../contract/Wire.ts";
import { appOptions, layerNoRequestSpans, makeApp, toRequestId, type AppOptions } from "./App.ts";
import { toGeneralBody } from "./ErrorResponses.ts";

/** A handler to mount in a framework whose handlers take a web `Request`. */
export interface WebHandler {
  /** Resolves once `layer` is built. If building fails, this promise and every `handler` call reject with the error. */
  readonly ready: Promise<void>;
  /**
   * Responds to every request, even outside the base paths or after `dispose`; rejects only if `layer` failed. Given a
   * URL, it takes the arguments of `fetch` and, like `fetch`, also rejects if they are invalid or their signal aborts.
   * Given a `Request`, it ignores the second argument, because frameworks pass one of their own.
   */
  readonly handler: (request: Request | URL | string, init?: unknown) => Promise<Response>;
  /**
   * Waits for the requests in progress, then releases the services. A request that waits for this promise never ends.
   */
  readonly dispose: () => Promise<void>;
}

/** Options for {@link makeWebHandler}. */
export interface WebHandlerOptions extends Omit<AppOptions, "context"> {
  /**
   * Returns the `context` of an ask, which the answerer and the moderator receive as it is, such as the user of a session
   * in a cookie. It gets the web request that the handler received, whose body has been read. It is called once for each
   * valid ask, and a promise is not awaited. If it throws, the response is 500 `INTERNAL_ERROR`. A request from
   * `toNodeHandler` has the context of that handler's own option, if it has one.
   */
  readonly context?: ((request: Request) => unknown) | undefined;
}

/**
 * Starts building the core's services with `layer`, and returns a handler that serves the interfaces with them. Throws
 * `ArgumentInvalid` if an option is unknown.
 */
export const makeWebHandler = <E>(
  layer: Layer.Layer<Access | Asking | Chats, E>,
  options?: WebHandlerOptions,
): WebHandler => {
  const { context: contextOf, ...more } = optionsOf("makeWebHandler", options, appOptions);
  const context: AppOptions["context"] = ({ source }) =>
    (contexts.get(source) ?? contextOf)?.(source as Request);
  const { dispose, run } = makeDrainingRuntime(
    Layer.effect(
      Handler,
      Effect.gen(function* () {
        const services = yield* Effect.context<Access | Asking | Chats>();
        return withClientAddress(yield* makeApp({ ...more, context })).pipe(
          HttpEffect.toWebHandlerWith(services),
        );
      }),
    ).pipe(Layer.provide([layer, layerNoRequestSpans])),
  );
  const nothing = async () => {};
  const ready = run(nothing, nothing);
  // Prevents an unhandled rejection: an embedder that does not await `ready` sees the failure on its first request.
  ready.catch(() => undefined);
  return {
    ready,
    handler: async (input, init) => {
      const isFetch = typeof input === "string" || input instanceof URL;
      const request = isFetch ? new Request(input, init as RequestInit) : input;
      const response = await run(
        (context) => Context.get(context, Handler)(request),
        async () => toRefusal(request),
      );
      if (isFetch) request.signal.throwIfAborted();
      return response;
    },
    dispose,
  };
};

/** Functions that return the contexts of web requests from `toNodeHandler`. */
export const contexts = new WeakMap<object, () => unknown>();

/** The client's address for each web request, because `Request` has no field for it. */
export const clientAddresses = new WeakMap<object, string>();

const withClientAddress = Effect.updateService(HttpServerRequest.HttpServerRequest, (request) =>
  request.modify({ remoteAddress: Option.fromNullishOr(clientAddresses.get(request.source)) }),
);

const Handler = Context.Service<(request: Request) => Promise<Response>>("@parley/http/WebHandler");

/** Creates the response to a request that arrives after `dispose`. */
const toRefusal = ({ headers, method }: Request): Response =>
  HttpServerResponse.toWeb(
    HttpServerResponse.setHeader(
      toJsonResponse(toGeneralBody("STORAGE_UNAVAILABLE"), { "retry-after": "2" }),
      "x-request-id",
      toRequestId(headers.get("x-request-id")),
    ),
    { withoutBody: method === "HEAD" },
  );
