/**
 * A chat and what a client may say when it creates one (sections 2.2 and 4.2).
 */
import { Schema } from "effect";
import { ChatName, UserRef } from "./Text.ts";

/** A stored chat. Ids are positive, below 2^53, and ascend in order of creation. */
export interface Chat {
  readonly id: number;
  readonly name: string | null;
  readonly userRef: string | null;
  /** Whole milliseconds. */
  readonly createTime: Date;
}

/** A chat to create; an absent field and `null` mean the same. */
export const NewChat = Schema.Struct({
  name: Schema.optional(Schema.NullOr(ChatName)),
  userRef: Schema.optional(Schema.NullOr(UserRef)),
});
export type NewChat = typeof NewChat.Type;
