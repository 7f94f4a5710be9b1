/**
 * Telemetry for requests: metrics that follow OpenTelemetry's conventions for HTTP servers, a metric of failures, spans
 * if a tracer is installed, a log line about the requests refused in the last minute and, if enabled, a log line for
 * each request. None of these contains a path as received, a query or a body.
 */
import {
  endSpan,
  isTraced,
  overloadReasons,
  secondsHistogram,
  storageReasons,
} from "@parley/core/ports";
import { Effect, Exit, Metric, Option, Scope, Tracer } from "effect";
import { HttpTraceContext, type HttpServerRequest, type HttpServerResponse } from "effect/http";
import { generalCodes, type GeneralMessage } from "../contract/Codes.ts";

type Response = HttpServerResponse.HttpServerResponse;

/** Facts about a request, which annotate its log lines and, except for `client` and `key`, its span. */
export interface RequestFacts {
  readonly requestId: string;
  readonly method: string;
  /**
   * The path template of the endpoint, such as `/api/chats/:chat_id/history`, or the first segment of the page's path,
   * such as `/docs`; absent if no endpoint or page matches the request.
   */
  readonly route?: string;
  /** The address of the client. */
  readonly client?: string;
  /** The id of the API key. */
  key?: string;
  chatbot?: number;
  chat?: number;
}

const boundaries = [
  0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60, 120,
];
const active = Metric.gauge("http.server.active_requests", {
  description: "Requests in progress",
});

/** The maximum number of log lines about refused requests in a minute that name a client or a key. */
const maxLines = 50;

/** The causes of these failures, which have a counter each. */
const failureCauses: Readonly<Record<string, ReadonlyArray<string>>> = {
  SERVICE_OVERLOADED: Object.keys(overloadReasons),
  STORAGE_UNAVAILABLE: storageReasons,
};

const isRefusal = (reason: GeneralMessage): boolean =>
  reason === "SERVICE_OVERLOADED" || [401, 403].includes(generalCodes[reason].status);

/** @param logRequests whether to log each request; `false` by default */
export const makeRequestTelemetry = Effect.fnUntraced(function* (logRequests = false) {
  const context = yield* Effect.context<never>();
  const hasTracer = yield* isTraced;
  /** Metrics, keyed by their attributes: looking up a metric is much cheaper than creating it again. */
  const durations = new Map<string, Metric.Histogram<number>>();
  const failures = new Map<string, Metric.Counter<number>>();

  /** Requests refused in the current minute, by the fields of their log line. */
  const refusals = new Map<string, { readonly fields: object; requests: number }>();
  const logRefusals = (): void => {
    const lines = Array.from(refusals.values(), ({ fields, requests }) =>
      Effect.logWarning("Requests were refused in the last minute").pipe(
        Effect.annotateLogs({ ...fields, requests }),
      ),
    );
    refusals.clear();
    Effect.runForkWith(context)(Effect.all(lines));
  };
  const noteRefusal = (
    reason: GeneralMessage,
    cause: object,
    { client, key }: Partial<RequestFacts> = {},
  ): void => {
    if (refusals.size === 0) {
      const timer = setTimeout(logRefusals, 60_000);
      // The timer must not keep the process alive. In a browser, the timer is a number and has no `unref`.
      timer.unref?.();
    }
    const isUnknown = generalCodes[reason].status === 401;
    const caller = { ...(key && { key }), ...(isUnknown && client && { client }) };
    const fields = { reason, ...cause, ...caller };
    const line =
      refusals.has(JSON.stringify(fields)) || refusals.size < maxLines
        ? fields
        : { reason, ...cause };
    const refusal = refusals.get(JSON.stringify(line)) ?? { fields: line, requests: 0 };
    refusal.requests++;
    refusals.set(JSON.stringify(line), refusal);
  };

  const describeDuration = ({ method, route }: RequestFacts, status: number) =>
    secondsHistogram(
      "http.server.request.duration",
      "Time from when the server starts to handle a request until the response is ready or, if streamed, has been sent",
      boundaries,
      {
        "http.request.method": method,
        "http.response.status_code": String(status),
        ...(route !== undefined && { "http.route": route }),
      },
    );

  const failureOf = (reason: string, cause = ""): Metric.Counter<number> => {
    const name = `${reason} ${cause}`;
    const failure =
      failures.get(name) ??
      Metric.counter("parley.failures", {
        description: "Failed requests, by the message in the response and, for some, by cause",
        attributes: { reason, ...(cause !== "" && { cause }) },
        incremental: true,
      });
    failures.set(name, failure);
    return failure;
  };
  // Counters exist from the start, because a rate would miss the step from no value to the first value.
  for (const reason of [...Object.keys(generalCodes), "VALIDATION"])
    for (const cause of failureCauses[reason] ?? [""])
      failureOf(reason, cause).updateUnsafe(0, context);

  const end = (startedAt: number, facts: RequestFacts, status: number) => {
    const millis = performance.now() - startedAt;
    const name = `${status} ${facts.method} ${facts.route}`;
    const duration = durations.get(name) ?? describeDuration(facts, status);
    durations.set(name, duration);
    duration.updateUnsafe(millis / 1000, context);
    active.modifyUnsafe(-1, context);
    return logRequests
      ? Effect.annotateLogs(Effect.logInfo("Request"), { ...facts, status, ms: Math.round(millis) })
      : Effect.void;
  };

  /** Counts a failure under the message that the client gets, or under `VALIDATION` for a 422, and under its cause. */
  const countFailure = (
    reason: GeneralMessage | "VALIDATION",
    facts?: Partial<RequestFacts>,
    cause?: string,
  ): void => {
    failureOf(reason, reason in failureCauses ? cause : "").updateUnsafe(1, context);
    if (reason !== "VALIDATION" && isRefusal(reason))
      noteRefusal(reason, cause === undefined ? {} : { cause }, facts);
  };

  /** Records a request that was refused before it reached the application. */
  const recordRefusal = (facts: RequestFacts, reason: GeneralMessage, status: number): void => {
    countFailure(reason);
    active.modifyUnsafe(1, context);
    Effect.runForkWith(context)(end(performance.now(), facts, status));
  };

  /** Records a request from now until its response is ready or, if the response is a stream, has been sent. */
  const observe = <E, R>(
    response: Effect.Effect<Response, E, R>,
    request: HttpServerRequest.HttpServerRequest,
    facts: RequestFacts,
  ): Effect.Effect<Response, E, R | Scope.Scope> => {
    const startedAt = performance.now();
    active.modifyUnsafe(1, context);
    // The status that servers commonly log if the client disconnects before the response.
    let status = 499;
    const measuredResponse = Effect.onExit(
      response,
      (exit): Effect.Effect<void, never, Scope.Scope> => {
        if (Exit.isFailure(exit)) return end(startedAt, facts, status);
        status = exit.value.status;
        // The scope of a request closes when the last piece of its response has been sent.
        return exit.value.body._tag === "Stream"
          ? Effect.addFinalizer(() => end(startedAt, facts, status))
          : end(startedAt, facts, status);
      },
    );
    return hasTracer
      ? inRequestSpan(measuredResponse, request, facts, () => status)
      : measuredResponse;
  };

  return { countFailure, observe, recordRefusal };
});

/** Records requests; see {@link makeRequestTelemetry}. */
export type RequestTelemetry = Effect.Success<ReturnType<typeof makeRequestTelemetry>>;

/** Runs the request in a span that lasts until the request's scope closes. */
const inRequestSpan = Effect.fnUntraced(function* <E, R>(
  response: Effect.Effect<Response, E, R>,
  { headers }: HttpServerRequest.HttpServerRequest,
  facts: RequestFacts,
  status: () => number,
) {
  const { method, requestId, route } = facts;
  // If the embedding application has a span of its own, the parent is that span and not the one in the headers.
  const outer = yield* Effect.serviceOption(Tracer.ParentSpan);
  const parent = Option.orElse(outer, () => HttpTraceContext.fromHeaders(headers));
  const span = yield* Effect.makeSpan(route === undefined ? method : `${method} ${route}`, {
    kind: "server",
    ...(Option.isSome(parent) && { parent: parent.value }),
    attributes: {
      requestId,
      "http.request.method": method,
      ...(route !== undefined && { "http.route": route }),
    },
  });
  yield* Effect.addFinalizer((exit) => {
    const { chat, chatbot } = facts;
    span.attribute("http.response.status_code", status());
    if (chatbot !== undefined) span.attribute("chatbot", chatbot);
    if (chat !== undefined) span.attribute("chat", chat);
    return endSpan(span, status() >= 500 ? Exit.fail({ _tag: `HTTP ${status()}` }) : exit);
  });
  return yield* Effect.withParentSpan(response, span);
});

const methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];

/** Returns a request's method as an attribute value: `_OTHER` for any non-standard method. */
export const toMethod = (method: string | undefined): string =>
  methods.includes(method!) ? method! : "_OTHER";
