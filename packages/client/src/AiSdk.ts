/**
 * `@parley/client/ai-sdk`: the client as a transport for the AI SDK's `useChat`, in a browser or behind a route
 * handler.
 */
import type { ChatTransport, UIMessage, UIMessageChunk } from "ai";
import { anySignal, refuseUnknown, ResponseError } from "./Connection.ts";
import { hasQuestion } from "./Interface.ts";
import type { AnswerEvent, AskOptions, Client, Entry, Question } from "./Interface.ts";

/** The fields of an entry that an assistant message carries in addition to its parts. */
export type EntryMetadata = Omit<Entry, "question" | "answer" | "metadata">;

/**
 * A message of `useChat`. An assistant message has the metadata of its entry. The `sources` that an answer keeps are
 * `source-url` parts, or `source-document` parts without a URL; anything else that it keeps is a part `data-<name>`, for
 * which `Data` gives the types by name. A part of type `data-entry` is an earlier entry of the chat that is missing from
 * the messages, because it was posted, because another page asked the question or because the server completed the
 * answer after `stop`; {@link toMessages} converts it.
 */
export type ParleyMessage<Data extends object = {}> = UIMessage<
  EntryMetadata,
  { entry: Entry } & Data
>;

/** Options for {@link makeChatTransport}. */
export interface ChatTransportOptions {
  readonly client: Client;
  /**
   * The chat to ask in. By default, the metadata of the last answer names the chat, and the first question creates one;
   * if the answer to the first question is stopped, the next question creates another chat. A route handler must set
   * `chatId`, because a browser can send any metadata.
   */
  readonly chatId?: number | undefined;
  /**
   * What the server does after a disconnect, such as a closed page. With `cancel`, the server ends the model's request
   * and stores nothing. With `finish`, it completes and stores the answer before it answers the next message, even after
   * `stop`, which otherwise stops the ask on whichever server it runs. The server's setting is the default: `finish`,
   * unless changed. In a route handler, a closed page cannot be told from `stop`.
   */
  readonly onDisconnect?: AskOptions["onDisconnect"];
}

/**
 * Creates a transport that asks the question in the user's last message. Each message has an idempotency key, so
 * `regenerate` asks a question again if it failed, and returns the stored answer if it succeeded. The assistant message
 * has the metadata of its entry. If the API key has the scope `read`, up to 100 entries that are missing from the
 * messages arrive with the answer. A failure arrives as an error of the SDK, with the message of the client's error,
 * such as `CHAT_DOES_NOT_EXISTS`.
 */
export const makeChatTransport = <Data extends object = {}>(
  options: ChatTransportOptions,
): ChatTransport<ParleyMessage<Data>> => {
  refuseUnknown("makeChatTransport", options, ["client", "chatId", "onDisconnect"]);
  const { chatId, client, onDisconnect } = options;
  return transportOf(client, chatId, onDisconnect);
};

const transportOf = <Data extends object>(
  client: Client,
  chatId: number | undefined,
  onDisconnect: AskOptions["onDisconnect"],
): ChatTransport<ParleyMessage<Data>> => ({
  sendMessages: async ({ abortSignal, chatId: id, messages: givenMessages }) => {
    const messages = givenMessages as unknown as ReadonlyArray<ParleyMessage>;
    const userMessage = messages.findLast(({ role }) => role === "user");
    const query = userMessage === undefined ? "" : toText(userMessage);
    const lastEntry = messages.findLast(
      ({ metadata }) => metadata?.chat_id !== undefined,
    )?.metadata;
    const question = { chat_id: chatId ?? lastEntry?.chat_id, query };
    // An edited message keeps its id.
    const key = `${hash(JSON.stringify(question))}.${id}.${userMessage?.id}`;
    const idempotencyKey = encodeURIComponent(key).slice(0, 250);
    const hangUp = new AbortController();
    const signal = anySignal(hangUp.signal, abortSignal);
    const onStop = onDisconnect === "finish" ? undefined : abortSignal;
    const options = { include, onDisconnect, signal };
    const events = askAnew(client, question, idempotencyKey, options, onStop);
    const shownIds = messages.flatMap(({ parts }) =>
      parts.flatMap((part) => (part.type === "data-entry" ? [part.data.id] : [])),
    );
    const readMissing = async (): Promise<ReadonlyArray<Entry>> => {
      if (question.chat_id === undefined) return [];
      const query = { after: lastEntry?.id, include, limit: 100 };
      const history = client.history(question.chat_id, query, { signal: abortSignal });
      const { data } = await history.page();
      return data.toReversed().filter(({ id }) => !shownIds.includes(id));
    };
    const chunks = toChunks(events, query, readMissing);
    return new ReadableStream({
      pull: async (controller) => {
        const { done, value } = await chunks.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      cancel: () => hangUp.abort(),
    });
  },
  // There is no stream to rejoin. With `finish`, the server stores the completed answer, and the history includes it.
  reconnectToStream: () => Promise.resolve(null),
});

/**
 * Converts the entries of a history, which must be oldest first, to the initial messages of `useChat`. The history
 * needs `include: ["metadata"]` for the parts that come from it.
 */
export const toMessages = <Data extends object = {}>(
  entries: ReadonlyArray<Entry>,
): Array<ParleyMessage<Data>> =>
  entries.flatMap((entry) => {
    const { answer, metadata: _, question, ...metadata } = entry;
    const [id, text] = [String(entry.id), { type: "text", text: answer } as const];
    const parts = [text, ...toParts(entry)] as ParleyMessage<Data>["parts"];
    const message: ParleyMessage<Data> = { id, role: "assistant", parts, metadata };
    if (!hasQuestion(entry)) return [message];
    const questionParts = [{ type: "text", text: question } as const];
    return [{ id: `${id}-question`, role: "user", parts: questionParts }, message];
  });

const include = ["metadata"] as const;

/**
 * Asks the question, and stops the ask when `stopSignal` is aborted. A question that was stopped before is asked with
 * another key, because the key of a stopped ask stays stopped.
 */
async function* askAnew(
  client: Client,
  question: Question,
  firstKey: string,
  options: AskOptions,
  stopSignal: AbortSignal | undefined,
): AsyncGenerator<AnswerEvent, void> {
  for (let stops = 0; ; stops++) {
    const idempotencyKey = stops === 0 ? firstKey : `${firstKey}.${stops}`;
    const stop = () => void stopAsk(client, idempotencyKey);
    stopSignal?.addEventListener("abort", stop, { once: true });
    let hasBegun = false;
    try {
      for await (const event of client.stream(question, { ...options, idempotencyKey })) {
        hasBegun ||= event.type !== "reconnecting";
        yield event;
      }
      return;
    } catch (error) {
      const isStopped = error instanceof ResponseError && error.message === "ANSWER_STOPPED";
      if (!isStopped || hasBegun) throw error;
    } finally {
      stopSignal?.removeEventListener("abort", stop);
    }
  }
}

/** Stops the ask; tries again after a second if the ask has not reached the server yet. */
const stopAsk = async (client: Client, idempotencyKey: string): Promise<void> => {
  for (const delayMillis of [1000, 0]) {
    try {
      await client.stop(idempotencyKey);
      return;
    } catch (error) {
      if (!(error instanceof ResponseError && error.status === 404)) return;
      await new Promise((resolve) => setTimeout(resolve, delayMillis));
    }
  }
};

/** Yields the parts that an entry's metadata makes. The name `entry` is taken. */
function* toParts({ id, metadata }: Entry) {
  for (const [name, data] of Object.entries(metadata ?? {})) {
    if (name === "sources" && Array.isArray(data)) {
      for (const [index, item] of data.entries()) {
        const { title, url } = item ?? {};
        const source = { sourceId: `${id}-${index}`, title: String(title ?? url ?? "") };
        if (url) yield { ...source, type: "source-url", url: String(url) } as const;
        else yield { ...source, type: "source-document", mediaType: "text/plain" } as const;
      }
    } else if (name !== "entry") yield { type: `data-${name}`, data } as const;
  }
}

const toText = ({ parts }: ParleyMessage): string =>
  parts.map((part) => (part.type === "text" ? part.text : "")).join("");

async function* toChunks(
  events: AsyncIterable<AnswerEvent>,
  query: string,
  readMissing: () => Promise<ReadonlyArray<Entry>>,
): AsyncGenerator<UIMessageChunk<EntryMetadata>, void> {
  const id = "answer";
  let hasBegun = false;
  let isOpen = false;
  const candidates: Array<Entry> = [];
  yield { type: "start" };
  try {
    for await (const event of events) {
      if (!hasBegun && (event.type === "delta" || event.type === "entry")) {
        hasBegun = true;
        // By now, all entries that precede this ask's entry are stored.
        for (const entry of await readMissing().catch(() => [])) {
          // If this ask repeats a stored answer, its own entry may be among them.
          if (entry.question === query) candidates.push(entry);
          else yield toEntryPart(entry);
        }
        yield { type: "start-step" };
      }
      if (event.type === "restart") {
        isOpen = false;
        yield { type: "reset-step" };
      } else if (event.type === "delta") {
        if (!isOpen) yield { type: "text-start", id };
        isOpen = true;
        yield { type: "text-delta", id, delta: event.text };
      } else if (event.type === "entry") {
        const { answer: _, metadata: __, question: ___, ...metadata } = event.entry;
        if (isOpen) yield { type: "text-end", id };
        for (const entry of candidates) if (entry.id !== metadata.id) yield toEntryPart(entry);
        yield* toParts(event.entry);
        yield { type: "finish-step" };
        yield { type: "finish", messageMetadata: metadata };
      }
    }
  } catch (error) {
    yield { type: "error", errorText: (error as Error).message };
  }
}

const toEntryPart = (entry: Entry) =>
  ({ type: "data-entry", id: String(entry.id), data: entry }) as const;

const hash = (text: string): number =>
  [...text].reduce((sum, character) => (sum * 31 + character.codePointAt(0)!) >>> 0, 0);
