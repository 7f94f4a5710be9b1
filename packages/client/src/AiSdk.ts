/**
 * `@parley/client/ai-sdk`: the client as a transport for `useChat` of the AI SDK, in a browser or behind a route
 * handler.
 */
import type { ChatTransport, UIMessage, UIMessageChunk } from "ai";
import type { AnswerEvent, AskOptions, Client, Entry } from "./Interface.ts";

/** The fields of an entry that an assistant's message carries in addition to the answer's text. */
export type EntryMetadata = Omit<Entry, "question" | "answer">;

/**
 * A message of `useChat`; an assistant's has the metadata of its entry. A part of the type `data-entry` is an earlier
 * entry of the chat that is missing from the messages: another page asked its question, or the server completed it
 * after `stop`.
 */
export type ParleyMessage = UIMessage<EntryMetadata, { entry: Entry }>;

/** Options of {@link makeChatTransport}. */
export interface ChatTransportOptions {
  readonly client: Client;
  /**
   * The chat to ask in. Without it, the metadata of the last answer names the chat, and the first question creates one;
   * if its answer is stopped, the next question creates another. A route handler must set it, because a browser can
   * send any metadata.
   */
  readonly chatId?: number | undefined;
  /**
   * The effect of `stop` and of any other disconnect, such as a closed page. `cancel`: the server ends the model's
   * request and stores nothing, and the next message is answered at once. `finish`: the server completes and stores the
   * answer before it answers the next message. By default the server decides: `finish`, unless its setting was changed.
   */
  readonly onDisconnect?: AskOptions["onDisconnect"];
}

/**
 * A transport that asks the question in the user's last message. Each message has an idempotency key: `regenerate`
 * repeats a question that failed, and returns the stored answer of one that succeeded. The metadata of the assistant's
 * message is that of its entry. If the API key may read, up to 100 entries that are missing from the messages arrive
 * with the answer. A failure arrives as the SDK's error, with the message of the client's error, such as
 * `CHAT_DOES_NOT_EXISTS`.
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
  // There is no stream to rejoin: with `finish`, the server completes and stores the answer, and the history has it.
  reconnectToStream: () => Promise.resolve(null),
});

/** The entries of a history, which must be oldest first, as the first messages of `useChat`. */
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
        // By now all entries before that of this ask are stored.
        for (const entry of await readMissing().catch(() => [])) {
          // The entry of this ask may be among them, if the ask repeats a stored answer.
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
