/**
 * Sends requests to an endpoint that is compatible with OpenAI's, at the address that people mean.
 */
import { Data, Effect, Redacted } from "effect";
import { parseJson, isRecord } from "./Json.ts";
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
  /** Posts JSON. Returns a successful response, and throws any other. `note` is told what the operator should know. */
  readonly post: (
    body: unknown,
    headers: Readonly<Record<string, string | undefined>>,
    signal: AbortSignal,
    note: (text: string) => void,
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
    return {
      post: async (body, headers, signal, note) => {
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
        if (second === undefined) return acceptOk(await post(first));
        const [response, isElsewhere] = await inspect(await post(first));
        if (!isElsewhere) return acceptOk(response);
        const [other, isNowhere] = await inspect(await post(second));
        if (isNowhere) return acceptOk(response);
        addresses = [second];
        note(`the endpoint is at ${new URL(second).origin}${new URL(second).pathname}`);
        return acceptOk(other);
      },
    };
  });

/** Returns the address that the settings mean and, if it names no version, the one with `/v1`. */
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
  const addresses: readonly [string, string?] = /\/v\d\w*(\/|$)/.test(path)
    ? [at(path)]
    : [at(path), at(`${path}/v1`)];
  return addresses;
});

const isPage = ({ headers }: Response) => headers.get("content-type")?.startsWith("text/html");

/** Tells whether a response comes from a server that has nothing at the address. LM Studio says so with status 200. */
const inspect = async (response: Response): Promise<readonly [Response, boolean]> => {
  const { headers, ok, status } = response;
  if (status === 404 || status === 405) return [response, true];
  if (ok && isPage(response)) return [response, true];
  if (!ok || !headers.get("content-type")?.startsWith("application/json")) return [response, false];
  const text = await response.text();
  const value = parseJson(text);
  const isError = isRecord(value) && Boolean(value["error"]) && !value["choices"];
  return [new Response(text, { status, headers }), isError && !value["results"]];
};

/** Throws unless the response is what a client of the API expects. */
const acceptOk = async (response: Response): Promise<Response> => {
  if (response.ok && !isPage(response)) return response;
  const text = await readStart(response);
  if (response.ok) throw makeFailure("client_error", "the address returned an HTML page");
  throw Object.assign(new Error(), {
    statusCode: response.status,
    responseHeaders: Object.fromEntries(response.headers),
    responseBody: text,
  });
};

/** Reads at most 64 kB and for at most a second, because a failed response may never end. */
const readStart = async ({ body }: Response): Promise<string> => {
  if (body === null) return "";
  const reader = body.getReader();
  const timer = setTimeout(() => void reader.cancel().catch(() => {}), 1000);
  const decoder = new TextDecoder();
  let text = "";
  try {
    while (text.length < 64_000) {
      const { done, value } = await reader.read();
      if (done) return text;
      text += decoder.decode(value, { stream: true });
    }
    void reader.cancel().catch(() => {});
  } catch {
    // What arrived before the connection broke is enough.
  } finally {
    clearTimeout(timer);
  }
  return text;
};
