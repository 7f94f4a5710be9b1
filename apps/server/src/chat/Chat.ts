/**
 * What `parley chat` does: the core in this process, over the store and the answerer of the settings. Beside
 * a running server the store keeps the asks of a chat in turn.
 */
import { Asking, Chats } from "@parley/core";
import { Effect, Layer, Stdio, Stream, type Option } from "effect";
import { layerAnswerer } from "../AnswererOf.ts";
import { ChatbotDocuments } from "../ChatbotDocuments.ts";
import { chatbotOf } from "../commands/Subject.ts";
import { layerLimits } from "../Limits.ts";
import { layerModerator } from "../ModeratorOf.ts";
import { layerNodeDigest } from "../NodeDigest.ts";
import { converse } from "./Conversation.ts";
import { fromPipe, fromTerminal } from "./Questions.ts";

const layerCore = Layer.mergeAll(Asking.layer, Chats.layer).pipe(
  Layer.provide([layerAnswerer, layerModerator, layerNodeDigest]),
  Layer.provide(ChatbotDocuments.layer(Stream.empty)),
  Layer.provide(layerLimits),
);

/** Gives how many asks failed of those that nobody could try again. */
export const chat = Effect.fnUntraced(function* (
  wanted: Option.Option<string>,
  chatId: number | null,
) {
  const chatbot = yield* chatbotOf(wanted);
  const { stdinIsTerminal } = yield* Stdio.Stdio;
  const questions = yield* (yield* stdinIsTerminal)
    ? // Not standard output, which may be a file.
      fromTerminal(process.stdin, process.stderr)
    : fromPipe;
  const failures = yield* converse(chatbot, chatId, questions);
  return questions.fromPerson ? 0 : failures;
}, Effect.provide(layerCore));
