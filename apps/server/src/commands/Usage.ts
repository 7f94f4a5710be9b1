import { ChatArchive, earliestTime } from "@parley/core";
import { Clock, Effect, Option } from "effect";
import { Command, Flag } from "effect/cli";
import { onDatabase } from "../Database.ts";
import { jsonFlag, print, table } from "./Output.ts";
import { chatbotFlag, chatbotOf } from "./Subject.ts";
import { sinceFlag } from "./Times.ts";

export const usage = Command.make(
  "usage",
  {
    chatbot: chatbotFlag,
    since: sinceFlag("since").pipe(
      Flag.optional,
      Flag.withDescription("From when on; from the beginning without it"),
    ),
    json: jsonFlag,
  },
  ({ chatbot: wanted, json, since }) =>
    Effect.gen(function* () {
      const chatbot = yield* chatbotOf(wanted);
      const archive = yield* ChatArchive;
      const now = yield* Clock.currentTimeMillis;
      const from = Option.match(since, {
        onNone: () => earliestTime,
        onSome: (since) => since(now),
      });
      const sums = yield* archive.usage(chatbot.id, from);
      yield* print(json, sums, () =>
        table(
          ["PROVIDER", "MODEL", "ANSWERS", "ATTEMPTS", "PROMPT TOKENS", "COMPLETION TOKENS"],
          sums.map((sum) => [
            sum.provider,
            sum.model,
            sum.answers,
            sum.attempts,
            sum.promptTokens,
            sum.completionTokens,
          ]),
        ),
      );
    }).pipe(onDatabase),
).pipe(
  Command.withDescription("Sum what the answers of a chatbot cost, by provider and model"),
  Command.withExamples([
    { command: "parley usage --since 2026-11-01 --json", description: "Since November, as JSON" },
  ]),
);
