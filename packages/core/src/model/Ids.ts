/**
 * The ids of chats and chatbots: numbers with separate types, so that the compiler refuses one in place of the other.
 * `make` checks a number from outside.
 */
import { Schema } from "effect";

export const ChatbotId = Schema.Int.pipe(Schema.brand("ChatbotId"));
export type ChatbotId = typeof ChatbotId.Type;

export const ChatId = Schema.Int.pipe(Schema.brand("ChatId"));
export type ChatId = typeof ChatId.Type;
