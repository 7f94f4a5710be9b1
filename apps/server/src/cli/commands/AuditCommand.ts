import { Administration } from "@parley/core";
import { Effect } from "effect";
import { Flag } from "effect/cli";
import { onDatabase } from "../Database.ts";
import { makeCommand } from "../Declaration.ts";
import { countFlag } from "../Flags.ts";
import { print, table } from "../Output.ts";

export const audit = makeCommand("audit", {
  description: "Show the changes of chatbots and keys with their actors, newest first",
  examples: {
    "parley audit --limit 10": "The last ten changes",
    "parley audit --limit 100000 --json": "For a program",
  },
  flags: {
    limit: countFlag("limit", 2 ** 31 - 1).pipe(
      Flag.withDefault(50),
      Flag.withDescription("How many lines at most; 50 by default"),
    ),
  },
  run: Effect.fnUntraced(function* ({ limit }) {
    const administration = yield* Administration;
    const lines = yield* administration.audit(limit);
    const registered = yield* administration.chatbots;
    const names = new Map(registered.map(({ chatbot }) => [chatbot.id, chatbot.name]));
    const documents = lines.map((line) => ({
      ...line,
      chatbotName: names.get(line.chatbot) ?? null,
    }));
    yield* print(
      documents,
      table(documents, ["time", "actor", "chatbot", "chatbotName", "action", "detail"]),
    );
  }, onDatabase),
});
