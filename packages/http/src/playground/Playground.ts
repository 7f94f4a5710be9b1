/**
 * A page at `/` on which a person meets a chatbot: `@parley/http/playground`. It loads nothing from other hosts.
 */
import { Effect } from "effect";
import { HttpServerResponse } from "effect/http";
import { toPath, type Pages } from "../serve/App.ts";
import { toEndpointNotFound } from "../serve/ErrorResponses.ts";
import { makeStaticFile } from "../serve/StaticFile.ts";

/** Options of {@link makePlayground}. */
export interface PlaygroundOptions {
  /** The port of the answers interface, on the page's own host, where it is not the page's. */
  readonly answersPort?: number | null;
}

/** The settings that the server passes to the page. */
export interface PlaygroundConfig {
  readonly general: string;
  readonly answers: string;
  readonly answersPort: number | null;
  /** The origins that the answers interface accepts, where it has a port of its own. */
  readonly corsOrigins: ReadonlyArray<string>;
}

const types: Readonly<Record<string, string>> = {
  css: "text/css; charset=utf-8",
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  svg: "image/svg+xml",
};

const notBuilt = HttpServerResponse.text(
  "The playground has not been built: run `pnpm install`, and start the server again.\n",
  { status: 500, headers: { "cache-control": "no-store" } },
);

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
    const load = Effect.gen(function* () {
      const files = yield* Effect.tryPromise(() => import("#playground"));
      const made = Object.entries(files.default).map(([name, text]) => {
        const isPage = name === "index.html";
        // The other names change with their contents.
        const isNamed = !isPage && name !== "icon.svg";
        return Effect.map(
          makeStaticFile(
            isPage ? text.replace("{config}", () => escapeAttribute(JSON.stringify(config))) : text,
            types[name.split(".").at(-1)!]!,
            { "cache-control": isNamed ? "public, max-age=31536000, immutable" : "no-cache" },
          ),
          (file) => [isPage ? "/" : `/playground/${name}`, file] as const,
        );
      });
      return new Map(yield* Effect.all(made));
    });
    return Effect.map(Effect.cached(Effect.option(load)), (files) => ({ headers, method, url }) => {
      const path = toPath(url);
      if (method !== "GET" || (path !== "/" && !path.startsWith("/playground/"))) return undefined;
      return Effect.map(files, (found) => {
        if (found._tag === "None") return notBuilt;
        const file = found.value.get(path);
        if (file === undefined) return toEndpointNotFound(method, path);
        return file(headers, { "content-security-policy": policy(headers["host"], answersPort) });
      });
    });
  };

const escapeAttribute = (text: string): string =>
  text.replaceAll("&", "&amp;").replaceAll('"', "&quot;").replaceAll("<", "&lt;");

/** A host without its port, as an address of the policy. */
const plainHost = /^(\[[\da-f:.]+\]|[\w.-]+)(?::\d+)?$/i;

const policy = (host = "", answersPort: number | null): string => {
  const name = plainHost.exec(host)?.[1];
  // Without a scheme: that of the page.
  const answers = answersPort === null || name === undefined ? "" : ` ${name}:${answersPort}`;
  return (
    `default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'${answers}; ` +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; " +
    "trusted-types 'none'"
  );
};
