import { Data, Effect, Layer, Option, References, Stdio, Stream } from "effect";
import { Command, Flag, GlobalFlag } from "effect/cli";
import { converse } from "../Conversation.ts";
import { onDatabase } from "../Database.ts";
import { chatbotFlag, chatbotOf } from "../Flags.ts";
import { makePrompt } from "../Prompt.ts";

export class NotAnswered extends Data.TaggedError("NotAnswered")<{ readonly message: string }> {}

/** Runs the core in this process. Beside a running server the store keeps the asks of a chat in turn. */
export const chat = Command.make(
  "chat",
  {
    chatbot: chatbotFlag,
    chat: Flag.Int("chat").pipe(
      Flag.optional,
      Flag.withDescription("The id of a chat to continue; without it a new chat begins"),
    ),
  },
  ({ chat, chatbot: wanted }) =>
    Effect.gen(function* () {
      // The other commands need no language models.
      const { layerAsking } = yield* Effect.promise(() => import("../../layers/Asking.ts"));
      const isTerminal = yield* Stdio.Stdio.use(({ stdinIsTerminal }) => stdinIsTerminal);
      const { layerDocuments } = yield* Effect.promise(() => import("../../layers/Documents.ts"));
      const logs = Option.isSome(yield* GlobalFlag.LogLevel);
      const failures = yield* Effect.gen(function* () {
        const chatbot = yield* chatbotOf(wanted);
        const prompt = isTerminal ? yield* makePrompt : null;
        return yield* converse(chatbot, Option.getOrNull(chat), prompt);
      }).pipe(
        Effect.provide(Layer.provide(layerAsking, layerDocuments(Stream.empty))),
        // The conversation prints each failure already.
        logs ? (same) => same : Effect.provideService(References.MinimumLogLevel, "None"),
        onDatabase,
      );
      // A person has tried again.
      if (failures === 0 || isTerminal) return;
      return yield* new NotAnswered({
        message: failures === 1 ? "One ask failed." : `${failures} asks failed.`,
      });
    }),
).pipe(
  Command.withDescription("Talk to a chatbot: a question a line, the answers as they arrive"),
  Command.withExamples([
    { command: "parley chat", description: "A new chat with the only chatbot" },
    { command: "parley chat --chatbot Helpdesk --chat 17", description: "Continue a chat" },
    {
      command: 'echo "How do I change the port?" | parley chat',
      description: "The answer alone on standard output; the chat's id on standard error",
    },
  ]),
);
