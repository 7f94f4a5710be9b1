/**
 * `@parley/pages/docs`: the API description at `/openapi.json`, and a page at `/docs` that shows it and sends sample
 * requests. The page loads nothing from other hosts.
 */
import { toPath, type Pages } from "@parley/http";
import { Effect } from "effect";
import { refuseUnknown } from "../Options.ts";
import { toHtml, toPolicy, type Place } from "../Shell.ts";
import { filesOf, isRead, loadFiles, makeStaticFile } from "../StaticFile.ts";
import { describeApi } from "./Description.ts";

/** Options of {@link makeDocumentation}. */
export interface DocumentationOptions {
  /** The pages that the listener serves; only the documentation by default. */
  readonly places?: ReadonlyArray<Place>;
}

/** Makes the documentation of the interfaces that the listener serves. */
export const makeDocumentation = (options: DocumentationOptions = {}): Pages => {
  refuseUnknown("makeDocumentation", options, ["places"]);
  const { places = ["docs"] } = options;
  return Effect.fnUntraced(function* ({ basePaths, questionLength, serves }) {
    const api = describeApi(basePaths, serves, questionLength);
    const page = toHtml({
      title: "API · Parley",
      place: "docs",
      places,
      folder: "/docs",
      script: "reference.js",
      main: '<noscript>This page needs JavaScript. <a href="/openapi.json">The OpenAPI description</a> does not.</noscript>\n<div id="page"></div>',
    });
    const load = yield* Effect.cached(
      Effect.all([makeStaticFile(page, "text/html; charset=utf-8"), loadFiles(filePaths)]),
    );
    return ({ headers, method, url }) => {
      const path = toPath(url);
      if (!isRead(method)) return undefined;
      if (path === "/openapi.json") {
        const text = JSON.stringify({ ...api, servers: [{ url: originOf(headers) }] });
        const file = makeStaticFile(text, "application/json; charset=utf-8");
        return Effect.map(file, (respond) => respond(headers));
      }
      if (path !== "/docs" && !filePaths.includes(path)) return undefined;
      return Effect.map(load, ([html, files]) => (files.get(path) ?? html)(headers, toPolicy()));
    };
  });
};

const filePaths = filesOf("/docs", "reference.js");

/** Returns the server's origin as the client addressed it. A proxy's header says whether the scheme is `https`. */
const originOf = (headers: Readonly<Record<string, string | undefined>>): string => {
  const { host = "", "x-forwarded-proto": scheme } = headers;
  if (!/^[\w.:[\]-]+$/.test(host)) return "/";
  return `${scheme === "https" ? "https" : "http"}://${host}`;
};
