/**
 * `@parley/pages/playground`: a page at `/` for trying out a chatbot. The page loads nothing from other hosts.
 */
import { toPath, type Pages } from "@parley/http";
import { Effect } from "effect";
import { HttpServerResponse } from "effect/http";
import { refuseUnknown } from "../Options.ts";
import { escape, toHtml, toPolicy, toSource, type Place } from "../Shell.ts";
import { filesOf, isRead, loadFiles, makeStaticFile, respondJson } from "../StaticFile.ts";
import { noWelcome, type Welcome } from "../widget/WidgetConfig.ts";
import type { PlaygroundConfig } from "./PlaygroundConfig.ts";

/** Options of {@link makePlayground}. */
export interface PlaygroundOptions {
  /** The port of the answers interface, on the page's own host, if it differs from the page's port. */
  readonly answersPort?: number | null;
  /** What answers the questions, as shown below the question field; nothing is shown by default. */
  readonly answerer?: PlaygroundConfig["answerer"];
  /** By English phrase, texts to show instead of the page's own. */
  readonly texts?: Readonly<Record<string, string>>;
  /** The language of `texts`; by default, the reader's. */
  readonly lang?: string;
  /** The pages that the listener serves; by default, only the playground. */
  readonly places?: ReadonlyArray<Place>;
  /** Returns what the page shows to the holder of an API key before the first question; nothing by default. */
  readonly welcome?: (apiKey: string) => Effect.Effect<Welcome>;
}

const optionNames = ["answerer", "answersPort", "lang", "places", "texts", "welcome"];

/**
 * Serves the playground at `/` and its files under `/playground/`, on a listener that serves the general interface. The
 * first request loads the files.
 */
export const makePlayground = (options: PlaygroundOptions = {}): Pages => {
  refuseUnknown("makePlayground", options, optionNames);
  const {
    answerer = null,
    answersPort = null,
    lang,
    places = ["playground"],
    texts = {},
    welcome = () => Effect.succeed(noWelcome),
  } = options;
  return ({ basePaths, corsOrigins, questionLength, serves }) => {
    if (!serves.includes("general")) return Effect.succeed(() => undefined);
    const config: PlaygroundConfig = {
      ...basePaths,
      answersPort,
      corsOrigins: answersPort === null ? [] : corsOrigins,
      answerer,
      questionLength,
      guide: places.includes("guide"),
      texts,
      lang,
    };
    const page = toHtml({
      title: "Parley playground",
      place: "playground",
      places,
      folder: "/playground",
      script: "page.js",
      attributes: ` data-config="${escape(JSON.stringify(config))}"`,
      main: '<noscript>The playground needs JavaScript.</noscript>\n<div id="page"></div>',
    });
    const load = Effect.all([
      makeStaticFile(page, "text/html; charset=utf-8"),
      loadFiles(filePaths),
    ]);
    return Effect.map(Effect.cached(load), (cachedFiles) => ({ headers, method, url }) => {
      const path = toPath(url);
      if (!isRead(method)) return undefined;
      if (path === "/playground/questions") {
        return Effect.map(welcome(headers["x-api-key"] ?? ""), respondJson);
      }
      if (path === "/robots.txt")
        return Effect.succeed(HttpServerResponse.text("User-agent: *\nDisallow: /\n"));
      if (path === "/favicon.ico")
        return Effect.map(cachedFiles, ([, files]) => files.get("/playground/icon.svg")!(headers));
      if (path !== "/" && !filePaths.includes(path)) return undefined;
      const policy = toPolicy({ requests: toSource(headers["host"], answersPort) });
      return Effect.map(cachedFiles, ([html, files]) => (files.get(path) ?? html)(headers, policy));
    });
  };
};

const filePaths = filesOf("/playground", "page.js");
