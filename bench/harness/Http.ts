/**
 * Single calls, for setting up and for looking at answers; the load takes another way.
 */
import { stopSignal } from "./Children.ts";

export interface Answer {
  readonly status: number;
  readonly text: string;
}

/** One whole answer, within 10 s. */
export const call = async (
  port: number,
  method: "GET" | "POST",
  path: string,
  key: string,
  body?: object,
): Promise<Answer> => {
  const response = await fetch(`http://127.0.0.1:${port}${path}`, {
    method,
    headers: { "x-api-key": key, ...(body && { "content-type": "application/json" }) },
    ...(body && { body: JSON.stringify(body) }),
    signal: AbortSignal.any([stopSignal, AbortSignal.timeout(10_000)]),
  });
  return { status: response.status, text: await response.text() };
};

/** The `data` of a 2xx answer. */
export const dataOf = async (...request: Parameters<typeof call>): Promise<any> => {
  const { status, text } = await call(...request);
  if (status !== 200 && status !== 201) {
    throw new Error(`${request[1]} ${request[2]} was answered ${status}: ${text}`);
  }
  return JSON.parse(text).data;
};
