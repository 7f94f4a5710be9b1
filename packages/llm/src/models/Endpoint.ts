/**
 * Sends requests to an endpoint that is compatible with OpenAI's, at the address that people mean.
 */
import { Data, Effect, Redacted } from "effect";
import { makeFailure } from "./ModelFailure.ts";

/** Where an endpoint is. */
export interface EndpointSettings {
  /** The endpoint's address, for example `http://localhost:11434/v1`. A query, such as Azure's `api-version`, stays. */
  readonly baseUrl: string;
  /** Sent as a bearer token; `undefined` for an endpoint without authentication. */
  readonly apiKey: Redacted.Redacted | undefined;
  /** The function that sends the requests; default: the global `fetch`. */
  readonly fetch?: typeof fetch;
}

/** The address or the key of an endpoint cannot be used. */
export class EndpointInvalid extends Data.TaggedError("EndpointInvalid")<{
  readonly message: string;
}> {}

export interface Endpoint {
  /** What is to be logged about the endpoint; who logs it empties the list. */
  readonly notes: Array<string>;
  /** Posts JSON. Returns a successful response, and throws any other. */
  readonly post: (
    body: unknown,
    headers: Readonly<Record<string, string | undefined>>,
    signal: AbortSignal,
  ) => Promise<Response>;
}

/** @param operation the path below the endpoint's address, for example `chat/completions` */
export const makeEndpoint = (
  { apiKey, baseUrl, fetch: send = fetch }: EndpointSettings,
  operation: string,
): Effect.Effect<Endpoint, EndpointInvalid> =>
  Effect.gen(function* () {
    let addresses = yield* addressesOf(baseUrl, operation);
    const key = apiKey === undefined ? "" : Redacted.value(apiKey).trim();
    const [character] = /[^\x20-\x7e]/u.exec(key) ?? [];
    if (character !== undefined) {
      const code = character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0");
      const place = `character ${[...key].indexOf(character) + 1} of the API key for ${baseUrl.split("?")[0]}`;
      const message = `${place} is ${JSON.stringify(character)} (U+${code}), but a key has only ASCII characters: copy it again`;
      return yield* new EndpointInvalid({ message });
    }
    const authorization = key === "" ? {} : { authorization: `Bearer ${key}` };
    const notes: Array<string> = [];
    return {
      notes,
      post: async (body, headers, signal) => {
        const post = (address: string) =>
          send(address, {
            method: "POST",
            headers: { ...headers, "content-type": "application/json", ...authorization },
            body: JSON.stringify(body),
            signal,
            // A redirect would send the chat to another address.
            redirect: "manual",
          });
        const [first, second] = addresses;
        const response = await post(first);
        if (second === undefined || !isElsewhere(response)) return acceptOk(response);
        const other = await post(second);
        if (isElsewhere(other)) {
          void other.body?.cancel();
          return acceptOk(response);
        }
        void response.body?.cancel();
        addresses = [second];
        notes.push(`it is at ${second.split("?")[0]}`);
        return acceptOk(other);
      },
    };
  });

/** Returns the addresses that the settings may mean, the likely one first. One without a version may lack `/v1`. */
const addressesOf = Effect.fnUntraced(function* (baseUrl: string, operation: string) {
  if (!URL.canParse(baseUrl) || !/^https?:$/.test(new URL(baseUrl).protocol)) {
    const likely = URL.canParse(`http://${baseUrl}`) ? `: use http://${baseUrl}` : "";
    const message = `${JSON.stringify(baseUrl)} is not an address that begins with http:// or https://${likely}`;
    return yield* new EndpointInvalid({ message });
  }
  const base = new URL(baseUrl);
  const path = base.pathname
    .replace(/\/{2,}/g, "/")
    .replace(/\/$/, "")
    .replace(/\/((chat\/)?completions|responses|models|embeddings|moderations)$/, "")
    .replace(/(\/v\d+)\1+$/, "$1");
  const at = (path: string) => {
    const url = new URL(base);
    url.hash = "";
    url.pathname = `${path}/${operation}`;
    return url.href;
  };
  const [bare, versioned] = [at(path), at(`${path}/v1`)];
  const addresses: readonly [string, string?] = /\/v\d\w*(\/|$)/.test(path)
    ? [bare]
    : path === ""
      ? [versioned, bare]
      : [bare, versioned];
  return addresses;
});

const isPage = ({ headers, ok }: Response) =>
  ok && headers.get("content-type")?.startsWith("text/html") === true;

/** Tells whether a response comes from a server that has nothing at the address. */
const isElsewhere = (response: Response) =>
  response.status === 404 || response.status === 405 || isPage(response);

/** Throws unless the response is what a client of the API expects. */
const acceptOk = async (response: Response): Promise<Response> => {
  if (isPage(response)) throw makeFailure("client_error", "the address returned an HTML page");
  if (response.ok) return response;
  // A failed response may never end.
  const timeout = new Promise<string>((resolve) => setTimeout(resolve, 1000, ""));
  throw Object.assign(new Error(), {
    statusCode: response.status,
    responseHeaders: Object.fromEntries(response.headers),
    responseBody: await Promise.race([response.text().catch(() => ""), timeout]),
  });
};
