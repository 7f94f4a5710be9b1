import {
  ChatArchive,
  earliestTime,
  TurnStore,
  type RegisteredChatbot,
  type UsageQuery,
} from "@parley/core/ports";
import { Effect, Option } from "effect";
import { Flag } from "effect/cli";
import { onDatabase } from "../Database.ts";
import { makeCommand } from "../Declaration.ts";
import { usageError } from "../CommandErrors.ts";
import { chatbotFlag, chatbotsOf, sinceFlag } from "../Flags.ts";
import { type Cell, print, table } from "../Output.ts";

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
    "parley usage --from 2026-11-01 --until 2026-12-01 --json": "Print November's usage as JSON",
    "parley usage --by key --from 30d": "Sum the last 30 days by API key",
    "parley usage --workspace Acme --by day": "Sum each chatbot of a workspace by day",
  },
  flags: {
    chatbot: chatbotFlag,
    workspace: Flag.String("workspace").pipe(
      Flag.optional,
      Flag.withDescription("Every chatbot of this workspace, in place of --chatbot"),
    ),
    since: sinceFlag("from", "Count answers from this time (default: all)"),
    until: sinceFlag("until", "Count answers before this time (default: all)"),
    by: Flag.ChoiceWithValue("by", [
      ["day", "day"],
      ["key", "key"],
      ["user-ref", "userRef"],
    ]).pipe(
      Flag.optional,
      Flag.withDescription("Also group by day (UTC), by API key, or by the chat's userRef"),
    ),
  },
  run: Effect.fnUntraced(function* ({ by, chatbot: selector, since, until, workspace }) {
    const query = {
      since: since === undefined ? earliestTime : yield* since,
      until: until === undefined ? null : yield* until,
      by: Option.getOrNull(by),
    };
    const isWorkspace = Option.isSome(workspace);
    if (isWorkspace && Option.isSome(selector))
      return yield* usageError(
        "--workspace and --chatbot exclude each other.",
        "leave out one of them.",
      );
    const chatbots = yield* chatbotsOf(workspace, selector);
    const rows = yield* Effect.forEach(chatbots, (registered) =>
      Effect.map(usageOf(registered, query), (own) =>
        isWorkspace ? own.map((row) => ({ chatbot: registered.chatbot.name, ...row })) : own,
      ),
    );
    const all: ReadonlyArray<Row> = rows.flat();
    yield* print(all, table(all, Object.keys(all[0] ?? {})) || "There are no answers.");
  }, onDatabase),
});

type Row = Readonly<Record<string, Cell>>;

/** Returns a chatbot's sums, sorted by group, provider and model, with `null` last. */
const usageOf = Effect.fnUntraced(function* (
  { chatbot, keys }: RegisteredChatbot,
  query: UsageQuery,
) {
  const { by } = query;
  const names = new Map(keys.map(({ id, name }) => [id, name]));
  const sums = yield* ChatArchive.use((archive) => archive.usage(chatbot.id, query));
  // The tokens spent since midnight UTC, which is how budgets count them, regardless of `--from`.
  const budgets = new Map<string | null, { spentToday: number; tokensPerDay: number }>();
  for (const { id, tokensPerDay } of by === "key" ? keys : []) {
    if (tokensPerDay === null) continue;
    const { tokens } = yield* TurnStore.use((store) => store.spending(chatbot.id, id));
    budgets.set(id, { spentToday: tokens, tokensPerDay });
  }
  // Failed and cancelled asks, and answers before `--from`, count towards a budget but not towards a sum.
  const missingSums = [...budgets]
    .filter(([id, { spentToday }]) => spentToday > 0 && sums.every(({ group }) => group !== id))
    .map(([group]) => ({ ...noSum, group }));
  return [...sums, ...missingSums]
    .map(({ group, model, provider, ...counts }): Row => ({
      ...(by != null && { [by]: group }),
      ...(by === "key" && { keyName: names.get(group ?? "") ?? null }),
      provider,
      model,
      ...counts,
      ...(budgets.size > 0 && (budgets.get(group) ?? { spentToday: null, tokensPerDay: null })),
    }))
    .toSorted((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));
});
