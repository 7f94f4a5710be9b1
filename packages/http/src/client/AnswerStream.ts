/**
 * A streamed answer, which survives broken connections.
 */
import {
  ConnectionError,
  retryDelayMillis,
  send,
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
  let headers: ClientRequest["headers"] = { ...request.headers, accept: "text/event-stream" };
  let turn: string | undefined;
  let isReconnecting = false;
  let restarts = 0;
  for (let failures = 0; ; failures++) {
    try {
      for await (const event of readEvents(send(options, { ...request, headers }))) {
        const { data, id, name, requestId } = event;
        if (isReconnecting) yield { type: "reconnected" };
        isReconnecting = false;
        if (name === "error") throw toResponseError(data.status, data, requestId);
        // A comment.
        if (id === "") continue;
        headers = { ...headers, "last-event-id": id };
        const [current] = id.split(".");
        if (turn !== undefined && turn !== current) {
          restarts++;
          yield { type: "restart" };
        }
        turn = current;
        // Progress after a restart counts less, or an answer that always breaks would be paid for without end.
        failures = restarts;
        if (name === "delta") yield { type: "delta", text: data.text };
        if (name === "entry") {
          yield { type: "entry", entry: data.data };
          return;
        }
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

/** The server-sent events of a response. Comments have empty fields; an event that is cut off is dropped. */
async function* readEvents(response: ReturnType<typeof send>) {
  let rest = "";
  for await (const { requestId, text } of response) {
    const blocks = (rest + text).split("\n\n");
    rest = blocks.pop()!;
    for (const block of blocks) {
      const field = (name: string) => new RegExp(`^${name}: (.*)$`, "m").exec(block)?.[1] ?? "";
      const data = field("data");
      yield {
        name: field("event"),
        id: field("id"),
        data: data === "" ? undefined : JSON.parse(data),
        requestId,
      };
    }
  }
}
