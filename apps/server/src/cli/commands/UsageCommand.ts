import { ChatArchive, earliestTime } from "@parley/core";
import { Clock, Effect, Option } from "effect";
import { Command, Flag } from "effect/cli";
import { onDatabase } from "../Database.ts";
import { chatbotFlag, chatbotOf, jsonFlag, sinceFlag } from "../Flags.ts";
import { printTable } from "../Output.ts";

export const usage = Command.make(
  "usage",
  {
    chatbot: chatbotFlag,
    since: sinceFlag("since").pipe(
      Flag.optional,
      Flag.withDescription("Count answers since this time; all of them by default"),
    ),
    json: jsonFlag,
  },
  ({ chatbot: wanted, json, since }) =>
    Effect.gen(function* () {
      const chatbot = yield* chatbotOf(wanted);
      const archive = yield* ChatArchive;
      const now = yield* Clock.currentTimeMillis;
      const from = Option.match(since, { onNone: () => earliestTime, onSome: (at) => at(now) });
      yield* printTable(json, yield* archive.usage(chatbot.id, from), {
        PROVIDER: ({ provider }) => provider,
        MODEL: ({ model }) => model,
        ANSWERS: ({ answers }) => answers,
        ATTEMPTS: ({ attempts }) => attempts,
        "PROMPT TOKENS": ({ promptTokens }) => promptTokens,
        "COMPLETION TOKENS": ({ completionTokens }) => completionTokens,
      });
    }).pipe(onDatabase),
).pipe(
  Command.withDescription("Sum the tokens of a chatbot's answers, by provider and model"),
  Command.withExamples([
    { command: "parley usage --since 2026-11-01 --json", description: "Since November, as JSON" },
  ]),
);
