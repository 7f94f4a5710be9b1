import { ChatArchive, earliestTime, TurnStore } from "@parley/core/ports";
import { Effect, Option } from "effect";
import { Flag } from "effect/cli";
import { onDatabase } from "../Database.ts";
import { makeCommand } from "../Declaration.ts";
import { chatbotFlag, chatbotOf, sinceFlag } from "../Flags.ts";
import { print, table } from "../Output.ts";

const noSum = {
  provider: null,
  model: null,
  answers: 0,
  attempts: 0,
  promptTokens: 0,
  completionTokens: 0,
};

export const usage = makeCommand("usage", {
  description: "Sum a chatbot's answers and tokens by provider and model",
  examples: {
    "parley usage --since 2026-11-01 --json": "Print the usage since November as JSON",
    "parley usage --by key --since 30d": "Sum the last 30 days by API key",
  },
  flags: {
    chatbot: chatbotFlag,
    since: sinceFlag("since", "Count answers since this time (default: all)"),
    by: Flag.ChoiceWithValue("by", [
      ["day", "day"],
      ["key", "key"],
      ["user-ref", "userRef"],
    ]).pipe(
      Flag.optional,
      Flag.withDescription("Also group by day (UTC), by API key, or by the chat's userRef"),
    ),
  },
  run: Effect.fnUntraced(function* ({ by, chatbot: selector, since }) {
    const { chatbot, keys } = yield* chatbotOf(selector);
    const archive = yield* ChatArchive;
    const from = since === undefined ? earliestTime : yield* since;
    const field = Option.getOrNull(by);
    const names = new Map(keys.map(({ id, name }) => [id, name]));
    const sums = yield* archive.usage(chatbot.id, from, field);
    // The tokens spent since midnight UTC, which is how budgets count them, regardless of `--since`.
    const budgets = new Map<string | null, { spentToday: number; tokensPerDay: number }>();
    for (const { id, tokensPerDay } of field === "key" ? keys : []) {
      if (tokensPerDay === null) continue;
      const { tokens } = yield* TurnStore.use((store) => store.spending(chatbot.id, id));
      budgets.set(id, { spentToday: tokens, tokensPerDay });
    }
    // Failed and cancelled asks, and answers before `--since`, count towards a budget but not towards a sum.
    const missingSums = [...budgets]
      .filter(([id, { spentToday }]) => spentToday > 0 && sums.every(({ group }) => group !== id))
      .map(([group]) => ({ ...noSum, group }));
    const rows = [...sums, ...missingSums].map(({ group, model, provider, ...counts }) => ({
      ...(field !== null && { [field]: group }),
      ...(field === "key" && { keyName: names.get(group ?? "") ?? null }),
      provider,
      model,
      ...counts,
      ...(budgets.size > 0 && (budgets.get(group) ?? { spentToday: null, tokensPerDay: null })),
    }));
    // Sorted by group, provider and model, with `null` last.
    const sortedRows = rows.toSorted((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));
    yield* print(
      sortedRows,
      table(sortedRows, Object.keys(sortedRows[0] ?? {})) || "There are no answers.",
    );
  }, onDatabase),
});
