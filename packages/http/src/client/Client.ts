/**
 * A typed client of both interfaces.
 */
import { Effect, Redacted } from "effect";
import { HttpClientRequest } from "effect/http";
import { HttpApiClient, HttpApiMiddleware } from "effect/http-api";
import { ApiKey, defaultBasePaths, makeApi, type BasePaths } from "../contract/Api.ts";

/** Options of {@link makeClient}. */
export interface ClientOptions {
  /** Scheme, host and port of the server. */
  readonly origin: string | URL;
  readonly apiKey: Redacted.Redacted;
  /** Those of the server; `/api` and `/ask` by default. */
  readonly basePaths?: BasePaths;
}

/**
 * A client that derives from the declaration: `client.general.createChat({ payload })`, `client.answers.ask({ payload })`
 * and so on. A call fails with the body of the error response (section 7).
 */
export const makeClient = ({ apiKey, basePaths = defaultBasePaths, origin }: ClientOptions) =>
  HttpApiClient.make(makeApi(basePaths), { baseUrl: origin }).pipe(
    Effect.provide(
      HttpApiMiddleware.layerClient(ApiKey, ({ next, request }) =>
        next(HttpClientRequest.setHeader(request, "x-api-key", Redacted.value(apiKey))),
      ),
    ),
  );
