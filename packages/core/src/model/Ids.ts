/**
 * The ids of chats and chatbots: numbers of distinct types, so that the compiler rejects one where the other is
 * expected. `make` validates a number from outside.
 */
import { Schema } from "effect";

export const ChatbotId = Schema.Int.pipe(Schema.brand("ChatbotId"));
export type ChatbotId = typeof ChatbotId.Type;

export const ChatId = Schema.Int.pipe(Schema.brand("ChatId"));
export type ChatId = typeof ChatId.Type;
