/**
 * The visitor's tokens, and requests that carry them. The window renews a token before it expires, and when the server
 * rejects it. An interrupted answer continues with the next token, under its idempotency key.
 */
import { tabValue, storage, visitorOf } from "../../page/Parts.tsx";
import { readValue, storageOf } from "../../page/storage.ts";
import type { Token } from "./Messages.ts";

const visits = storageOf("localStorage");
const name = `parley-token${location.pathname}`;
/** The visitor whose drafts and asks this tab keeps. */
const visitor = tabValue<string | null>("visitor", null, (value) => typeof value === "string");

let token: Token | undefined;
let renewAt = 0;
let renewal: Promise<Response | undefined> | undefined;

const keep = (newToken: Token): Promise<undefined> | undefined => {
  token = newToken;
  // The next renewal is due in 30 seconds to an hour, even if this machine's clock is wrong.
  const millis = Date.parse(newToken.expires_at) - Date.now() - 60_000;
  renewAt = performance.now() + Math.min(Math.max(millis || 0, 30_000), 3_600_000);
  const lastVisitor = visitor.peek();
  const currentVisitor = visitorOf(newToken.token);
  if (lastVisitor === currentVisitor) return undefined;
  visitor.value = currentVisitor;
  if (lastVisitor === null) return undefined;
  // The drafts and asks of this tab belong to another person.
  for (const key of ["drafts", "asks", "view"])
    storage.removeItem(`parley-${key}${location.pathname.slice(1)}`);
  location.reload();
  return new Promise(() => undefined);
};

/** Returns the failed response, if any. `requestToken`, which anonymous visitors lack, asks the site's backend. */
const renew = async (requestToken: (() => Promise<Partial<Token> | null>) | undefined) => {
  if (requestToken !== undefined) {
    const answer = await requestToken();
    if (answer === null) throw new TypeError("The site's backend is not responding");
    if (typeof answer.token === "string") return keep(answer as Token);
    return Response.json({ status: 401, message: "API_KEY_NOT_VALID" }, { status: 401 });
  }
  if (token === undefined) {
    token = readValue<Token>(visits, name, ({ token }) => /^[!-~]+$/.test(token));
    if (token !== undefined && Date.parse(token.expires_at) > Date.now() + 60_000)
      return keep(token);
  }
  const post = (headers: HeadersInit) =>
    fetch(`${location.pathname}/token`, {
      method: "POST",
      headers,
      signal: AbortSignal.timeout(20_000),
    });
  let response = await post(token === undefined ? {} : { "x-api-key": token.token });
  // The server refuses to renew the token, so the visitor starts over as a new one.
  if (response.status === 401) response = await post({});
  if (response.status === 404)
    console.warn(
      "Parley widget: the key admits no anonymous visitors. Add data-token-url, or create a key with parley key create --widget",
    );
  if (!response.ok) return response;
  const newToken = await response.json();
  visits.setItem(name, JSON.stringify(newToken));
  return keep(newToken);
};

const untilAborted = (signal: AbortSignal | null | undefined) =>
  new Promise<never>((_, reject) => {
    signal?.addEventListener("abort", () => reject(signal.reason as Error));
  });

/** Makes a `fetch` that adds the visitor's token, for use by a client. */
export const makeFetch =
  (requestToken?: () => Promise<Partial<Token> | null>) =>
  async (url: string, init: RequestInit): Promise<Response> => {
    for (let isSecond = false; ; isSecond = true) {
      if (performance.now() >= renewAt) {
        renewal ??= renew(requestToken).finally(() => (renewal = undefined));
        const failure = await Promise.race([renewal, untilAborted(init.signal)]);
        if (failure !== undefined) return failure.clone();
      }
      const refusedToken = token!.token;
      const headers = new Headers(init.headers);
      headers.set("x-api-key", refusedToken);
      const response = await fetch(url, { ...init, headers });
      if (response.status !== 401 || isSecond) return response;
      // Another request may have renewed the token meanwhile.
      if (token!.token === refusedToken) renewAt = 0;
    }
  };
