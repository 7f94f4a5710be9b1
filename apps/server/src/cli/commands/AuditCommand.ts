import { Administration } from "@parley/core";
import { Effect, Option } from "effect";
import { Flag } from "effect/cli";
import { onDatabase } from "../Database.ts";
import { makeCommand } from "../Declaration.ts";
import { countFlag, textFlag } from "../Flags.ts";
import { print, table } from "../Output.ts";

export const audit = makeCommand("audit", {
  description: "Show the audit log: changes, imports, exports, erasures and reads, newest first",
  examples: {
    "parley audit --limit 10": "Show the last ten entries",
    "parley audit --user-ref user-7": "Show a user's exports, erasures and visitor tokens",
  },
  flags: {
    limit: countFlag("limit", 2 ** 31 - 1).pipe(
      Flag.withDefault(50),
      Flag.withDescription("Maximum number of entries (default: 50)"),
    ),
    userRef: textFlag("user-ref", "Only exports, erasures and visitor tokens for this userRef"),
  },
  run: Effect.fnUntraced(function* ({ limit, userRef }) {
    const administration = yield* Administration;
    const entries = yield* administration.audit(limit, Option.getOrUndefined(userRef));
    const registeredChatbots = yield* administration.chatbots;
    const names = new Map(registeredChatbots.map(({ chatbot }) => [chatbot.id, chatbot.name]));
    const documents = entries.map((entry) => ({
      ...entry,
      chatbotName: names.get(entry.chatbot) ?? null,
    }));
    yield* print(
      documents,
      table(documents, ["time", "actor", "chatbot", "chatbotName", "action", "detail"]),
    );
  }, onDatabase),
});
