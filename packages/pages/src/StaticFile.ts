/**
 * Files of pages beside the interfaces, compressed once and kept by browsers.
 */
import { Effect } from "effect";
import { HttpServerResponse } from "effect/http";

type Headers = Readonly<Record<string, string | undefined>>;

/** Headers of every page: no guessed types, no address for other sites, no frame of another site. */
const guarded = { "x-content-type-options": "nosniff", "referrer-policy": "no-referrer" };

/**
 * A function from a request's headers to the response with a text: gzipped for clients that accept it, and without a
 * body for those that have it. `headers` are the response's.
 */
export const makeStaticFile = Effect.fnUntraced(function* (
  text: string,
  contentType: string,
  headers: Readonly<Record<string, string>>,
) {
  const bytes = new TextEncoder().encode(text);
  const [gzipped, digest] = yield* Effect.promise(() =>
    Promise.all([gzip(bytes), crypto.subtle.digest("SHA-256", bytes)]),
  );
  const hash = Array.from(new Uint8Array(digest, 0, 12), (byte) =>
    byte.toString(16).padStart(2, "0"),
  );
  // Weak: both encodings have it.
  const etag = `W/"${hash.join("")}"`;
  const common = { ...guarded, ...headers, etag, vary: "accept-encoding" };

  return (request: Headers, more: Readonly<Record<string, string>> = {}) => {
    const all = { ...common, ...more };
    if (request["if-none-match"]?.split(",").some((one) => one.trim() === etag)) {
      return HttpServerResponse.empty({ status: 304, headers: all });
    }
    const accepts = /\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))/i.test(request["accept-encoding"] ?? "");
    return HttpServerResponse.uint8Array(accepts ? gzipped : bytes, {
      contentType,
      headers: accepts ? { ...all, "content-encoding": "gzip" } : all,
    });
  };
});

const gzip = async (bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> => {
  const stream = new Blob([bytes]).stream().pipeThrough(new CompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};
