/**
 * Compares what is stored with what was asked for: promise by promise, nothing sampled.
 */
import { makeClient } from "./Client.ts";
import type { Everything } from "./Everything.ts";
import { readEverything } from "./Everything.ts";
import { dataBytes, type Entry, type Ledger } from "./Ledger.ts";
import type { Server } from "./Server.ts";
import { helloMessage, type Site } from "./Site.ts";
import { questionOf, send } from "./Traffic.ts";

export interface Audited {
  readonly chats: number;
  readonly entries: number;
  readonly acknowledged: number;
  /** Never acknowledged, and stored all the same. */
  readonly storedUnacknowledged: number;
  /** Never acknowledged, and not stored. */
  readonly lost: number;
  readonly violations: ReadonlyArray<string>;
}

/** How many keys are used once more before anything is read. */
const repeated = 60;

/** Uses the newest keys again: each must give the first answer, byte for byte, and make nothing. */
const repeat = async (site: Site, server: Server, ledger: Ledger) => {
  const violations: Array<string> = [];
  const client = makeClient(site.key);
  const keyed = ledger.requests.filter(
    ({ acknowledged, idempotencyKey }) => acknowledged !== null && idempotencyKey !== undefined,
  );
  for (const request of keyed.slice(-repeated)) {
    const answer = await send(client, server, request);
    if (answer?.status !== 201 || !answer.replayed) {
      violations.push(`${request.kind} ${request.token}: its key used again: ${answer?.text}`);
    } else if (dataBytes(answer.text) !== request.acknowledged) {
      violations.push(
        `${request.kind} ${request.token}: ${request.acknowledged} became ${answer.text}`,
      );
    }
  }
  client.close();
  return violations;
};

const isHello = ({ answer, flagged, moderation, question }: Entry): boolean =>
  question === "" && answer === helloMessage && moderation === "none" && !flagged;

const compare = (ledger: Ledger, { chats, entries }: Everything) => {
  const violations: Array<string> = [];
  let storedUnacknowledged = 0;
  let lost = 0;
  const chatsOf = Map.groupBy(chats, ({ name }) => name);
  const all = [...entries.values()].flat();
  const entriesOf = Map.groupBy(all, ({ question }) => question);
  const ids = new Set(all.map(({ id }) => id));
  if (ids.size !== all.length) violations.push("an entry's id is used twice");
  // One answer for all questions: what differs from it is not whole.
  const answer = ledger.requests.find(
    ({ acknowledged, kind }) => kind === "ask" && acknowledged !== null,
  );
  const whole = answer === undefined ? null : (JSON.parse(answer.acknowledged!) as Entry).answer;
  const explained = new Set<number>();
  const explainedChats = new Set<number>();

  for (const request of ledger.requests) {
    const { acknowledged, idempotencyKey, kind, token } = request;
    const wrong = (what: string) => violations.push(`${kind} ${token}: ${what}`);
    const rows =
      kind === "create" ? (chatsOf.get(token) ?? []) : (entriesOf.get(questionOf(token)) ?? []);
    if (rows.length > 1) wrong(`stored ${rows.length} times (key: ${idempotencyKey})`);
    if (acknowledged === null) {
      if (rows.length === 0) lost++;
      else storedUnacknowledged++;
    } else if (rows.length === 0) {
      wrong(`acknowledged as ${acknowledged}, but not stored`);
    } else if (JSON.stringify(rows[0]) !== acknowledged) {
      wrong(`acknowledged as ${acknowledged}, stored as ${JSON.stringify(rows[0])}`);
    }
    for (const row of rows) {
      if (kind === "create") {
        const history = entries.get(row.id) ?? [];
        explainedChats.add(row.id);
        if ((row as { userRef: unknown }).userRef !== request.userRef) wrong("another userRef");
        if (history[0] === undefined || !isHello(history[0])) wrong("no hello entry");
        else explained.add(history[0].id);
      } else {
        const entry = row as Entry;
        explained.add(entry.id);
        if (entry.answer !== whole || entry.moderation !== "none" || entry.flagged) {
          wrong(`not whole: ${JSON.stringify(entry)}`);
        }
        if (request.chatId === null) {
          explainedChats.add(entry.chat_id);
          if (entries.get(entry.chat_id)?.[0]?.id !== entry.id) wrong("not first in its new chat");
        } else if (entry.chat_id !== request.chatId) {
          wrong(`in chat ${entry.chat_id} instead of ${request.chatId}`);
        }
      }
    }
  }
  for (const chat of chats) {
    if (!explainedChats.has(chat.id)) violations.push(`nobody made ${JSON.stringify(chat)}`);
    for (const entry of entries.get(chat.id) ?? []) {
      if (entry.chat_id !== chat.id) violations.push(`${entry.id} is of another chat`);
      if (!explained.has(entry.id)) violations.push(`nobody asked ${JSON.stringify(entry)}`);
    }
  }
  return { violations, storedUnacknowledged, lost, entries: all.length };
};

/** Reads everything and compares; nothing may be written meanwhile. */
export const audit = async (site: Site, server: Server, ledger: Ledger): Promise<Audited> => {
  const repeats = await repeat(site, server, ledger);
  const everything = await readEverything(site, server);
  const compared = compare(ledger, everything);
  return {
    chats: everything.chats.length,
    entries: compared.entries,
    acknowledged: ledger.requests.filter(({ acknowledged }) => acknowledged !== null).length,
    storedUnacknowledged: compared.storedUnacknowledged,
    lost: compared.lost,
    violations: [
      ...ledger.violations,
      ...repeats,
      ...everything.violations,
      ...compared.violations,
    ],
  };
};
