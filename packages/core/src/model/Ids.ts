/**
 * The ids of chats and chatbots: numbers, of which one does not compile in the place of the other. `make` checks a
 * number from outside.
 */
import { Schema } from "effect";

export const ChatbotId = Schema.Int.pipe(Schema.brand("ChatbotId"));
export type ChatbotId = typeof ChatbotId.Type;

export const ChatId = Schema.Int.pipe(Schema.brand("ChatId"));
export type ChatId = typeof ChatId.Type;
