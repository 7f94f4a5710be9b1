/**
 * `@parley/http/docs`: the API description at `/openapi.json` and a page that shows it at `/docs`. The page loads nothing
 * from other hosts.
 */
import { Effect } from "effect";
import { HttpRouter, HttpServerResponse } from "effect/http";
import { HttpApiScalar, OpenApi } from "effect/http-api";
import { makeApi } from "../contract/Api.ts";
import type { Pages } from "../serve/App.ts";
import { toPath } from "../serve/Routes.ts";

/** Off: the page's tools that would send the description or the server's address to other hosts. */
const scalar = {
  withDefaultFonts: false,
  hideTestRequestButton: false,
  hideClientButton: true,
  showDeveloperTools: "never",
};

type Response = HttpServerResponse.HttpServerResponse;

/** The documentation of the interfaces that the listener serves. */
export const makeDocumentation: Pages = Effect.fnUntraced(function* ({ basePaths, serves }) {
  const api = makeApi(basePaths, serves);
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

  return ({ method, url }) => {
    if (method !== "GET") return undefined;
    const path = toPath(url);
    if (path === "/openapi.json") return Effect.succeed(description);
    return path === "/docs" ? (page as Effect.Effect<Response>) : undefined;
  };
});
