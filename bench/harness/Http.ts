/**
 * Single requests, for setting up and for looking at responses; the load does not use them.
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

/** One whole response, within 10 s. */
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

/** The `data` of a 2xx response. */
export const dataOf = async (
  server: { readonly port: number; readonly key: string },
  request: Request,
): Promise<any> => {
  const { status, text } = await call(server, request);
  if (status === 200 || status === 201) return JSON.parse(text).data;
  throw new Error(`${request.method} ${request.path} got ${status}: ${text}`);
};
