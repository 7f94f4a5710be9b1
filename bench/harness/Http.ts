/**
 * Single requests for setup and for inspecting responses. The load generator does not use them.
 */
import { stopSignal } from "./Children.ts";

export interface Request {
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: object;
}

export interface Response {
  readonly status: number;
  readonly text: string;
}

/** Returns one complete response; fails after 10 s. */
export const call = async (
  { key, port }: { readonly port: number; readonly key: string },
  { body, headers, method, path }: Request,
): Promise<Response> => {
  const response = await fetch(`http://127.0.0.1:${port}${path}`, {
    method,
    headers: { "x-api-key": key, ...(body && { "content-type": "application/json" }), ...headers },
    ...(body && { body: JSON.stringify(body) }),
    signal: AbortSignal.any([stopSignal, AbortSignal.timeout(10_000)]),
  });
  return { status: response.status, text: await response.text() };
};

/** Returns the `data` of a 200 or 201 response; fails for any other status. */
export const dataOf = async (
  server: { readonly port: number; readonly key: string },
  request: Request,
): Promise<any> => {
  const { status, text } = await call(server, request);
  if (status === 200 || status === 201) return JSON.parse(text).data;
  throw new Error(`${request.method} ${request.path} got ${status}: ${text}`);
};
