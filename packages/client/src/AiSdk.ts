/**
 * `@parley/client/ai-sdk`: the client as a transport for the AI SDK's `useChat`, in a browser or behind a route
 * handler.
 */
import type { ChatTransport, UIMessage, UIMessageChunk } from "ai";
import type { AnswerEvent, AskOptions, Client, Entry } from "./Interface.ts";

/** The fields of an entry that an assistant message carries in addition to the text of the answer. */
export type EntryMetadata = Omit<Entry, "question" | "answer">;

/**
 * A message of `useChat`. An assistant message has the metadata of its entry. A part of type `data-entry` is an earlier
 * entry of the chat that is missing from the messages, because another page asked the question or because the server
 * completed the answer after `stop`.
 */
export type ParleyMessage = UIMessage<EntryMetadata, { entry: Entry }>;

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
   * What the server does after `stop` or any other disconnect, such as a closed page. With `cancel`, the server ends
   * the model's request, stores nothing, and answers the next message at once. With `finish`, it completes and stores
   * the answer before it answers the next message. The server's setting is the default: `finish`, unless changed.
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
export const makeChatTransport = ({
  chatId,
  client,
  onDisconnect,
}: ChatTransportOptions): ChatTransport<ParleyMessage> => ({
  sendMessages: async ({ abortSignal, chatId: id, messages }) => {
    const userMessage = messages.findLast(({ role }) => role === "user");
    const query = userMessage === undefined ? "" : toText(userMessage);
    const lastEntry = messages.findLast(
      ({ metadata }) => metadata?.chat_id !== undefined,
    )?.metadata;
    const question = { chat_id: chatId ?? lastEntry?.chat_id, query };
    // An edited message keeps its id.
    const key = `${hash(JSON.stringify(question))}.${id}.${userMessage?.id}`;
    const idempotencyKey = encodeURIComponent(key).slice(0, 255);
    const options = { idempotencyKey, onDisconnect, signal: abortSignal };
    const events = client.stream(question, options)[Symbol.asyncIterator]();
    const shownIds = messages.flatMap(({ parts }) =>
      parts.flatMap((part) => (part.type === "data-entry" ? [part.data.id] : [])),
    );
    const readMissing = async (): Promise<ReadonlyArray<Entry>> => {
      if (question.chat_id === undefined) return [];
      const call = { signal: abortSignal };
      const { data } = await client.history(question.chat_id, { limit: 100 }, call).page();
      return data
        .toReversed()
        .filter(({ id }) => id > (lastEntry?.id ?? 0) && !shownIds.includes(id));
    };
    const chunks = toChunks({ [Symbol.asyncIterator]: () => events }, query, readMissing);
    return new ReadableStream({
      pull: async (controller) => {
        const { done, value } = await chunks.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      cancel: async () => {
        await events.return?.();
      },
    });
  },
  // There is no stream to rejoin. With `finish`, the server stores the completed answer, and the history includes it.
  reconnectToStream: () => Promise.resolve(null),
});

/** Converts the entries of a history, which must be oldest first, to the initial messages of `useChat`. */
export const toMessages = (entries: ReadonlyArray<Entry>): Array<ParleyMessage> =>
  entries.flatMap(({ answer, question, ...metadata }) => [
    // The hello message answers no question.
    ...(question === "" ? [] : [toMessage("user", `${metadata.id}-question`, question)]),
    { ...toMessage("assistant", `${metadata.id}`, answer), metadata },
  ]);

const toMessage = (role: "user" | "assistant", id: string, text: string): ParleyMessage => ({
  id,
  role,
  parts: [{ type: "text", text }],
});

const toText = ({ parts }: ParleyMessage): string =>
  parts.map((part) => (part.type === "text" ? part.text : "")).join("");

async function* toChunks(
  events: AsyncIterable<AnswerEvent>,
  query: string,
  readMissing: () => Promise<ReadonlyArray<Entry>>,
): AsyncGenerator<UIMessageChunk<EntryMetadata, { entry: Entry }>, void> {
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
        const { answer: _answer, question: _question, ...metadata } = event.entry;
        if (isOpen) yield { type: "text-end", id };
        for (const entry of candidates) if (entry.id !== metadata.id) yield toEntryPart(entry);
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
