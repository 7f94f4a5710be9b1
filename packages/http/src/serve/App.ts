/**
 * Both interfaces, and optionally pages, as one HTTP application. It checks requests in the order that the contract
 * prescribes, and every response from an interface has one of the contract's shapes.
 */
import { Access, Asking, AskLimits, ChatId, type Principal } from "@parley/core";
import {
  CurrentKey,
  LogAsks,
  logFailure,
  optionsOf,
  type OverloadReason,
  type Client,
} from "@parley/core/ports";
import { Cause, Effect, Exit, Layer, Option, type Scope } from "effect";
import { HttpMiddleware, HttpServerRequest, HttpServerResponse } from "effect/http";
import {
  defaultBasePaths,
  endpoints,
  type BasePaths,
  type Endpoint,
  type EndpointName,
} from "../contract/Endpoints.ts";
import { toJsonResponse } from "../contract/Wire.ts";
import { makeCors } from "./Cors.ts";
import {
  RequestRefused,
  toEndpointNotFound,
  toErrorResponse,
  toGeneralBody,
  type ReportFailure,
  type RequestError,
} from "./ErrorResponses.ts";
import { makeHandlers } from "./Handlers.ts";
import { makeReadTurns } from "./ReadTurns.ts";
import { makeRequestTelemetry, toMethod, type RequestFacts } from "./RequestTelemetry.ts";
import { makeVisitorTokens } from "./VisitorTokens.ts";
import { makeWidget, type WidgetPages } from "./WidgetRoutes.ts";

/** Options for {@link makeApp}. */
export interface AppOptions {
  /** The base paths of the interfaces; `/api` and `/ask` by default. */
  readonly basePaths?: BasePaths;
  /** The interfaces that this listener serves; both by default. */
  readonly serves?: ReadonlyArray<keyof BasePaths>;
  /** Returns the client's address for the log and the limit on new visitors; by default, the connection's address. */
  readonly clientAddress?: (request: HttpServerRequest.HttpServerRequest) => string | undefined;
  /** Returns the `context` of a valid ask, which the answerer and the moderator receive as it is. */
  readonly context?: (request: HttpServerRequest.HttpServerRequest) => unknown;
  /** Origins whose pages may call the interfaces; none by default. */
  readonly corsOrigins?: ReadonlyArray<string>;
  /** What happens to an ask without an `On-Disconnect` header if the client disconnects; `finish` by default. */
  readonly onDisconnect?: "finish" | "cancel";
  /** Whether to log each request, without any text from users; `false` by default. */
  readonly logRequests?: boolean;
  /**
   * Pages outside the base paths, such as those from `@parley/pages/docs` and `@parley/pages/playground`; none by
   * default.
   */
  readonly pages?: ReadonlyArray<Pages>;
  /** The queue of a server that lets its keys take turns; if absent, only `AskLimits` limits what a key may do. */
  readonly turns?: RequestTurns;
  /** The widget's pages and files; without them, the listener only issues tokens to anonymous visitors. */
  readonly widget?: WidgetPages;
}

/** The options of {@link makeApp}, none of which is required. */
export const appOptions = {
  basePaths: false,
  clientAddress: false,
  context: false,
  corsOrigins: false,
  logRequests: false,
  onDisconnect: false,
  pages: false,
  serves: false,
  turns: false,
  widget: false,
} as const;

/** The queue in which requests wait before they reach the application. */
export interface RequestTurns {
  /**
   * Whether too many requests of the key were waiting when this one arrived, so that it must be refused. `source` is that
   * of the `HttpServerRequest`, whose body has been discarded.
   */
  readonly isExcess: (source: object) => boolean;
  /** Must be called with each valid credential, so that its next requests take the turns of its client. */
  readonly noteClient: (credential: string, client: Client) => void;
  /** Calls `then` when the whole response has been sent, or its connection is closed. */
  readonly whenSent: (source: object, then: () => void) => void;
}

/** A response of more bytes counts as sent only when the client has read it. Smaller ones fit into the system's buffers. */
const largeResponse = 64 * 1024;

/** Creates a function that returns the response of a listener's page, or `undefined` if no page matches the request. */
export type Pages = (
  listener: Readonly<Required<Pick<AppOptions, "basePaths" | "serves" | "corsOrigins">>> & {
    readonly questionLength: number;
  },
) => Effect.Effect<(request: Request) => Effect.Effect<Response> | undefined>;

type Request = HttpServerRequest.HttpServerRequest;
type Response = HttpServerResponse.HttpServerResponse;
type Handling = Effect.Effect<Response, RequestError, Scope.Scope>;

const overloadedResponse = toJsonResponse(toGeneralBody("SERVICE_OVERLOADED"), {
  "retry-after": "1",
});

/** Returns the id of a request: its `x-request-id` header if that is well-formed, or else a new id. */
export const toRequestId = (header: unknown): string =>
  typeof header === "string" && /^[A-Za-z0-9._-]{1,128}$/.test(header)
    ? header
    : `${(processId ??= crypto.randomUUID().slice(0, 13))}-${(++count).toString(36)}`;

// A counter is much cheaper than a random id for each request. A Worker forbids random values during import.
let processId: string | undefined;
let count = 0;

/** Returns the path in a request target, as received. */
export const toPath = (target: string): string => target.split("?", 1)[0]!;

/**
 * Creates a function that finds the endpoint for a method and a path, along with the path's template and the ids in the
 * path. An id is 0, which no chat or entry has, if the path contains no valid one. HEAD and OPTIONS have no endpoints.
 */
const makeRouter = (paths: BasePaths) => {
  const names = Object.keys(endpoints) as Array<EndpointName>;
  const routes = names.map((endpoint) => {
    const { interface: name, method, path, scope, dto }: Endpoint = endpoints[endpoint];
    const base = paths[name].replace(/[^\w/-]/g, "\\$&");
    // The path of an ask may end with a slash.
    const below = path === "" ? "/?" : path.replace(/:\w+/g, "([^/]+)");
    const pattern = new RegExp(`^${base}${below}$`);
    return { dto, endpoint, method, pattern, scope, template: paths[name] + path };
  });
  return (method: string, path: string) => {
    for (const route of routes) {
      const match = route.method === method ? route.pattern.exec(path) : null;
      if (match !== null)
        return { ...route, chatId: ChatId.make(toId(match[1])), entryId: toId(match[2]) };
    }
    return undefined;
  };
};

const toId = (text = ""): number =>
  /^[0-9]+$/.test(text) && Number.isSafeInteger(Number(text)) ? Number(text) : 0;

type Route = NonNullable<ReturnType<ReturnType<typeof makeRouter>>>;

/** A request, with the route or the page that answers it. */
interface Exchange {
  readonly request: Request;
  /** Whether the path belongs to an interface that this listener serves; if not, it may belong to a page. */
  readonly isInterface: boolean;
  /** `undefined` if no endpoint matches the method and path. */
  readonly route: Route | undefined;
  /** The response of the page at the path; `undefined` if there is no page. */
  readonly page: Effect.Effect<Response, RequestError> | undefined;
  readonly facts: RequestFacts;
}

/**
 * Creates the application from the core's services in the context. The application never fails: a defect becomes a
 * response whose `x-request-id` identifies the log line.
 */
export const makeApp = Effect.fnUntraced(function* (options?: AppOptions) {
  const {
    basePaths = defaultBasePaths,
    clientAddress = ({ remoteAddress }: Request) => Option.getOrUndefined(remoteAddress),
    context: contextOf = () => undefined,
    corsOrigins = [],
    logRequests,
    onDisconnect = "finish",
    pages = [],
    serves = ["general", "answers"],
    turns,
    widget,
  } = optionsOf("makeApp", options, appOptions);
  const access = yield* Access;
  const asking = yield* Asking;
  const { questionLength } = yield* AskLimits;
  const listener = { basePaths, serves, corsOrigins, questionLength };
  const pagesOf = yield* Effect.forEach(pages, (make) => make(listener));
  const findRoute = makeRouter(basePaths);
  const bases = serves.map((name) => basePaths[name]);
  const { countFailure, observe } = yield* makeRequestTelemetry(logRequests);
  const handlers = yield* makeHandlers(onDisconnect, contextOf);
  const awaitReadTurn = makeReadTurns();
  const refuse = (facts: RequestFacts, reason: OverloadReason) =>
    Effect.sync(() => {
      countFailure("SERVICE_OVERLOADED", facts, reason);
      return overloadedResponse;
    });
  const tokens = makeVisitorTokens();

  const respondNotFound = ({ method, url }: Request) => {
    countFailure("INVALID_PATH");
    return Effect.succeed(toEndpointNotFound(method, toPath(url)));
  };
  const widgetOf = serves.includes("general")
    ? yield* makeWidget(tokens, clientAddress, widget, respondNotFound)
    : () => undefined;

  const toExchange = (request: Request): Exchange => {
    const path = toPath(request.url);
    const isInterface = bases.some((base) => path === base || path.startsWith(`${base}/`));
    const route = isInterface ? findRoute(request.method, path) : undefined;
    let page: Exchange["page"];
    if (!isInterface) {
      for (const pageOf of pagesOf) page ??= pageOf(request);
      page ??= widgetOf(request, path);
    }
    const template = page ? `/${path.split("/", 2)[1]}` : route?.template;
    const client = clientAddress(request);
    const facts: RequestFacts = {
      requestId: toRequestId(request.headers["x-request-id"]),
      method: toMethod(request.method),
      ...(client !== undefined && { client }),
      ...(template !== undefined && { route: template }),
    };
    return { request, isInterface, route, page, facts };
  };

  const reportFailureOf =
    ({ facts, route }: Exchange): ReportFailure =>
    (cause) => {
      const response = toErrorResponse(cause, route?.dto);
      const error = Option.getOrNull(Cause.findErrorOption(cause));
      if (error?._tag === "RateExceeded" || error?._tag === "KeyRejected")
        Object.assign(facts, error.apiKeyId && { key: error.apiKeyId });
      countFailure(response.reason, facts, response.cause);
      // Logged once a minute, because logging each refusal would cost more than the refusal itself.
      if (error?._tag === "Overloaded") return Effect.succeed(response);
      // The handlers have checked the values, so this is a defect, not a mistake by the client. The reason is not
      // logged, because a service that replaces the core's may quote a value in it.
      const causeToLog =
        error?._tag === "ArgumentInvalid"
          ? Cause.die(new Error(`The core rejected the field ${error.field}`))
          : cause;
      return Effect.as(Effect.annotateLogs(logFailure(causeToLog), { ...facts }), response);
    };

  /** Refuses an ask if its key has too much in progress. The ask's log lines carry the facts about its request. */
  const admitAsk = (handling: Handling, principal: Principal, { facts }: Exchange) => {
    const overload = asking.overloadOf(principal);
    return overload === null
      ? handling.pipe(
          Effect.annotateLogs({ ...facts }),
          Effect.provideService(LogAsks, logRequests === true),
        )
      : refuse(facts, overload.reason);
  };

  /** Reads in turn. A turn ends when the response has been sent, so that a key's responses do not fill the memory. */
  const readInTurn = <E>(
    rows: number,
    read: Effect.Effect<Response, E>,
    principal: Principal,
    { facts, request: { source } }: Exchange,
  ): Effect.Effect<Response, E> => {
    if (turns === undefined) return read;
    const readForKey = Effect.provideService(read, CurrentKey, principal.apiKeyId);
    return Effect.uninterruptibleMask((restore) =>
      Effect.flatMap(restore(awaitReadTurn(principal, rows)), (endTurn) =>
        endTurn === null
          ? refuse(facts, "slow_list")
          : Effect.onExit(restore(readForKey), (exit) => {
              const body = Exit.isSuccess(exit) ? exit.value.body : null;
              const length = body !== null && "contentLength" in body ? body.contentLength : 0;
              const isLarge = (length ?? 0) > largeResponse;
              return Effect.sync(() => (isLarge ? turns.whenSent(source, endTurn) : endTurn()));
            }),
      ),
    );
  };

  /**
   * Checks the key, the route, the scope and, for an ask, whether the server is full, in this order. The handlers check
   * the rest.
   */
  const respondInterface = (
    exchange: Exchange,
    reportFailure: ReportFailure,
  ): Effect.Effect<Response, RequestError, Scope.Scope> => {
    const { facts, request, route } = exchange;
    const apiKey = request.headers["x-api-key"];
    if (apiKey === undefined)
      return Effect.fail(new RequestRefused({ reason: "API_KEY_NOT_PRESENT" }));
    return Effect.flatMap(access.authenticate(apiKey, { tokens }), (principal) => {
      turns?.noteClient(apiKey, principal);
      facts.chatbot = principal.chatbot.id;
      facts.key = principal.apiKeyId;
      if (route === undefined) return respondNotFound(request);
      const { chatId, endpoint, entryId, scope } = route;
      if (!principal.scopes.includes(scope)) {
        return Effect.fail(new RequestRefused({ reason: "SCOPE_NOT_GRANTED" }));
      }
      if (turns?.isExcess(request.source) === true) return refuse(facts, "event_loop");
      const ids = { chatId, entryId };
      const handling = handlers[endpoint]({
        request,
        facts,
        principal,
        ...ids,
        reportFailure,
        inTurn: (rows, read) => readInTurn(rows, read, principal, exchange),
      });
      return endpoint === "ask" ? admitAsk(handling, principal, exchange) : handling;
    });
  };

  const respond = (exchange: Exchange): Effect.Effect<Response, never, Scope.Scope> => {
    const { isInterface, page, request } = exchange;
    const reportFailure = reportFailureOf(exchange);
    const response = Effect.suspend(() =>
      isInterface ? respondInterface(exchange, reportFailure) : (page ?? respondNotFound(request)),
    );
    return Effect.catchCause(response, (cause) =>
      Cause.hasInterruptsOnly(cause)
        ? Effect.failCause(cause as Cause.Cause<never>)
        : Effect.map(reportFailure(cause), ({ body, headers }) => toJsonResponse(body, headers)),
    );
  };

  const withCors = corsOrigins.length === 0 ? null : makeCors(corsOrigins);
  const handle = (request: Request) => {
    const exchange = toExchange(request);
    const response = respond(exchange);
    return observe(
      Effect.map(
        withCors === null ? response : withCors(request, response),
        HttpServerResponse.setHeader("x-request-id", exchange.facts.requestId),
      ),
      request,
      exchange.facts,
    );
  };
  // Interruptible whichever server runs it, because a request must end when its client disconnects.
  return Effect.interruptible(Effect.flatMap(HttpServerRequest.HttpServerRequest, handle));
});

/**
 * Turns off the span that Effect's servers create for each request. That span contains the path and the headers as
 * received, and {@link makeApp} creates a span of its own. `makeWebHandler` provides this layer. If a tracer is
 * installed, any other server that runs `makeApp` must provide it.
 */
export const layerNoRequestSpans: Layer.Layer<never> = Layer.succeed(
  HttpMiddleware.TracerDisabledWhen,
  () => true,
);
