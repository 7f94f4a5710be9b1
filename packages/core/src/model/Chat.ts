/**
 * A chat, and the fields that a client may set when it creates one.
 */
import { Schema } from "effect";
import type { ChatId } from "./Ids.ts";
import { ChatName, UserRef } from "./Text.ts";

/** A stored chat. Ids are positive, below 2^53, and ascend in order of creation within a chatbot. */
export interface Chat {
  readonly id: ChatId;
  readonly name: string | null;
  readonly userRef: string | null;
  /** Stored in whole milliseconds. */
  readonly createTime: Date;
  /** When the newest entry was created or, without an entry, the chat. Absent unless the reader asks for it. */
  readonly lastEntryTime?: Date;
  /** The number of entries. Absent unless the reader asks for it. */
  readonly entries?: number;
}

/** The fields of a chat to create. `null` means the same as an absent field. */
export const NewChat = Schema.Struct({
  name: Schema.optional(Schema.NullOr(ChatName)),
  userRef: Schema.optional(Schema.NullOr(UserRef)),
});
export type NewChat = typeof NewChat.Type;
