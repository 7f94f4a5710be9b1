import { ChatArchive, earliestTime } from "@parley/core/ports";
import { Effect, Option, Stream } from "effect";
import { Flag } from "effect/cli";
import { usageError } from "../CommandErrors.ts";
import { onDatabase, recordRead } from "../Database.ts";
import { makeCommand } from "../Declaration.ts";
import { chatbotFlag, chatbotOf, countFlag, sinceFlag, switchFlag } from "../Flags.ts";
import { details, print, table } from "../Output.ts";

const groups = ["day", "model", "key"] as const;

export const feedback = makeCommand("feedback", {
  description: "Count the ratings of a chatbot's entries, or list what to improve",
  examples: {
    "parley feedback --since 30d --by model": "Count the ratings of the last 30 days by model",
    "parley feedback --bad": "List the newest entries with a bad rating, with users' texts",
    "parley feedback --unanswered --json":
      "Print the newest questions to which the documents had no answer as JSON",
  },
  flags: {
    chatbot: chatbotFlag,
    since: sinceFlag("since", "Only entries created since this time (default: all)"),
    by: Flag.Literals("by", groups).pipe(
      Flag.optional,
      Flag.withDescription(
        "Group by day (UTC), by model or by API key alone (default: by all three)",
      ),
    ),
    bad: switchFlag("bad", "List entries with a bad rating: question, answer and comment"),
    unanswered: switchFlag("unanswered", "List entries for which the documents had nothing"),
    limit: countFlag("limit", 10_000).pipe(
      Flag.withDefault(25),
      Flag.withDescription("How many entries to list, newest first (default: 25)"),
    ),
  },
  run: Effect.fnUntraced(function* ({ bad, by, chatbot: selector, limit, since, unanswered }) {
    if (bad && unanswered)
      return yield* usageError(
        "Give only one of --bad and --unanswered.",
        "each prints a list of its own.",
      );
    const { chatbot, keys } = yield* chatbotOf(selector);
    const from = since === undefined ? earliestTime : yield* since;
    const archive = yield* ChatArchive;
    const rows = archive.feedback(chatbot.id, from, unanswered ? "unanswered" : "rated");
    if (bad || unanswered) {
      yield* recordRead(chatbot.id, bad ? "entries rated bad" : "unanswered questions");
      const entries = yield* rows.pipe(
        Stream.filter(({ entry }) => unanswered || entry.rating === "bad"),
        Stream.take(limit),
        Stream.map(({ apiKeyId, entry, requestId, usage }) => ({
          chat: entry.chatId,
          id: entry.id,
          createTime: entry.createTime,
          model: usage?.model ?? null,
          key: apiKeyId,
          requestId,
          rating: entry.rating ?? null,
          question: entry.question,
          answer: entry.answer,
          comment: entry.comment ?? null,
        })),
        Stream.runCollect,
      );
      const texts = entries.map((entry) => details(Object.entries(entry)));
      return yield* print(entries, texts.join("\n\n") || "There are no such entries.");
    }
    const names = new Map(keys.map(({ id, name }) => [id, name]));
    const fields = Option.match(by, { onNone: () => groups, onSome: (field) => [field] });
    const countsByGroup = new Map<string, { good: number; bad: number }>();
    yield* Stream.runForEach(rows, ({ apiKeyId, entry, usage }) =>
      Effect.sync(() => {
        const day = entry.createTime.toISOString().slice(0, 10);
        const values = { day, model: usage?.model ?? null, key: apiKeyId };
        const group = JSON.stringify(fields.map((field) => values[field]));
        const counts = countsByGroup.get(group) ?? { good: 0, bad: 0 };
        counts[entry.rating!]++;
        countsByGroup.set(group, counts);
      }),
    );
    // Sorted by the fields, with `null` last.
    const sums = [...countsByGroup].toSorted(([a], [b]) => (a < b ? -1 : 1));
    const counts = sums.map(([group, counts]) => {
      const values: ReadonlyArray<string | null> = JSON.parse(group);
      const named = Object.fromEntries(fields.map((field, index) => [field, values[index]!]));
      const keyName = names.get(named["key"] ?? "") ?? null;
      return { ...named, ...("key" in named && { keyName }), ...counts };
    });
    yield* print(counts, table(counts, Object.keys(counts[0] ?? {})) || "There are no ratings.");
  }, onDatabase),
});
