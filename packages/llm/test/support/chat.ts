import { assert } from "@effect/vitest";
import { ChatbotId, ChatId, type Chatbot, type Entry, defaultSettings } from "@parley/core";
import { type AnswerPart, type Usage, Answerer } from "@parley/core/ports";
import { Effect, Stream } from "effect";

export const chatbotWith = (instructions: string | null): Chatbot => ({
  id: ChatbotId.make(1),
  name: "Helper",
  description: "",
  workspaceName: "Workspace",
  settings: { ...defaultSettings, instructions },
});

export const entry = (id: number, question: string, answer: string): Entry => ({
  id,
  chatId: ChatId.make(1),
  question,
  answer,
  moderation: "none",
  flagged: false,
  createTime: new Date(id),
});

export const ask = (
  question: string,
  earlier: Stream.Stream<Entry> = Stream.empty,
  chatbot: Chatbot = chatbotWith(null),
) => Stream.unwrap(Answerer.useSync((answerer) => answerer.answer(chatbot, earlier, question)));

export const collect = (...args: Parameters<typeof ask>) => Stream.runCollect(ask(...args));

/** The text after the last restart. */
export const textOf = (parts: ReadonlyArray<AnswerPart>): string =>
  parts
    .slice(parts.findLastIndex(({ _tag }) => _tag === "Restart") + 1)
    .map((part) => (part._tag === "Delta" ? part.text : ""))
    .join("");

/** The answer as a single string. */
export const answerOf = (...args: Parameters<typeof ask>) => Effect.map(collect(...args), textOf);

export const usageOf = (parts: ReadonlyArray<AnswerPart>): Usage => {
  const last = parts.at(-1);
  assert(last?._tag === "Usage");
  return last.usage;
};
