/**
 * `@parley/pages/widget`: a button for other sites' pages, and the chat window that the button opens. Neither the
 * button nor the window loads anything from a host other than the server's.
 */
import { toPath, type AppOptions, type WidgetPages } from "@parley/http";
import { Effect } from "effect";
import { HttpServerResponse } from "effect/http";
import { refuseUnknown } from "../Options.ts";
import { escape, toPolicy, toSource } from "../Shell.ts";
import { isRead, loadFiles, protectiveHeaders, respondJson } from "../StaticFile.ts";
import { noWelcome, type Welcome, type WidgetConfig } from "./WidgetConfig.ts";

export { noWelcome, type Welcome };

/** Options of {@link makeWidgetPages}. */
export interface WidgetOptions extends Pick<AppOptions, "basePaths"> {
  /** The port of the answers interface, on the server's own host, if it differs from the window's port. */
  readonly answersPort?: number | null;
  /** Whether the window says that a language model answers; `false` by default. */
  readonly model?: boolean;
  /** Returns what the window shows to the holder of a token before the first question; nothing by default. */
  readonly welcome?: (token: string) => Effect.Effect<Welcome>;
}

/** Makes the widget's pages and files, for the `widget` option of `AppOptions`. The first request loads the files. */
export const makeWidgetPages = (options: WidgetOptions = {}): WidgetPages => {
  refuseUnknown("makeWidgetPages", options, ["answersPort", "basePaths", "model", "welcome"]);
  const {
    answersPort = null,
    basePaths = { general: "/api", answers: "/ask" },
    model = false,
    welcome = () => Effect.succeed(noWelcome),
  } = options;
  const files = ["window.js", "highlight.js", "widget.css"].map((name) => `/widget/${name}`);
  const paths = ["/widget.js", ...files];
  const cachedFiles = Effect.runSync(Effect.cached(loadFiles(paths)));
  return {
    file: ({ headers, method, url }) => {
      const path = toPath(url);
      if (!isRead(method)) return undefined;
      if (path === "/widget/questions")
        return Effect.map(welcome(headers["x-api-key"] ?? ""), respondJson);
      if (!paths.includes(path)) return undefined;
      return Effect.map(cachedFiles, (files) =>
        HttpServerResponse.setHeaders(files.get(path)!(headers), {
          ...crossOrigin,
          // Needed by pages that load the script as a module.
          "access-control-allow-origin": "*",
        }),
      );
    },
    document: ({ headers, url }, widget, questionLength) => {
      // Normalizes the origins to the form that browsers use in messages and policies.
      const origins = (widget.origins ?? [])
        .filter((origin) => URL.canParse(origin))
        .map((origin) => new URL(origin).origin);
      const { name } = widget.chatbot;
      const config: WidgetConfig = {
        ...basePaths,
        name,
        answersPort,
        origins,
        questionLength,
        model,
      };
      const policy = toPolicy({
        requests: toSource(headers["host"], answersPort),
        images: origins,
        ancestors: origins,
      });
      return Effect.succeed(
        HttpServerResponse.text(toHtml(config), {
          contentType: "text/html; charset=utf-8",
          headers: {
            ...protectiveHeaders,
            ...crossOrigin,
            // A site's logo need not have the header that `require-corp` demands; Safari knows only `require-corp`.
            "cross-origin-embedder-policy": url.endsWith("?logo")
              ? "credentialless"
              : "require-corp",
            "content-security-policy": policy,
          },
        }),
      );
    },
  };
};

/** A cross-origin isolated page can load only resources that have this header. */
const crossOrigin = { "cross-origin-resource-policy": "cross-origin" };

const toHtml = (config: WidgetConfig): string => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Chat</title>
<link rel="stylesheet" href="widget.css">
<script type="module" src="window.js"></script>
</head>
<body data-config="${escape(JSON.stringify(config))}"></body>
</html>
`;
