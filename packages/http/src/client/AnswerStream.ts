/**
 * A streamed answer, which survives broken connections.
 */
import { ConnectionError } from "./ClientErrors.ts";
import {
  open,
  retryDelayMillis,
  sleep,
  toResponseError,
  type ClientRequest,
  type ConnectionOptions,
} from "./Connection.ts";
import type { AnswerEvent } from "./Resources.ts";

/**
 * The events of an ask, whose headers carry an idempotency key: by it and by the id of the last event, the server finds
 * the rest of an answer after a broken connection.
 */
export async function* streamAnswer(
  options: ConnectionOptions,
  retries: number,
  request: ClientRequest,
): AsyncGenerator<AnswerEvent, void> {
  let lastId: string | undefined;
  let isReconnecting = false;
  let restarts = 0;
  for (let failures = 0; ; failures++) {
    try {
      const headers = {
        ...request.headers,
        ...(lastId !== undefined && { "last-event-id": lastId }),
      };
      const { close, requestId, text } = await open(options, { ...request, headers });
      try {
        if (isReconnecting) yield { type: "reconnected" };
        isReconnecting = false;
        for await (const { data, id, name } of parseEvents(text)) {
          if (name === "error") throw toResponseError(data.status, data, requestId);
          if (lastId !== undefined && turnOf(id) !== turnOf(lastId)) {
            restarts++;
            yield { type: "restart" };
          }
          lastId = id;
          // Progress after a restart counts less, or an answer that always breaks would be paid for without end.
          failures = restarts;
          if (name === "delta") yield { type: "delta", text: data.text };
          if (name === "entry") {
            yield { type: "entry", entry: data.data };
            return;
          }
        }
      } finally {
        close();
      }
      throw new ConnectionError("The stream ended before the answer");
    } catch (error) {
      const delayMillis = retryDelayMillis(error, failures, retries);
      isReconnecting = true;
      yield { type: "reconnecting", error: error as Error, delayMillis };
      await sleep(delayMillis, request.signal);
    }
  }
}

/** The part of an event's id that names the attempt to answer. */
const turnOf = (id: string): string => id.replace(/\.\d+$/, "");

/** The server-sent events of a text without its comments. An event that is cut off is dropped. */
async function* parseEvents(text: AsyncIterable<string>) {
  let rest = "";
  for await (const part of text) {
    const blocks = (rest + part).split("\n\n");
    rest = blocks.pop()!;
    for (const block of blocks) {
      const field = (name: string) => new RegExp(`^${name}: (.*)$`, "m").exec(block)?.[1] ?? "";
      const data = field("data");
      if (data !== "") yield { name: field("event"), id: field("id"), data: JSON.parse(data) };
    }
  }
}
