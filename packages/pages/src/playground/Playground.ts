/**
 * A page at `/` on which a person meets a chatbot: `@parley/pages/playground`. It loads nothing from other hosts.
 */
import { toEndpointNotFound, toPath, type Pages } from "@parley/http";
import { Effect } from "effect";
import { makeStaticFile } from "../StaticFile.ts";
import type { PlaygroundConfig } from "./PlaygroundConfig.ts";

/** Options of {@link makePlayground}. */
export interface PlaygroundOptions {
  /** The port of the answers interface, on the page's own host, where it is not the page's. */
  readonly answersPort?: number | null;
}

const types: Readonly<Record<string, string>> = {
  css: "text/css; charset=utf-8",
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  svg: "image/svg+xml",
};

/**
 * The playground at `/` and its files below `/playground/`, on a listener that serves the general interface. The files
 * are loaded by the first request.
 */
export const makePlayground =
  ({ answersPort = null }: PlaygroundOptions = {}): Pages =>
  ({ basePaths, corsOrigins, serves }) => {
    if (!serves.includes("general")) return Effect.succeed(() => undefined);
    const config: PlaygroundConfig = {
      ...basePaths,
      answersPort,
      corsOrigins: answersPort === null ? [] : corsOrigins,
    };
    const attribute = JSON.stringify(config).replaceAll("&", "&amp;").replaceAll('"', "&quot;");
    const load = Effect.gen(function* () {
      const { default: texts } = yield* Effect.promise(() => import("#playground"));
      const html = texts["index.html"]!.replace("{config}", () => attribute);
      const files = { ...texts, "index.html": html };
      const entries = yield* Effect.forEach(Object.entries(files), ([name, text]) =>
        Effect.map(
          makeStaticFile(text, types[name.split(".").at(-1)!]!, { "cache-control": "no-cache" }),
          (file) => [name === "index.html" ? "/" : `/playground/${name}`, file] as const,
        ),
      );
      return new Map(entries);
    });
    return Effect.map(Effect.cached(load), (files) => ({ headers, method, url }) => {
      const path = toPath(url);
      if (method !== "GET" || (path !== "/" && !path.startsWith("/playground/"))) return undefined;
      const policy = toPolicy(headers["host"], answersPort);
      return Effect.map(
        files,
        (found) =>
          found.get(path)?.(headers, { "content-security-policy": policy }) ??
          toEndpointNotFound(method, path),
      );
    });
  };

/** A host without its port, as an address of the policy. */
const plainHost = /^(\[[\da-f:.]+\]|[\w.-]+)(?::\d+)?$/i;

const toPolicy = (host = "", answersPort: number | null): string => {
  const name = plainHost.exec(host)?.[1];
  // Without a scheme: that of the page.
  const answers = answersPort === null || name === undefined ? "" : ` ${name}:${answersPort}`;
  return (
    `default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'${answers}; ` +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; " +
    "trusted-types 'none'"
  );
};
