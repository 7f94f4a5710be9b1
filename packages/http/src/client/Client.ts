/**
 * A typed client of both interfaces, derived from their declaration.
 */
import { Effect, Redacted } from "effect";
import { HttpClientRequest } from "effect/http";
import { HttpApiClient, HttpApiMiddleware } from "effect/http-api";
import { ApiKey, defaultBasePaths, makeApi, type BasePaths } from "../contract/Api.ts";

export interface ClientOptions {
  /** Scheme, host and port of the server. */
  readonly origin: string | URL;
  readonly apiKey: Redacted.Redacted;
  readonly basePaths?: BasePaths;
}

/** The client: `client.general.createChat({ payload })`, `client.answers.ask({ payload })` and so on. */
export const makeClient = ({ apiKey, basePaths = defaultBasePaths, origin }: ClientOptions) =>
  HttpApiClient.make(makeApi(basePaths), { baseUrl: origin }).pipe(
    Effect.provide(
      HttpApiMiddleware.layerClient(ApiKey, ({ next, request }) =>
        next(HttpClientRequest.setHeader(request, "x-api-key", Redacted.value(apiKey))),
      ),
    ),
  );
