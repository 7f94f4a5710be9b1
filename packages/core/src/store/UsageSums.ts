/**
 * What answers cost, also those that have been erased.
 */
import { dayMillis, dayOf } from "../model/Day.ts";
import { hasQuestion, type Entry, type Usage } from "../model/Entry.ts";
import type { UsageQuery, UsageSum } from "../ports/ChatArchive.ts";

/** What answers of one UTC day, key and model that have been erased cost. It says nothing about texts or users. */
export interface ErasedUsage extends Omit<UsageSum, "group"> {
  /** Such as `2026-11-25`. */
  readonly day: string;
  readonly apiKeyId: string | null;
}

/** How many days a store keeps {@link ErasedUsage}. */
export const erasedUsageDays = 400;

interface CostlyRow {
  readonly entry: Entry;
  readonly usage: Usage | null;
  readonly apiKeyId: string | null;
  readonly userRef: string | null;
}

type Counted = Omit<ErasedUsage, "day" | "apiKeyId"> & { readonly group: string | null };

const noUsage = { provider: null, model: null, attempts: 0, promptTokens: 0, completionTokens: 0 };

/** Whether the report counts an entry: greetings, posts and flagged questions cost nothing. */
const isAnswer = ({ entry }: CostlyRow) => hasQuestion(entry) && !entry.flagged;

const toErased = ({ apiKeyId, entry, usage }: CostlyRow): ErasedUsage => {
  const { attempts, completionTokens, model, promptTokens, provider } = usage ?? noUsage;
  const cost = { provider, model, answers: 1, attempts, promptTokens, completionTokens };
  return { day: dayOf(entry.createTime), apiKeyId, ...cost };
};

/** Adds up rows that have the same `name`. */
const addUp = <A extends Omit<Counted, "group">>(
  rows: ReadonlyArray<A>,
  nameOf: (row: A) => ReadonlyArray<string | null>,
): ReadonlyArray<A> => {
  const sums = new Map<string, A>();
  for (const row of rows) {
    const name = JSON.stringify([...nameOf(row), row.provider, row.model]);
    const sum = sums.get(name);
    const total = (field: "answers" | "attempts" | "promptTokens" | "completionTokens") =>
      (sum?.[field] ?? 0) + row[field];
    sums.set(name, {
      ...row,
      answers: total("answers"),
      attempts: total("attempts"),
      promptTokens: total("promptTokens"),
      completionTokens: total("completionTokens"),
    });
  }
  return [...sums.values()];
};

/** Adds what these rows cost to what erased rows cost so far, and drops what is too old. */
export const eraseUsage = (
  before: ReadonlyArray<ErasedUsage>,
  rows: ReadonlyArray<CostlyRow>,
  now: number,
): ReadonlyArray<ErasedUsage> => {
  const oldest = dayOf(new Date(now - erasedUsageDays * dayMillis));
  const all = [...before, ...rows.filter(isAnswer).map(toErased)];
  return addUp(
    all.filter(({ day }) => day >= oldest),
    ({ apiKeyId, day }) => [day, apiKeyId],
  );
};

/** Adds up what the answers cost: see `ChatArchive.usage`. */
export const sumUsage = (
  rows: ReadonlyArray<CostlyRow>,
  erased: ReadonlyArray<ErasedUsage>,
  { by = null, since, until = null }: UsageQuery,
): ReadonlyArray<UsageSum> => {
  const grouped = ({ apiKeyId, day, ...sum }: ErasedUsage, userRef: string | null): Counted => ({
    group: by && { day, key: apiKeyId, userRef }[by],
    ...sum,
  });
  const { before, first } = daysOf({ since, until });
  return addUp(
    [
      ...rows
        .filter(isAnswer)
        .filter(({ entry: { createTime } }) => createTime >= since)
        .filter(({ entry: { createTime } }) => until === null || createTime < until)
        .map((row) => grouped(toErased(row), row.userRef)),
      ...erased
        .filter(({ day }) => day >= first && (before === null || day < before))
        .map((row) => grouped(row, null)),
    ],
    ({ group }) => [group],
  );
};

const lastMidnight = new Date("9999-12-31");

/** The first day that begins at this time or later. */
const nextDay = (time: Date) =>
  dayOf(new Date(Math.min(Math.ceil(time.getTime() / dayMillis) * dayMillis, +lastMidnight)));

/** The days that begin in the span of a query: the first one, and the one after the last. */
export const daysOf = ({ since, until = null }: UsageQuery) => ({
  first: nextDay(since),
  before: until && nextDay(until),
});
