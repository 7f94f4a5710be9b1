import { Data, Effect, Option, References, Stdio, Stream } from "effect";
import { Command, Flag, GlobalFlag } from "effect/cli";
import { onDatabase } from "../Database.ts";
import { chatbotFlag, chatbotOf } from "../Flags.ts";
import { converse } from "./chat/Conversation.ts";
import { fromPipe, fromTerminal } from "./chat/Questions.ts";

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
      const { stdinIsTerminal } = yield* Stdio.Stdio;
      const logs = Option.isSome(yield* GlobalFlag.LogLevel);
      const failures = yield* Effect.gen(function* () {
        const chatbot = yield* chatbotOf(wanted);
        const questions = yield* (yield* stdinIsTerminal)
          ? // Standard output may be a file.
            fromTerminal(process.stdin, process.stderr)
          : fromPipe;
        const failures = yield* converse(chatbot, Option.getOrNull(chat), questions);
        return questions.fromPerson ? 0 : failures;
      }).pipe(
        Effect.provide(layerAsking(Stream.empty)),
        // The conversation prints each failure already.
        logs ? (same) => same : Effect.provideService(References.MinimumLogLevel, "None"),
        onDatabase,
      );
      if (failures === 0) return;
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
