/**
 * The widget's addresses: the loader, the window that the origins of a key may frame, with its files, and tokens for
 * anonymous visitors.
 */
import { Access, type VisitorTokens, type Widget } from "@parley/core";
import { Effect } from "effect";
import { HttpServerResponse, type HttpServerRequest } from "effect/http";
import { protectiveHeaders } from "../contract/Wire.ts";
import type { RequestError } from "./ErrorResponses.ts";
import { signVisitorToken } from "./VisitorTokens.ts";

type Request = HttpServerRequest.HttpServerRequest;
type Response = HttpServerResponse.HttpServerResponse;

/** The widget as browsers get it, such as from `@parley/pages/widget`. */
export interface WidgetPages {
  /** Answers `/widget.js` and files below `/widget/`; `undefined` for another path. */
  readonly file: (request: Request) => Effect.Effect<Response> | undefined;
  /** The document of a window, which only the origins of the key's widget may frame. */
  readonly document: (request: Request, widget: Widget) => Effect.Effect<Response>;
}

/** The network that one client may control: an IPv4 address, or the first 64 bits of an IPv6 address. */
const toNetwork = (address: string): string => {
  const plain = address.replace(/^::ffff:(?=[\d.]+$)/i, "");
  if (!plain.includes(":")) return plain;
  const [head = [], tail = []] = plain
    .split("::")
    .map((part) => part.split(":").filter((group) => group !== ""));
  const gap = Array.from({ length: Math.max(0, 8 - head.length - tail.length) }, () => "0");
  const groups = [...head, ...gap, ...tail].slice(0, 4);
  return groups.map((group) => Number.parseInt(group, 16).toString(16)).join(":");
};

/** A function from a request to its response, `undefined` for a path that is not the widget's. */
export const makeWidget = Effect.fnUntraced(function* (
  tokens: VisitorTokens,
  clientAddress: (request: Request) => string | undefined,
  pages: WidgetPages | undefined,
  notFound: (request: Request) => Effect.Effect<Response>,
) {
  const access = yield* Access;

  const respond = Effect.fnUntraced(function* (request: Request, keyId: string) {
    const widget = yield* access.widget(keyId);
    return pages === undefined || widget === null || widget.origins.length === 0
      ? yield* notFound(request)
      : yield* pages.document(request, widget);
  });
  const respondToken = Effect.fnUntraced(function* (request: Request, keyId: string) {
    const network = toNetwork(clientAddress(request) ?? "");
    const former = request.headers["x-api-key"];
    const grant = yield* access.admitVisitor(keyId, tokens, network, former);
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
