/**
 * The titles of chats.
 */
import { signal } from "@preact/signals";
import { hasQuestion, type Chat } from "@parley/client";
import { session } from "./ChatSession.ts";
import { translate } from "./words.ts";

/** The first questions of unnamed chats, by chat id; empty while a question is being read, or if the chat has none. */
const questions = signal<ReadonlyMap<number, string>>(new Map());

export const titleOf = ({ id, name }: Pick<Chat, "id" | "name">): string =>
  name?.trim() || questions.value.get(id) || translate("Chat {}", id);

/** Reads the first question of an unnamed chat. If the read fails, the title remains the chat's id. */
export const nameChat = async ({ id, name }: Pick<Chat, "id" | "name">): Promise<void> => {
  if (name?.trim() || questions.peek().get(id)) return;
  const keep = (text: string) => (questions.value = new Map(questions.peek()).set(id, text));
  keep("");
  // The first entry may be the hello message.
  const entries = session.client.history(id, { limit: 2, orderBy: "id" });
  const { data } = await entries.page().catch(() => ({ data: [] }));
  keep(data.find(hasQuestion)?.question ?? "");
};
