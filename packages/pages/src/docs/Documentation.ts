/**
 * `@parley/pages/docs`: the API description at `/openapi.json` and a page that shows it at `/docs`. The page loads
 * nothing from other hosts.
 */
import { toPath, type Pages } from "@parley/http";
import { Effect } from "effect";
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http";
import { HttpApi, HttpApiScalar, OpenApi } from "effect/http-api";
import { makeStaticFile } from "../StaticFile.ts";
import { describeApi, withShortSamples } from "./Description.ts";

/** Off: the page's tools that would send the description or the server's address to other hosts. */
const scalar = {
  withDefaultFonts: false,
  hideTestRequestButton: false,
  hideClientButton: true,
  showDeveloperTools: "never",
};

const kept = { "cache-control": "no-cache" };

/** The documentation of the interfaces that the listener serves. */
export const makeDocumentation: Pages = Effect.fnUntraced(function* ({ basePaths, serves }) {
  const api = describeApi(basePaths, serves);
  const described = HttpApi.make("parley").annotate(OpenApi.Transform, () => withShortSamples(api));
  const page = yield* Effect.cached(
    HttpRouter.toHttpEffect(HttpApiScalar.layer(described, { path: "/docs", scalar })).pipe(
      Effect.flatten,
      Effect.flatMap((page) => Effect.promise(() => HttpServerResponse.toWeb(page).text())),
      Effect.flatMap((html) => makeStaticFile(html, "text/html; charset=utf-8", kept)),
      Effect.scoped,
      Effect.orDie,
    ),
  );

  return (request) => {
    const { headers, method, url } = request;
    if (method !== "GET") return undefined;
    switch (toPath(url)) {
      case "/openapi.json": {
        const text = JSON.stringify({ ...api, servers: [{ url: originOf(headers) }] });
        const file = makeStaticFile(text, "application/json; charset=utf-8", kept);
        return Effect.map(file, (respond) => respond(headers));
      }
      case "/docs":
        return Effect.map(
          Effect.provideService(page, HttpServerRequest.HttpServerRequest, request),
          (respond) => respond(headers),
        );
    }
    return undefined;
  };
});

/** The server's address as the client wrote it; a proxy says whether that is `https`. */
const originOf = (headers: Readonly<Record<string, string | undefined>>): string => {
  const { host = "", "x-forwarded-proto": scheme } = headers;
  if (!/^[\w.:[\]-]+$/.test(host)) return "/";
  return `${scheme === "https" ? "https" : "http"}://${host}`;
};
