/**
 * `@parley/pages/widget`: a button for pages of other sites, and the window that it opens. Neither loads anything from
 * a host other than the server's.
 */
import { toPath, type AppOptions, type WidgetPages } from "@parley/http";
import { Effect } from "effect";
import { HttpServerResponse } from "effect/http";
import { escape, toPolicy, toSource } from "../Shell.ts";
import { isRead, loadFiles, protectiveHeaders, respondJson } from "../StaticFile.ts";
import type { WidgetConfig } from "./WidgetConfig.ts";

/** Options of {@link makeWidgetPages}. */
export interface WidgetOptions extends Pick<AppOptions, "basePaths"> {
  /** The port of the answers interface, on the server's own host, if it differs from the window's port. */
  readonly answersPort?: number | null;
  /** Whether the window says that a language model answers; `false` by default. */
  readonly model?: boolean;
  /** Suggests questions to the holder of a token; none by default. */
  readonly questions?: (token: string) => Effect.Effect<ReadonlyArray<string>>;
}

/** The widget's pages and files: `widget` of `AppOptions`. The first request loads the files. */
export const makeWidgetPages = ({
  answersPort = null,
  basePaths = { general: "/api", answers: "/ask" },
  model = false,
  questions = () => Effect.succeed([]),
}: WidgetOptions = {}): WidgetPages => {
  const paths = ["/widget.js", "/widget/window.js", "/widget/widget.css"];
  const cachedFiles = Effect.runSync(Effect.cached(loadFiles(paths)));
  return {
    file: ({ headers, method, url }) => {
      const path = toPath(url);
      if (!isRead(method)) return undefined;
      if (path === "/widget/questions")
        return Effect.map(questions(headers["x-api-key"] ?? ""), respondJson);
      if (!paths.includes(path)) return undefined;
      return Effect.map(cachedFiles, (files) =>
        HttpServerResponse.setHeaders(files.get(path)!(headers), {
          ...crossOrigin,
          // For pages that load the script as a module.
          "access-control-allow-origin": "*",
        }),
      );
    },
    document: ({ headers }, widget) => {
      // As browsers spell them in messages and policies.
      const origins = (widget.origins ?? [])
        .filter((origin) => URL.canParse(origin))
        .map((origin) => new URL(origin).origin);
      const { name } = widget.chatbot;
      const config: WidgetConfig = { ...basePaths, name, answersPort, origins, model };
      const policy = toPolicy("'none'", toSource(headers["host"], answersPort), origins.join(" "));
      return Effect.succeed(
        HttpServerResponse.text(toHtml(config), {
          contentType: "text/html; charset=utf-8",
          headers: {
            ...protectiveHeaders,
            ...crossOrigin,
            "cross-origin-embedder-policy": "require-corp",
            "content-security-policy": policy,
          },
        }),
      );
    },
  };
};

/** Browsers let a page that is cross-origin isolated load only what has this header. */
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
