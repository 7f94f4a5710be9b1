/**
 * A conversation through a client that was generated from the API description.
 */
import assert from "node:assert/strict";

interface Chat {
  readonly id: number;
  readonly userRef: string | null;
}
interface Entry {
  readonly id: number;
  readonly chat_id: number;
  readonly question: string;
  readonly answer: string;
  readonly flagged: boolean;
}

/** The calls of a generated client, whose own types must be assignable to these. */
export interface GeneratedClient {
  readonly createChat: (
    chat: { name: string; userRef: string },
    idempotencyKey: string,
  ) => Promise<Chat>;
  /** Ordered by two fields, the newest entry first. */
  readonly history: (
    chatId: number,
  ) => Promise<{ readonly data: ReadonlyArray<Entry>; readonly meta: { readonly total: number } }>;
  readonly ask: (chatId: number, query: string) => Promise<Entry>;
  /** The error message for a chat that does not exist. */
  readonly missing: (chatId: number) => Promise<string>;
  /** The path in the first error from an ask with an empty query. */
  readonly invalid: () => Promise<ReadonlyArray<string>>;
}

const { KEY, ORIGIN } = process.env;
export const key = KEY!;
export const origin = ORIGIN!;

/** Holds the conversation. The client's name is also the `userRef` of its chat, and its idempotency key. */
export const run = async (name: string, client: GeneratedClient): Promise<void> => {
  const chat = await client.createChat({ name: "First steps", userRef: name }, name);
  // A retry with the same idempotency key.
  assert.deepEqual(await client.createChat({ name: "First steps", userRef: name }, name), chat);

  const question = "How do I change the port?";
  const entry = await client.ask(chat.id, question);
  assert.deepEqual([entry.chat_id, entry.question, entry.flagged], [chat.id, question, false]);
  assert.match(entry.answer, /PARLEY_PORT/);
  const { data, meta } = await client.history(chat.id);
  assert.equal(meta.total, 2);
  assert.deepEqual(data[0], entry);

  assert.equal(await client.missing(chat.id + 1000), "CHAT_DOES_NOT_EXISTS");
  assert.deepEqual(await client.invalid(), ["query"]);
};
