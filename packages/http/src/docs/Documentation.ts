/**
 * The API description at `/openapi.json` and a page that shows it at `/docs`. The page loads nothing from other hosts.
 */
import { Effect } from "effect";
import { HttpRouter, HttpServerResponse } from "effect/http";
import { HttpApiScalar, OpenApi } from "effect/http-api";
import { makeApi, type BasePaths } from "../contract/Api.ts";

/** Off: the page's tools that would send the description or the server's address to other hosts. */
const scalar = {
  withDefaultFonts: false,
  hideTestRequestButton: false,
  hideClientButton: true,
  showDeveloperTools: "never",
};

type Response = HttpServerResponse.HttpServerResponse;

/** A function from a request's method and path to the response; `undefined` where the path is no document's. */
export const makeDocumentation = Effect.fnUntraced(function* (
  paths: BasePaths,
  serves: ReadonlyArray<keyof BasePaths>,
) {
  const api = makeApi(paths, serves);
  const description = HttpServerResponse.text(JSON.stringify(OpenApi.fromApi(api)), {
    contentType: "application/json; charset=utf-8",
  });
  const page = yield* Effect.cached(
    HttpRouter.toHttpEffect(HttpApiScalar.layer(api, { path: "/docs", scalar })).pipe(
      Effect.flatten,
      Effect.scoped,
      Effect.orDie,
    ),
  );

  return (method: string, path: string): Effect.Effect<Response> | undefined => {
    if (method !== "GET") return undefined;
    if (path === "/openapi.json") return Effect.succeed(description);
    return path === "/docs" ? (page as Effect.Effect<Response>) : undefined;
  };
});
