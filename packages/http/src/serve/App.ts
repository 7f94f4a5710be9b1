/**
 * Both interfaces as one HTTP application. It makes the checks in the order of the contract, and every response has one
 * of the contract's shapes.
 */
import { Access, logFailure } from "@parley/core";
import { Cause, Effect, Layer, type Scope } from "effect";
import { HttpServerRequest, HttpServerResponse, UrlParams } from "effect/http";
import { defaultBasePaths, type BasePaths } from "../contract/Api.ts";
import { toJsonResponse } from "../contract/Wire.ts";
import { makeCors } from "./Cors.ts";
import {
  toEndpointNotFound,
  toErrorResponse,
  toGeneralResponse,
  type RequestError,
} from "./ErrorResponses.ts";
import { makeHandlers, type Handler } from "./Handlers.ts";
import { isBelow, makeRouter, toPath } from "./Routes.ts";

/** Options of {@link makeApp}. */
export interface AppOptions {
  /** `/api` and `/ask` by default. */
  readonly basePaths?: BasePaths;
  /** The interfaces that this listener serves; both by default. */
  readonly serves?: ReadonlyArray<keyof BasePaths>;
  /** Origins whose pages may call the interfaces; none by default. */
  readonly corsOrigins?: ReadonlyArray<string>;
  /** The effect of a hang-up on an ask without an `On-Disconnect` header; `finish` by default. */
  readonly onDisconnect?: "finish" | "cancel";
  /** Pages outside the base paths, such as those of `@parley/http/docs` and `@parley/http/playground`; none by default. */
  readonly pages?: ReadonlyArray<Pages>;
}

/** Makes the pages of a listener: a function from a request to the response, `undefined` where the path is not theirs. */
export type Pages = (
  listener: Readonly<Required<Pick<AppOptions, "basePaths" | "serves" | "corsOrigins">>>,
) => Effect.Effect<(request: Request) => Effect.Effect<Response> | undefined>;

type Request = HttpServerRequest.HttpServerRequest;
type Response = HttpServerResponse.HttpServerResponse;

/** The id of a request: its `x-request-id` header if that is well-formed, else a new id. */
export const toRequestId = (header: unknown): string =>
  typeof header === "string" && /^[A-Za-z0-9._-]{1,128}$/.test(header)
    ? header
    : `${processId}-${(++requests).toString(36)}`;

// A number is far cheaper than randomness for each request.
const processId = crypto.randomUUID().slice(0, 13);
let requests = 0;

/**
 * The application, over the core's services in the context. It never fails: a defect becomes a response whose
 * `x-request-id` names the line in the log.
 */
export const makeApp = Effect.fnUntraced(function* ({
  basePaths = defaultBasePaths,
  corsOrigins = [],
  onDisconnect = "finish",
  pages = [],
  serves = ["general", "answers"],
}: AppOptions = {}) {
  const access = yield* Access;
  const pagesOf = yield* Effect.forEach(pages, (make) => make({ basePaths, serves, corsOrigins }));
  const route = makeRouter(basePaths);
  const bases = serves.map((name) => basePaths[name]);
  const cors = corsOrigins.length === 0 ? null : makeCors(corsOrigins);

  const reportFailure = (cause: Cause.Cause<RequestError>, id: string) =>
    Effect.as(Effect.annotateLogs(logFailure(cause), "requestId", id), toErrorResponse(cause));
  const handlers: Readonly<Record<string, Handler>> = yield* makeHandlers(
    onDisconnect,
    reportFailure,
  );

  const respond = (
    request: Request,
    id: string,
  ): Effect.Effect<Response, RequestError, Scope.Scope> => {
    const { headers, method } = request;
    const path = toPath(request.url);
    if (!bases.some((base) => isBelow(base, path))) {
      for (const page of pagesOf) {
        const response = page(request);
        if (response !== undefined) return response;
      }
      return Effect.succeed(toEndpointNotFound(method, path));
    }
    const key = headers["x-api-key"];
    if (key === undefined) return Effect.succeed(toGeneralResponse("API_KEY_NOT_PRESENT"));
    return Effect.flatMap(access.authenticate(key), (principal) => {
      const found = route(method, path);
      if (found === undefined) return Effect.succeed(toEndpointNotFound(method, path));
      const { handle, scope } = handlers[found.endpoint]!;
      return principal.scopes.includes(scope)
        ? handle({ request, id, principal, parameter: found.parameter })
        : Effect.succeed(toGeneralResponse("SCOPE_NOT_GRANTED"));
    });
  };

  // Interruptible in every server: a client that hangs up must be able to end its request.
  return Effect.interruptible(
    Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) => {
      const id = toRequestId(request.headers["x-request-id"]);
      const response = Effect.catchCause(
        Effect.suspend(() => respond(request, id)),
        (cause) =>
          Cause.hasInterruptsOnly(cause)
            ? Effect.failCause(cause as Cause.Cause<never>)
            : Effect.map(reportFailure(cause, id), ({ body, headers }) =>
                toJsonResponse(body, headers),
              ),
      );
      return Effect.map(
        cors === null ? response : cors(request, response),
        HttpServerResponse.setHeader("x-request-id", id),
      );
    }),
  );
});

/**
 * Keeps the values of query parameters, which users wrote, out of the spans and errors of requests. A server around
 * {@link makeApp} needs it where a tracer is installed; `makeWebHandler` provides it.
 */
export const layerRedaction: Layer.Layer<never> = Layer.succeed(UrlParams.CurrentRedactedNames, [
  /^/,
]);
