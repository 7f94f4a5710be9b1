/**
 * Serves the widget: the loader, the window that a key's origins may frame, the window's files, and tokens for
 * anonymous visitors.
 */
import { Access, AskLimits, type VisitorTokens, type Widget } from "@parley/core";
import { Effect } from "effect";
import { HttpServerResponse, type HttpServerRequest } from "effect/http";
import { protectiveHeaders } from "../contract/Wire.ts";
import type { RequestError } from "./ErrorResponses.ts";
import { signVisitorToken } from "./VisitorTokens.ts";

type Request = HttpServerRequest.HttpServerRequest;
type Response = HttpServerResponse.HttpServerResponse;

/** The widget's pages and files, such as those from `@parley/pages/widget`. */
export interface WidgetPages {
  /** Responds to requests for `/widget.js` and files below `/widget/`; returns `undefined` for any other path. */
  readonly file: (request: Request) => Effect.Effect<Response> | undefined;
  /** Returns the document of the widget's window, which only the widget's origins may frame. */
  readonly document: (
    request: Request,
    widget: Widget,
    questionLength: number,
  ) => Effect.Effect<Response>;
}

/**
 * Returns the networks that a client may control, from the narrowest to the widest: an IPv4 address, its first 24 and
 * its first 16 bits, or the first 64, 48 and 32 bits of an IPv6 address. An IPv4 address in an IPv6 address, as a
 * dual-stack listener or NAT64 writes it, counts as IPv4.
 */
const toNetworks = (address: string): ReadonlyArray<string> => {
  const toPrefixes = (parts: ReadonlyArray<string>, separator: string) =>
    [4, 3, 2].map((length) => parts.slice(0, length).join(separator));
  const url = `http://[${address.split("%")[0]}]`;
  if (!URL.canParse(url)) return toPrefixes(address.split("."), ".");
  // The URL has the address in its shortest form, without a dotted part.
  const [head = [], tail = []] = new URL(url).hostname
    .slice(1, -1)
    .split("::")
    .map((part) => part.split(":").filter((group) => group !== ""));
  const gap = Array.from({ length: 8 - head.length - tail.length }, () => "0");
  const groups = [...head, ...gap, ...tail];
  const isMapped = groups.slice(0, 6).join(":") === "0:0:0:0:0:ffff";
  if (!isMapped && !(groups[0] === "64" && groups[1] === "ff9b")) return toPrefixes(groups, ":");
  const pairs = groups.slice(6).map((group) => Number.parseInt(group, 16));
  return toPrefixes(
    pairs.flatMap((pair) => [`${pair >> 8}`, `${pair & 255}`]),
    ".",
  );
};

/** Creates a function that responds to requests for the widget's paths and returns `undefined` for other paths. */
export const makeWidget = Effect.fnUntraced(function* (
  tokens: VisitorTokens,
  clientAddress: (request: Request) => string | undefined,
  pages: WidgetPages | undefined,
  notFound: (request: Request) => Effect.Effect<Response>,
) {
  const access = yield* Access;
  const { questionLength } = yield* AskLimits;

  const respond = Effect.fnUntraced(function* (request: Request, keyId: string) {
    const widget = yield* access.widget(keyId);
    return pages === undefined || widget === null || widget.origins.length === 0
      ? yield* notFound(request)
      : yield* pages.document(request, widget, questionLength);
  });
  const respondToken = Effect.fnUntraced(function* (request: Request, keyId: string) {
    const networks = toNetworks(clientAddress(request) ?? "");
    const former = request.headers["x-api-key"];
    const grant = yield* access.admitVisitor(keyId, tokens, networks, former);
    if (grant === null) return yield* notFound(request);
    const { expiresAt, ...claims } = grant;
    const token = yield* signVisitorToken({ ...claims, keyId, expiresAt });
    const body = { token, expires_at: expiresAt.toISOString() };
    return HttpServerResponse.jsonUnsafe(body, { status: 201, headers: protectiveHeaders });
  });

  return (request: Request, path: string): Effect.Effect<Response, RequestError> | undefined => {
    const [, keyId, tokenPath] = /^\/widget\/([0-9A-Za-z]{12})(\/token)?$/.exec(path) ?? [];
    const { method } = request;
    if (keyId !== undefined && tokenPath !== undefined && method === "POST")
      return respondToken(request, keyId);
    if (keyId !== undefined && tokenPath === undefined && (method === "GET" || method === "HEAD"))
      return respond(request, keyId);
    return pages?.file(request);
  };
});
