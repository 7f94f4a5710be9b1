import { Administration } from "@parley/core";
import { Effect } from "effect";
import { Command, Flag } from "effect/cli";
import { onDatabase } from "../Database.ts";
import { countFlag, jsonFlag } from "../Flags.ts";
import { printTable } from "../Output.ts";

export const audit = Command.make(
  "audit",
  {
    limit: countFlag("limit").pipe(
      Flag.withDefault(50),
      Flag.withDescription("How many lines at most; 50 by default"),
    ),
    json: jsonFlag,
  },
  ({ json, limit }) =>
    Effect.gen(function* () {
      const administration = yield* Administration;
      const lines = yield* administration.audit(limit);
      const registered = yield* administration.chatbots;
      const names = new Map(registered.map(({ chatbot }) => [chatbot.id, chatbot.name]));
      const documents = lines.map(({ action, actor, chatbot, detail, time }) => ({
        time,
        actor,
        chatbot,
        chatbotName: names.get(chatbot) ?? null,
        action,
        detail,
      }));
      yield* printTable(json, documents, {
        TIME: ({ time }) => time,
        ACTOR: ({ actor }) => actor,
        CHATBOT: ({ chatbot, chatbotName }) => `${chatbot} ${chatbotName ?? ""}`,
        ACTION: ({ action }) => action,
        DETAIL: ({ detail }) => detail,
      });
    }).pipe(onDatabase),
).pipe(
  Command.withDescription("Show the changes of chatbots and keys with their actors, newest first"),
  Command.withExamples([
    { command: "parley audit --limit 10", description: "The last ten changes" },
    { command: "parley audit --limit 100000 --json", description: "For a program" },
  ]),
);
