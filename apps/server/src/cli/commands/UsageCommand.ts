import { ChatArchive, earliestTime, type UsageSum } from "@parley/core";
import { Clock, Effect, Option } from "effect";
import { Command, Flag } from "effect/cli";
import { onDatabase } from "../Database.ts";
import { chatbotFlag, jsonFlag, registeredChatbotOf, sinceFlag } from "../Flags.ts";
import { printTable, type Columns } from "../Output.ts";

const groups = { day: "day", key: "key", "user-ref": "userRef" } as const;

const columns: Columns<Omit<UsageSum, "group">> = {
  PROVIDER: ({ provider }) => provider,
  MODEL: ({ model }) => model,
  ANSWERS: ({ answers }) => answers,
  ATTEMPTS: ({ attempts }) => attempts,
  "PROMPT TOKENS": ({ promptTokens }) => promptTokens,
  "COMPLETION TOKENS": ({ completionTokens }) => completionTokens,
};

/** By group, provider and model, entries without a group last. */
const inOrder = (a: UsageSum, b: UsageSum) => {
  const [first, second] = [a, b].map(({ group, model, provider }) =>
    JSON.stringify([group === null, group, provider, model]),
  );
  return first! < second! ? -1 : 1;
};

export const usage = Command.make(
  "usage",
  {
    chatbot: chatbotFlag,
    since: sinceFlag("since").pipe(
      Flag.optional,
      Flag.withDescription("Count answers since this time; all of them by default"),
    ),
    by: Flag.Literals("by", ["day", "key", "user-ref"]).pipe(
      Flag.optional,
      Flag.withDescription("Sum by day in UTC, by API key, or by userRef of the chat, too"),
    ),
    json: jsonFlag,
  },
  ({ by, chatbot: wanted, json, since }) =>
    Effect.gen(function* () {
      const { chatbot, keys } = yield* registeredChatbotOf(wanted);
      const archive = yield* ChatArchive;
      const now = yield* Clock.currentTimeMillis;
      const from = Option.match(since, { onNone: () => earliestTime, onSome: (at) => at(now) });
      const flag = Option.getOrNull(by);
      const field = flag === null ? null : groups[flag];
      const sums = (yield* archive.usage(chatbot.id, from, field)).toSorted(inOrder);
      const rows = sums.map(({ group, ...sum }) =>
        field === null ? sum : { [field]: group, ...sum },
      );
      const nameOf = (id: string) => keys.find((key) => key.id === id)?.name ?? "";
      const shown = (group: string | null) =>
        group === null || field !== "key" ? group : `prl_${group} ${nameOf(group)}`;
      yield* json
        ? printTable(json, rows, {})
        : printTable(json, sums, {
            ...(flag !== null && {
              [flag.replace("-", " ").toUpperCase()]: ({ group }: UsageSum) => shown(group),
            }),
            ...columns,
          });
    }).pipe(onDatabase),
).pipe(
  Command.withDescription("Sum the tokens of a chatbot's answers, by provider and model"),
  Command.withExamples([
    { command: "parley usage --since 2026-11-01 --json", description: "Since November, as JSON" },
    { command: "parley usage --by key --since 30d", description: "Which key cost how much" },
  ]),
);
