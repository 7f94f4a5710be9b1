import { ChatArchive } from "@parley/core";
import { Console, Effect, Option } from "effect";
import { Command, Flag } from "effect/cli";
import { onDatabase } from "../Database.ts";
import { chatbotFlag, chatbotOf } from "./Subject.ts";

export const usage = Command.make(
  "usage",
  {
    chatbot: chatbotFlag,
    since: Flag.Date("since").pipe(
      Flag.optional,
      Flag.withDescription("From when on; from the beginning without it"),
    ),
    json: Flag.Boolean("json").pipe(
      Flag.withDefault(false),
      Flag.withDescription("Print JSON instead of a table"),
    ),
  },
  ({ chatbot: wanted, json, since }) =>
    Effect.gen(function* () {
      const chatbot = yield* chatbotOf(wanted);
      const archive = yield* ChatArchive;
      const sums = yield* archive.usage(
        chatbot.id,
        Option.getOrElse(since, () => new Date(0)),
      );
      yield* json ? Console.log(JSON.stringify(sums)) : Console.table(sums);
    }).pipe(onDatabase),
).pipe(
  Command.withDescription("Sum what the answers of a chatbot cost, by provider and model"),
  Command.withExamples([
    { command: "parley usage --since 2026-11-01 --json", description: "Since November, as JSON" },
  ]),
);
