/**
 * `@parley/http/client`: a client for programs with Effect.
 */
import { Context, Data, Effect, Layer, Redacted, Schedule, type Schema, Stream } from "effect";
import { Sse } from "effect/encoding";
import { FetchHttpClient, HttpClient, HttpClientError, HttpClientRequest } from "effect/http";
import type { HttpClientResponse } from "effect/http";
import {
  HttpApi,
  HttpApiClient,
  HttpApiEndpoint,
  HttpApiGroup,
  HttpApiSchema,
} from "effect/http-api";
import { generalCodes, type GeneralMessage } from "../contract/Codes.ts";
import {
  defaultBasePaths,
  type BasePaths,
  type EndpointName,
  type endpoints,
  endpointsWith,
} from "../contract/Endpoints.ts";
import type { EntryWire, ValidationException } from "../contract/Wire.ts";

type FieldsIn<E, Place extends string> = E extends {
  readonly parameters: { readonly [P in Place]: infer Fields extends Schema.Struct.Fields };
}
  ? Schema.Struct<Fields>
  : never;

type Declaration = {
  readonly [Name in EndpointName]: HttpApiEndpoint.HttpApiEndpoint<
    Name,
    (typeof endpoints)[Name]["method"],
    (typeof endpoints)[Name]["path"],
    FieldsIn<(typeof endpoints)[Name], "path">,
    FieldsIn<(typeof endpoints)[Name], "query">,
    (typeof endpoints)[Name] extends { readonly body: { readonly Encoded: infer Body } }
      ? Schema.Codec<Body>
      : never,
    FieldsIn<(typeof endpoints)[Name], "header">,
    (typeof endpoints)[Name]["success"]
  >;
}[EndpointName];

/**
 * Declares the interfaces for Effect's HttpApi, at these paths of a server whose questions may have this many characters:
 * for clients, not for serving.
 */
export const parleyApi = (paths = defaultBasePaths, questionLength = 200) => {
  const declarations = Object.entries(endpointsWith(questionLength)).map(([name, endpoint]) => {
    const { body, interface: base, method, parameters = {}, path, success } = endpoint;
    const { header: headers, path: params, query } = parameters;
    const status = HttpApiSchema.status(method === "POST" ? 201 : 200);
    const options = { headers, params, query, payload: body, success: success.pipe(status) };
    return HttpApiEndpoint.make(method)(name, `${paths[base]}${path}`, options as {});
  });
  const group = HttpApiGroup.make("chatbot", { topLevel: true });
  return (
    HttpApi.make("parley")
      .add(group.add(...(declarations as unknown as readonly [Declaration])))
      // The server checks the values, and its errors name all that are wrong.
      .annotate(HttpApi.ParseOptions, { disableChecks: true })
  );
};

type Reason =
  | { [Message in GeneralMessage]: { readonly _tag: Message } }[GeneralMessage]
  | { readonly _tag: "VALIDATION_FAILED"; readonly errors: typeof ValidationException.Type.errors }
  | { readonly _tag: "UNKNOWN" };

/**
 * An error response. Its reason is found by its code, because one status has several shapes:
 * `Effect.catchReason("ParleyError", "CHAT_DOES_NOT_EXISTS", …)`. `UNKNOWN` is a later version's code, or a proxy's.
 */
export class ParleyError extends Data.TaggedError("ParleyError")<{
  readonly reason: Reason;
  readonly status: number;
  /** Identifies the request in the server's log. */
  readonly requestId: string | undefined;
  /** How long the server asks the client to wait; 0 if it does not say. */
  readonly retryAfterSeconds: number;
}> {
  override readonly message = `${this.status} ${this.reason._tag}`;
}

/** A piece of an answer. After `Restart`, the answer begins again. */
export type AnswerEvent = Data.TaggedEnum<{
  Delta: { readonly text: string };
  Restart: {};
  Entry: { readonly entry: typeof EntryWire.Type };
}>;

export interface ParleyClientOptions {
  readonly apiKey: Redacted.Redacted;
  /** The scheme, host and port of the server. */
  readonly origin: string | URL;
  readonly basePaths?: BasePaths;
  /** How many times a call that fails is retried if that may help; 4 by default. */
  readonly retries?: number;
}

/** A request of HttpApiClient, of which parts without a required field may be absent. */
type Loose<R> = Partial<R> & { readonly [K in keyof R as {} extends R[K] ? never : K]: R[K] };
type Api = HttpApiClient.ForApi<ReturnType<typeof parleyApi>>;
type RequestOf<Name extends EndpointName> = Loose<
  Omit<Exclude<Parameters<Api[Name]>[0], void>, "responseMode" | "sseOptions">
>;
type Failure = HttpClientError.HttpClientError | ParleyError | Schema.SchemaError;
type Calls = {
  readonly [Name in EndpointName]: (
    ...request: {} extends RequestOf<Name> ? [RequestOf<Name>?] : [RequestOf<Name>]
  ) => Effect.Effect<(typeof endpoints)[Name]["success"]["Type"], Failure>;
};

const make = Effect.fnUntraced(function* (options: ParleyClientOptions) {
  const { apiKey, basePaths, origin: baseUrl, retries = 4 } = options;
  const retry = retrySchedule(retries);
  const once = (yield* HttpClient.HttpClient).pipe(
    HttpClient.transformResponse(Effect.flatMap(refuseFailure)),
    HttpClient.mapRequest(HttpClientRequest.setHeader("x-api-key", Redacted.value(apiKey))),
  );
  const clientOf = (httpClient: typeof once) =>
    HttpApiClient.makeWith(parleyApi(basePaths), { baseUrl, httpClient });
  const calls = yield* clientOf(HttpClient.retry(once, retry));
  const accept = HttpClientRequest.accept("text/event-stream");
  const streams = yield* clientOf(HttpClient.mapRequest(once, accept));

  /** Asks, and emits the answer as it arrives. A stream that breaks off resumes where it was. */
  const stream = ({ headers, payload, query = {} }: RequestOf<"ask">) =>
    Stream.suspend(() => {
      let resume = { "Idempotency-Key": crypto.randomUUID() as string, ...headers };
      let hasEnded = false;
      const toEvents = ({ data, event, id }: Sse.Event) =>
        Effect.suspend(() => {
          const body = JSON.parse(data || "{}");
          if (event === "error") return Effect.fail(toError(body.status, body));
          // Comments have no id.
          if (id === undefined) return Effect.succeed([]);
          const { "Last-Event-ID": last = id } = resume;
          resume = { ...resume, "Last-Event-ID": id };
          hasEnded = event === "entry";
          return Effect.succeed<ReadonlyArray<AnswerEvent>>([
            ...(last.split(".")[0] === id.split(".")[0] ? [] : [{ _tag: "Restart" } as const]),
            hasEnded ? { _tag: "Entry", entry: body.data } : { _tag: "Delta", text: body.text },
          ]);
        });
      const response = Effect.suspend(() =>
        streams.ask({ payload, query, headers: resume, responseMode: "response-only" }),
      );
      return Stream.unwrap(Effect.map(response, ({ stream }) => stream)).pipe(
        Stream.decodeText,
        Stream.pipeThroughChannel(Sse.decode()),
        Stream.catchTags({ Retry: Stream.die, SseError: Stream.die }),
        Stream.mapEffect(toEvents),
        Stream.flattenIterable,
        Stream.concat(
          Stream.suspend(() => (hasEnded ? Stream.empty : Stream.fail(toError(502, null)))),
        ),
        Stream.retry(retry),
      );
    });
  /** With a key, nothing is stored twice if a call is retried. */
  const keyed = Object.entries<Function>(calls as {}).map(([name, call]) => [
    name,
    ({ headers, ...request }: { readonly headers?: object } = {}) =>
      Effect.suspend(() => {
        const keys = { "Idempotency-Key": crypto.randomUUID(), ...headers };
        return call({ payload: {}, query: {}, ...request, headers: keys });
      }),
  ]);
  return { ...(Object.fromEntries(keyed) as Calls), stream };
});

/** A client for one chatbot: a method for each endpoint, and `stream`. `HttpClient` traces the requests. */
export class ParleyClient extends Context.Service<
  ParleyClient,
  Effect.Success<ReturnType<typeof make>>
>()("@parley/http/ParleyClient") {
  static readonly layer = (options: ParleyClientOptions) => Layer.effect(this, make(options));

  /** A client of a handler in this process, such as that of `makeWebHandler`, for tests. */
  static readonly layerHandler = (
    handler: (request: Request) => Promise<Response>,
    options: Omit<ParleyClientOptions, "origin">,
  ) =>
    this.layer({ ...options, origin: "http://localhost" }).pipe(
      Layer.provide(FetchHttpClient.layer),
      Layer.provide(
        Layer.succeed(FetchHttpClient.Fetch, (input, init) => handler(new Request(input, init))),
      ),
    );
}

const toError = (status: number, body: any, headers: Readonly<Record<string, string>> = {}) => {
  const declaredCode = Object.entries(generalCodes).find(([, { code }]) => code === body?.code);
  const { errors } = body ?? {};
  const reason = errors
    ? { _tag: "VALIDATION_FAILED", errors }
    : { _tag: declaredCode?.[0] ?? "UNKNOWN" };
  return new ParleyError({
    reason: reason as Reason,
    status,
    requestId: headers["x-request-id"],
    retryAfterSeconds: Number(headers["retry-after"]) || 0,
  });
};

const refuseFailure = (response: HttpClientResponse.HttpClientResponse) =>
  response.status < 400
    ? Effect.succeed(response)
    : Effect.flatMap(
        Effect.orElseSucceed(response.json, () => null),
        (body) => Effect.fail(toError(response.status, body, response.headers)),
      );

/** Whether a retry may help. A body that cannot be decoded has broken off. */
const isPassing = (error: unknown): boolean => {
  if (HttpClientError.isHttpClientError(error))
    return /^(Transport|Decode)Error$/.test(error.reason._tag);
  if (!(error instanceof ParleyError)) return false;
  const isFinal = error.reason._tag.startsWith("ANSWER_") || error.retryAfterSeconds > 60;
  return !isFinal && (error.status >= 500 || error.retryAfterSeconds > 0);
};

const retrySchedule = (times: number) =>
  Schedule.exponential("500 millis").pipe(
    Schedule.setInputType<unknown>(),
    Schedule.jittered,
    Schedule.upTo({ times }),
    Schedule.while(({ input }) => isPassing(input)),
    Schedule.addDelay(({ input }) =>
      Effect.succeed(input instanceof ParleyError ? 1000 * input.retryAfterSeconds : 0),
    ),
  );
