/**
 * What `ChatArchive` promises.
 */
import { Effect } from "effect";
import { ChatArchive } from "../ChatArchive.ts";
import type { ChatStore } from "../ChatStore.ts";
import type { TurnStore } from "../TurnStore.ts";
import { check, same, type Check } from "./Check.ts";
import { erasureChecks } from "./ErasureChecks.ts";
import { exportChecks } from "./ExportChecks.ts";
import { askLater, conversation, entry, newChatbot, usage } from "./Fixtures.ts";
import type { StoreUnderTest } from "./StoreUnderTest.ts";
import { watchedCheck } from "./Watched.ts";

export const chatArchiveChecks: ReadonlyArray<
  Check<ChatStore | TurnStore | ChatArchive | StoreUnderTest>
> = [
  ...erasureChecks,
  ...exportChecks,

  check(
    "usage is summed by provider and model since a time",
    Effect.fnUntraced(function* () {
      const archive = yield* ChatArchive;
      const chatbot = yield* newChatbot;
      yield* conversation(chatbot, [
        entry("a", { usage }),
        entry("b", { usage: { ...usage, model: "another" } }),
        entry("c", { usage }),
        entry("d"),
        ...["e", "f", "g"].map((question) =>
          entry(question, { usage: { ...usage, provider: "another" } }),
        ),
      ]);
      yield* conversation(yield* newChatbot, [entry("a", { usage })]);
      const { latencyMillis: _, ...one } = usage;
      // Pairs that are the same when they are put together.
      const mixed = yield* newChatbot;
      const pairs = ["/", ":", " ", ",", "-"].flatMap((sign) => [
        { provider: "a", model: `b${sign}c` },
        { provider: `a${sign}b`, model: "c" },
      ]);
      yield* conversation(
        mixed,
        pairs.map((pair) => entry("q", { usage: { ...usage, ...pair } })),
      );
      const apart = yield* archive.usage(mixed, new Date(0));
      yield* same("how many sums", apart.length, pairs.length);
      const sums = yield* archive.usage(chatbot, new Date(0));
      yield* same(
        "the sums",
        sums.toSorted((a, b) => a.answers - b.answers),
        [
          { ...one, model: "another", answers: 1 },
          { ...one, answers: 2, attempts: 4, promptTokens: 6, completionTokens: 10 },
          {
            ...one,
            provider: "another",
            answers: 3,
            attempts: 6,
            promptTokens: 9,
            completionTokens: 15,
          },
        ],
      );
      // Exact, also where there are very many.
      const dear = yield* newChatbot;
      const many = {
        promptTokens: 3_000_000_001,
        completionTokens: 2 ** 40 + 1,
        attempts: 2 ** 31 - 1,
      };
      yield* conversation(
        dear,
        ["a", "b", "c"].map((question) => entry(question, { usage: { ...usage, ...many } })),
      );
      const [sum] = yield* archive.usage(dear, new Date(0));
      yield* same(
        "very many",
        [sum?.promptTokens, sum?.completionTokens, sum?.attempts],
        [3 * many.promptTokens, 3 * many.completionTokens, 3 * many.attempts],
      );
      // By the time of the entry, not of its chat; the entry of that very time counts, too.
      const old = yield* newChatbot;
      const before = yield* conversation(old, [entry("old", { usage })]);
      const recent = entry("recent", { usage: { ...usage, model: "recent" } });
      const { createTime } = yield* askLater(
        old,
        before.chat.id,
        before.entries[0]!.createTime,
        recent,
      );
      const since = yield* archive.usage(old, createTime);
      yield* same(
        "the sums since a time",
        since.map(({ answers, model }) => [model, answers]),
        [["recent", 1]],
      );
      const never = new Date(8_000_000_000_000);
      yield* same("since never", yield* archive.usage(chatbot, never), []);
      const ever = new Date(-8_640_000_000_000_000);
      yield* same("since ever", yield* archive.usage(chatbot, ever), sums);
      const idle = archive.erase(chatbot, { _tag: "IdleSince", limit: ever });
      yield* same("idle for ever", yield* idle, 0);
    }),
  ),
].map(watchedCheck);
