/**
 * Both interfaces as one HTTP application: the checks in the order that the contract gives them, and
 * an answer in one of its shapes whatever happens.
 */
import { Access, Asking, Chats, logFailure } from "@parley/core";
import { Cause, Effect, type Scope } from "effect";
import { HttpServerRequest, HttpServerResponse } from "effect/http";
import { defaultBasePaths, type BasePaths } from "../contract/Api.ts";
import type { GeneralMessage } from "../contract/Codes.ts";
import { failureOf, type CoreError, type Failure } from "./CoreFailures.ts";
import { corsOf } from "./Cors.ts";
import { makeDocs } from "../docs/Documentation.ts";
import { endpointNotFound, generalFailure, json } from "./ErrorResponses.ts";
import { makeHandlers, type Handler } from "./Handlers.ts";
import { isBelow, makeRoutes, pathOf } from "./Routes.ts";
import type { Problems } from "./ValidationErrors.ts";

export interface AppOptions {
  readonly basePaths?: BasePaths;
  /** Which interfaces this listener serves; both by default. */
  readonly serves?: ReadonlyArray<keyof BasePaths>;
  /** Origins whose pages may call the interfaces; none by default. */
  readonly corsOrigins?: ReadonlyArray<string>;
  /** What a hang-up does to an ask that does not say so itself; `finish` by default. */
  readonly onDisconnect?: "finish" | "cancel";
}

type Response = HttpServerResponse.HttpServerResponse;

/** The id by which a request is known: the client's own, or a new one. */
export const requestIdOf = (given: unknown): string =>
  typeof given === "string" && /^[A-Za-z0-9._-]{1,128}$/.test(given)
    ? given
    : `${processId}-${(++made).toString(36)}`;

/** Far cheaper than randomness for each. */
const processId = crypto.randomUUID().slice(0, 13);
let made = 0;

/** What follows `#` in the address of a web request is the client's own. */
const withoutFragment = (request: HttpServerRequest.HttpServerRequest) => {
  const end = request.url.indexOf("#");
  return end === -1 ? request : request.modify({ url: request.url.slice(0, end) });
};

/** The application; it never fails, and a defect becomes a response that names its log line. */
export const makeApp: (
  options?: AppOptions,
) => Effect.Effect<
  Effect.Effect<Response, never, HttpServerRequest.HttpServerRequest | Scope.Scope>,
  never,
  Access | Asking | Chats
> = Effect.fnUntraced(function* ({
  basePaths = defaultBasePaths,
  corsOrigins = [],
  onDisconnect = "finish",
  serves = ["general", "answers"],
}: AppOptions = {}) {
  const access = yield* Access;
  const docs = yield* makeDocs(basePaths, serves);
  const route = makeRoutes(basePaths);
  const bases = serves.map((name) => basePaths[name]);
  const cors = corsOf(corsOrigins);

  const refusal = (
    error: CoreError | Problems | GeneralMessage,
    id: string,
  ): Effect.Effect<Failure> =>
    Effect.as(
      typeof error === "object" && "_tag" in error && error._tag !== "KeyRejected"
        ? Effect.annotateLogs(logFailure(Cause.fail(error)), "requestId", id)
        : Effect.void,
      failureOf(error),
    );

  const defect = (cause: Cause.Cause<unknown>, id: string): Effect.Effect<Failure> =>
    Effect.as(Effect.annotateLogs(logFailure(cause), "requestId", id), failureOf("INTERNAL_ERROR"));

  const respond = ({ body, headers }: Failure): Response => json(body, headers);

  const handlers: Readonly<Record<string, Handler>> = yield* makeHandlers(
    onDisconnect,
    (cause, id) => {
      const error = Cause.findErrorOption(cause);
      return error._tag === "Some" ? refusal(error.value, id) : defect(cause, id);
    },
  );

  const answer = (
    request: HttpServerRequest.HttpServerRequest,
    id: string,
  ): Effect.Effect<Response, never, Scope.Scope> => {
    const { headers, method } = request;
    const path = pathOf(request.url);
    if (!bases.some((base) => isBelow(base, path))) {
      return docs(method, path) ?? Effect.succeed(endpointNotFound(method, path));
    }
    const key = headers["x-api-key"];
    if (key === undefined) return Effect.succeed(generalFailure("API_KEY_NOT_PRESENT"));
    return Effect.flatMap(access.authenticate(key), (principal) => {
      const found = route(method, path);
      if (found === undefined) return Effect.succeed(endpointNotFound(method, path));
      const { handle, scope } = handlers[found.endpoint]!;
      if (!principal.scopes.includes(scope)) {
        return Effect.succeed(generalFailure("SCOPE_NOT_GRANTED"));
      }
      return handle({ request, id, principal, parameter: found.parameter });
    }).pipe(Effect.catch((error) => Effect.map(refusal(error, id), respond)));
  };

  // Interruptible, whatever runs it: a client that hangs up must be able to end its request.
  return Effect.interruptible(
    Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) => {
      const id = requestIdOf(request.headers["x-request-id"]);
      return cors(
        request,
        Effect.catchCauseIf(
          answer(withoutFragment(request), id),
          (cause) => !Cause.hasInterruptsOnly(cause),
          (cause) => Effect.map(defect(cause, id), respond),
        ),
      ).pipe(Effect.map(HttpServerResponse.setHeader("x-request-id", id)));
    }),
  );
});
