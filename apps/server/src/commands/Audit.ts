import { Administration } from "@parley/core";
import { Effect } from "effect";
import { Command, Flag } from "effect/cli";
import { onDatabase } from "../Database.ts";
import { jsonFlag, print, table } from "./Output.ts";

export const audit = Command.make(
  "audit",
  {
    limit: Flag.Int("limit").pipe(
      Flag.filter(
        (limit) => limit > 0,
        () => "Expected a number above 0",
      ),
      Flag.withDefault(50),
      Flag.withDescription("How many lines at most; 50 by default"),
    ),
    json: jsonFlag,
  },
  ({ json, limit }) =>
    Effect.gen(function* () {
      const administration = yield* Administration;
      const lines = yield* administration.audit(limit);
      const all = yield* administration.chatbots;
      const names = new Map(all.map(({ chatbot }) => [chatbot.id, chatbot.name]));
      const documents = lines.map(({ action, actor, chatbot, detail, time }) => ({
        time,
        actor,
        chatbot,
        chatbotName: names.get(chatbot) ?? null,
        action,
        detail,
      }));
      yield* print(json, documents, () =>
        table(
          ["TIME", "ACTOR", "CHATBOT", "ACTION", "DETAIL"],
          documents.map((line) => [
            line.time,
            line.actor,
            `${line.chatbot} ${line.chatbotName ?? ""}`,
            line.action,
            line.detail,
          ]),
        ),
      );
    }).pipe(onDatabase),
).pipe(
  Command.withDescription("Show who changed what of chatbots and keys, newest first"),
  Command.withExamples([
    { command: "parley audit --limit 10", description: "The last ten changes" },
    { command: "parley audit --limit 100000 --json", description: "For a program" },
  ]),
);
