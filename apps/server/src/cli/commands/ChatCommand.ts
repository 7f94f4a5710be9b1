import { ChatId } from "@parley/core";
import { Effect, Layer, Option, References, Stdio, Stream } from "effect";
import { Flag, GlobalFlag } from "effect/cli";
import { converse } from "../TerminalChat.ts";
import { onDatabase } from "../Database.ts";
import { makeCommand } from "../Declaration.ts";
import { CommandFailed } from "../CommandErrors.ts";
import { chatbotFlag, chatbotOf } from "../Flags.ts";
import { pluralize } from "../Output.ts";
import { makePrompt } from "../TerminalPrompt.ts";

/** Runs the core in this process. The store grants turns, so a server can answer in the same chat meanwhile. */
export const chat = makeCommand("chat", {
  description: "Talk to a chatbot: one question per line; answers appear as they arrive",
  examples: {
    "parley chat": "Start a chat with the only chatbot",
    "parley chat --chatbot Helpdesk --chat 17": "Continue a chat",
    'echo "How do I change the port?" | parley chat': "Print only the answer to standard output",
  },
  flags: {
    chatbot: chatbotFlag,
    chat: Flag.Int("chat").pipe(
      Flag.withSchema(ChatId),
      Flag.optional,
      Flag.withDescription("Id of a chat to continue (default: a new chat)"),
    ),
  },
  run: Effect.fnUntraced(function* ({ chat, chatbot: selector }) {
    // Loaded here, because most commands need no language models.
    const { layerAsking } = yield* Effect.promise(() => import("../../layers/AskingLayer.ts"));
    const { layerDocuments } = yield* Effect.promise(() => import("../../layers/Documents.ts"));
    const isTerminal = yield* Stdio.Stdio.use(({ stdinIsTerminal }) => stdinIsTerminal);
    const logLevel = yield* GlobalFlag.LogLevel;
    const failures = yield* Effect.gen(function* () {
      const { chatbot } = yield* chatbotOf(selector);
      const prompt = isTerminal ? yield* makePrompt : null;
      return yield* converse(chatbot, Option.getOrNull(chat), prompt);
    }).pipe(
      Effect.provide(Layer.provide(layerAsking, layerDocuments(Stream.empty))),
      // The conversation already prints each failure.
      Effect.provideService(
        References.MinimumLogLevel,
        Option.getOrElse(logLevel, () => "None" as const),
      ),
    );
    // On a terminal, the person saw each failure and could try again.
    if (failures === 0 || isTerminal) return;
    return yield* new CommandFailed({
      message: `${pluralize(failures, "ask")} failed.`,
      hint: "each error is printed in place of the answer.",
    });
  }, onDatabase),
});
