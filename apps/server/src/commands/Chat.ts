import { Data, Effect, Option, References } from "effect";
import { Command, Flag, GlobalFlag } from "effect/cli";
import { onDatabase } from "../Database.ts";
import { chatbotFlag } from "./Subject.ts";

export class NotAnswered extends Data.TaggedError("NotAnswered")<{ readonly message: string }> {}

export const chat = Command.make(
  "chat",
  {
    chatbot: chatbotFlag,
    chat: Flag.Int("chat").pipe(
      Flag.optional,
      Flag.withDescription("The id of a chat to continue; without it a new chat begins"),
    ),
  },
  ({ chat, chatbot }) =>
    Effect.gen(function* () {
      const isTold = Option.isSome(yield* GlobalFlag.LogLevel);
      // Loaded only now: the other commands need no language models.
      const conversation = yield* Effect.promise(() => import("../chat/Chat.ts"));
      const failures = yield* conversation.chat(chatbot, Option.getOrNull(chat)).pipe(
        // What an ask fails by is told once, where the answer would have been.
        isTold ? (same) => same : Effect.provideService(References.MinimumLogLevel, "None"),
        onDatabase,
      );
      if (failures === 0) return;
      return yield* new NotAnswered({
        message: failures === 1 ? "One ask failed." : `${failures} asks failed.`,
      });
    }),
).pipe(
  Command.withDescription("Talk to a chatbot: a question a line, the answers as they come"),
  Command.withExamples([
    { command: "parley chat", description: "A new chat with the only chatbot" },
    { command: "parley chat --chatbot Helpdesk --chat 17", description: "Go on with a chat" },
    {
      command: 'echo "How do I change the port?" | parley chat',
      description: "The answer alone on standard output; the chat's id on standard error",
    },
  ]),
);
