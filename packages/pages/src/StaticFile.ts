/**
 * Static files for the pages, compressed once and cached by browsers.
 */
import { Effect } from "effect";
import { HttpServerResponse } from "effect/http";

type Headers = Readonly<Record<string, string | undefined>>;

/** Headers of every page: browsers always check for a newer version, do not guess types, and send no `Referer`. */
export const protectiveHeaders = {
  "cache-control": "no-cache",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
};

/** Headers of documents: their Content Security Policy, no access by pages that open them, and no devices. */
const toPageHeaders = (policy: string) => ({
  "content-security-policy": policy,
  "cross-origin-opener-policy": "same-origin",
  "permissions-policy": "camera=(), geolocation=(), microphone=()",
});

export type StaticFile = Effect.Success<ReturnType<typeof makeStaticFile>>;

/**
 * Returns a function that takes a request's headers and responds with the text: gzipped for a client that accepts gzip,
 * and without a body for a client that already has the text. `policy` is the Content Security Policy.
 */
export const makeStaticFile = Effect.fnUntraced(function* (text: string, contentType: string) {
  const bytes = new TextEncoder().encode(text);
  const [gzipBytes, digest] = yield* Effect.promise(() =>
    Promise.all([gzip(bytes), crypto.subtle.digest("SHA-256", bytes)]),
  );
  // The tag is weak, because the plain and the gzipped response share it.
  const etag = `W/"${btoa(String.fromCharCode(...new Uint8Array(digest, 0, 12)))}"`;
  const common = { ...protectiveHeaders, etag, vary: "accept-encoding" };

  return (request: Headers, policy?: string) => {
    const all = policy === undefined ? common : { ...common, ...toPageHeaders(policy) };
    if (request["if-none-match"]?.split(",").some((tag) => tag.trim() === etag)) {
      return HttpServerResponse.empty({ status: 304, headers: all });
    }
    const acceptsGzip = /\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))/i.test(
      request["accept-encoding"] ?? "",
    );
    return HttpServerResponse.uint8Array(acceptsGzip ? gzipBytes : bytes, {
      contentType,
      headers: acceptsGzip ? { ...all, "content-encoding": "gzip" } : all,
    });
  };
});

/** Whether a request with the method reads a page. HTTP servers omit the body of a response to HEAD. */
export const isRead = (method: string): boolean => method === "GET" || method === "HEAD";

/** Returns a JSON response that browsers do not store. */
export const respondJson = (value: unknown) =>
  HttpServerResponse.jsonUnsafe(value, { headers: { "cache-control": "no-store" } });

/** The content types of files, by file extension. */
export const contentTypes: Readonly<Record<string, string>> = {
  css: "text/css; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  json: "application/json",
  png: "image/png",
  svg: "image/svg+xml",
};

/** The files of a page with the given script, besides its HTML. */
export const filesOf = (folder: string, script: string): ReadonlyArray<string> =>
  [script, "highlight.js", "theme.js", "style.css", "icon.svg"].map((name) => `${folder}/${name}`);

/** Loads the files at the given paths, and returns a map from path to file. */
export const loadFiles = Effect.fnUntraced(function* (paths: ReadonlyArray<string>) {
  const { default: texts } = yield* Effect.promise(() => import("#files"));
  const files = new Map<string, StaticFile>();
  for (const path of paths) {
    const contentType = contentTypes[path.split(".").at(-1)!]!;
    files.set(path, yield* makeStaticFile(texts[path.split("/").at(-1)!]!, contentType));
  }
  return files;
});

const gzip = async (bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> => {
  const stream = new Blob([bytes]).stream().pipeThrough(new CompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};
