import {
  Answerer,
  Asking,
  ChatbotRegistry,
  ChatStore,
  Moderator,
  type Ask,
  type Chatbot,
  type Entry,
  defaultSettings,
} from "@parley/core";
import { layerPostgres } from "@parley/store-pg";
import { Context, Effect, Exit, Layer, Redacted, Scope, Stream } from "effect";
import { Digest } from "effect/crypto";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { during } from "./Amount.ts";
import { makeDatabase, type Database } from "./Database.ts";
import type { AskToKill, KilledAsks, Moment } from "./KilledAsks.ts";

/** A turn that is not renewed lasts so long, in milliseconds. */
const lease = 10_000;

/** Entries of an existing chat: more than a turn brings along. */
const oldEntries = 25;

const pieces = ["A whole ", "answer."] as const;
const notAllowed = "That is not allowed.";
const program = fileURLToPath(new URL("KilledAsks.ts", import.meta.url));

/** The signals come in the middle of statements, which would be over too soon. */
const slow = `
create function slow() returns trigger language plpgsql as $$
begin perform pg_sleep(0.002); return coalesce(new, old); end $$;
create trigger slow before insert or update or delete on request for each row execute function slow();
create trigger slow before insert on entry for each row execute function slow();
create trigger slow before insert or update on chat for each row execute function slow()`;

let database: Database;
let chatbot: Chatbot;
/** Of another process than those that are killed. */
let other: Context.Context<Asking | ChatStore>;
/** What the other's model was told, by question. */
const told = new Map<string, ReadonlyArray<Entry>>();
const scope = Scope.makeUnsafe();
/** Compiled code, so that the processes start sooner. */
let cache: string;

beforeAll(async () => {
  cache = await mkdtemp(join(tmpdir(), "parley-faults-"));
  database = await makeDatabase(inject("postgresUrl"));
  const store = layerPostgres({ url: Redacted.make(database.url), maxConnections: 4 });
  const answerer = Layer.succeed(
    Answerer,
    Answerer.of({
      answer: (_, earlier, question) =>
        Stream.unwrap(
          Effect.map(Stream.runCollect(earlier), (entries) => {
            told.set(question, entries);
            return Stream.make({ _tag: "Delta" as const, text: pieces.join("") });
          }),
        ),
    }),
  );
  const moderator = Layer.succeed(
    Moderator,
    Moderator.of({
      check: (_, question) => {
        const flagged = question.startsWith("flagged");
        return Effect.succeed({ category: flagged ? "test" : "none", flagged });
      },
    }),
  );
  const layer = Asking.layer.pipe(
    Layer.provide([answerer, moderator, Digest.layerWebCrypto]),
    Layer.provideMerge(store),
  );
  const context = await Effect.runPromise(Scope.provide(Layer.build(layer), scope));
  other = context;
  for (const statement of slow.split(/;\n(?=create)/)) await database.rows(statement);
  chatbot = await Effect.runPromise(
    Context.get(context, ChatbotRegistry).create(
      {
        workspaceName: "Faults",
        name: "Faults bot",
        description: "",
        settings: { ...defaultSettings, moderationErrorMessage: notAllowed },
        keys: [],
      },
      "test",
    ),
  );
}, 120_000);

afterAll(async () => {
  await Effect.runPromise(Scope.close(scope, Exit.void));
  await database.remove();
  await rm(cache, { recursive: true, force: true });
});

const count = async (statement: string, values: ReadonlyArray<unknown> = []): Promise<number> => {
  const [row] = await database.rows<{ readonly n: bigint }>(statement, values);
  return Number(row!.n);
};

/** Makes a chat with entries. */
const newChat = async (): Promise<number> => {
  const { chat } = await Effect.runPromise(
    Context.get(other, ChatStore).createChat(
      chatbot.id,
      { name: null, userRef: null, helloMessage: null },
      null,
    ),
  );
  await database.rows(
    `with made as (
      insert into entry (chatbot_id, chat_id, id, position, question, answer, moderation, flagged, create_time)
      select chatbot_id, chat.id, nextval('entry_id'), n, 'old ' || n, 'Old ' || n, 'none', false, create_time
      from chat, generate_series(1, $2::int8) n where chat.id = $1::int8
    )
    update chat set entries = $2::int8, last_entry_time = create_time where id = $1::int8`,
    [chat.id, oldEntries],
  );
  return chat.id;
};

/** Starts the program; `ended` gives what it wrote, and whether it was killed. */
const start = (asks: ReadonlyArray<AskToKill>, moment: Moment | null) => {
  const order: KilledAsks = { url: database.url, chatbot, asks, moment, pieces };
  const child = spawn(process.execPath, [program], {
    env: {
      PATH: process.env["PATH"],
      KILLED_ASKS: JSON.stringify(order),
      // Written by the one that is not killed.
      NODE_COMPILE_CACHE: cache,
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  let errors = "";
  child.stdout.setEncoding("utf8").on("data", (chunk: string) => (output += chunk));
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => (errors += chunk));
  const ended = once(child, "close").then(([code, signal]) => {
    if (signal === null && code !== 0) throw new Error(`${output}\n${errors}`);
    const written = output.split("\n").slice(0, -1);
    const ports = written.filter((line) => line.startsWith("port "));
    return {
      lines: written.filter((line) => !ports.includes(line)),
      ports: ports.map((line) => line.slice(5)),
      killed: signal === "SIGKILL",
    };
  });
  return { child, ended };
};

const run = (asks: ReadonlyArray<AskToKill>, moment: Moment | null) => start(asks, moment).ended;

/** Waits until a process is stopped, or fails. */
const isStopped = async ({ exitCode, pid }: ChildProcess): Promise<void> => {
  for (let n = 0; n < 3000 && exitCode === null; n++) {
    const state = /^\d+ \(.*\) (\S)/.exec(await readFile(`/proc/${pid}/stat`, "utf8"))?.[1];
    if (state === "T") return;
    await sleep(10);
  }
  throw new Error("The process did not stop.");
};

interface Stored {
  readonly id: bigint;
  readonly chat_id: bigint;
  readonly answer: string;
  readonly moderation: string;
  readonly flagged: boolean;
  readonly provider: string | null;
}

const storedOf = (question: string) =>
  database.rows<Stored>(
    `select id, chat_id, answer, moderation, flagged, provider from entry where question = $1`,
    [question],
  );

/** No chat is half there: its counts are those of its rows, and without an entry there is none. */
const expectWhole = async () => {
  const wrong = await database.rows(
    `select id, entries, (select json_agg(position order by position) from entry where entry.chat_id = chat.id)
    from chat where entries = 0 or entries <> (
      select count(*) from entry where entry.chat_id = chat.id and position between 1 and entries)`,
  );
  expect(wrong).toEqual([]);
  expect(await count("select count(*) - (select chats from tally) as n from chat")).toBe(0);
  const dangling = await database.rows(
    `select key from request where entry_id is not null and not exists (
      select from entry where entry.id = request.entry_id and entry.chat_id = request.chat_id)`,
  );
  expect(dangling).toEqual([]);
};

interface Kind {
  readonly where: "existing" | "new";
  readonly keyed: boolean;
  readonly fate: AskToKill["fate"];
}

/** The asks of each killed process. */
const kinds: ReadonlyArray<Kind> = [
  { where: "existing", keyed: true, fate: "answered" },
  { where: "new", keyed: true, fate: "answered" },
  { where: "existing", keyed: false, fate: "answered" },
  { where: "new", keyed: false, fate: "answered" },
  { where: "existing", keyed: true, fate: "flagged" },
  { where: "new", keyed: true, fate: "flagged" },
  { where: "existing", keyed: true, fate: "failed" },
  { where: "existing", keyed: false, fate: "failed" },
  { where: "new", keyed: true, fate: "failed" },
  { where: "existing", keyed: true, fate: "crowded" },
  { where: "existing", keyed: false, fate: "crowded" },
];

let asked = 0;

const newAsk = async ({ fate, keyed, where }: Kind): Promise<AskToKill> => {
  const question = `${fate} ${++asked}`;
  const chatId = where === "new" ? null : await newChat();
  if (fate === "crowded") {
    await database.rows(
      `update chat set turn = 'another', turn_until = clock_timestamp() + interval '10 s'
      where id = $1::int8`,
      [chatId],
    );
  }
  return {
    chatId,
    question,
    key: keyed ? question : null,
    fate,
  };
};

/** By each port call: the kinds of asks that make it. */
const callers = new Map<string, Array<Kind>>();

const askOther = (chatId: number | null, question: string, key: string | null) =>
  Effect.runPromise(
    Context.get(other, Asking).ask(chatbot, { chatId, question, key } as unknown as Ask),
  );

/** How many entries an ask may have left behind. */
const possible = ({ fate }: AskToKill, { call, side }: Moment): ReadonlyArray<number> => {
  if (fate === "failed" || fate === "crowded") return [0];
  // The kill may come late, when there is much else to do.
  if (side === "during") return [0, 1];
  return call === "append" && side === "after" ? [1] : [0];
};

/**
 * Checks what an ask of a killed process has left behind, and that its chat and its key go on. With
 * `patience` the lease of its turn is waited for; else it is moved, only to save time.
 */
const examine = async (ask: AskToKill, moment: Moment, patience: boolean) => {
  const { chatId, fate, key, question } = ask;
  const what = `${question}, ${moment.side} ${moment.call}, chat ${chatId}, key ${key}`;
  const stored = await storedOf(question);
  expect(possible(ask, moment), what).toContain(stored.length);
  for (const { answer, flagged, moderation, provider } of stored) {
    expect({ answer, flagged, moderation, provider }, what).toEqual(
      fate === "flagged"
        ? { answer: notAllowed, flagged: true, moderation: "test", provider: null }
        : { answer: pieces.join(""), flagged: false, moderation: "none", provider: "test" },
    );
  }
  const held = await count(
    `select greatest(0,
      (select extract(epoch from turn_until - clock_timestamp()) from chat
        where id = $1::int8 and turn is not null),
      (select extract(epoch from turn_until - clock_timestamp()) from request
        where key = $2 and entry_id is null))::float8 as n`,
    [chatId, key],
  );
  expect(held * 1000, what).toBeLessThanOrEqual(lease);
  if (!patience) {
    const end = "turn_until = clock_timestamp()";
    await database.rows(`update chat set ${end} where id = $1::int8`, [chatId]);
    await database.rows(`update request set ${end} where key = $1 and entry_id is null`, [key]);
  }

  const began = performance.now();
  if (key !== null) {
    const first = await askOther(chatId, question, key);
    expect(first.replayed, what).toBe(stored.length === 1);
    expect(told.has(question), what).toBe(stored.length === 0 && fate !== "flagged");
    expect(await askOther(chatId, question, key), what).toEqual({
      entry: first.entry,
      replayed: true,
    });
    const rows = await storedOf(question);
    expect(
      rows.map(({ chat_id, id }) => ({ id: Number(id), chatId: Number(chat_id) })),
      what,
    ).toEqual([{ id: first.entry.id, chatId: first.entry.chatId }]);
    if (stored.length === 1) expect(rows, what).toEqual(stored);
  }
  if (chatId !== null) {
    const next = await askOther(chatId, `after ${question}`, null);
    expect(next.entry.chatId, what).toBe(chatId);
    const before = await storedOf(question);
    expect(before, what).toHaveLength(key === null ? stored.length : 1);
    // What was lost is no part of the prompt, and what was stored is.
    const visible = told.get(`after ${question}`)!.map((entry) => entry.question);
    expect(visible, what).toEqual([
      ...(fate === "flagged" ? [] : before.map(() => question)),
      ...Array.from({ length: oldEntries }, (_, at) => `old ${oldEntries - at}`),
    ]);
    const entries = await count("select entries as n from chat where id = $1::int8", [chatId]);
    expect(entries, what).toBe(oldEntries + before.length + 1);
  }
  const waited = performance.now() - began;
  expect(waited, what).toBeLessThan((patience ? lease : 0) + 5_000);
  return { stored: stored.length, waited };
};

/** Waits until the database has done what a killed process had asked of it, by these ports. */
const settled = async (ports: ReadonlyArray<string>): Promise<void> => {
  for (let n = 0; n < 2000; n++) {
    const open = await count(
      `select count(*) as n from pg_stat_activity
      where datname = current_database() and client_port = any(string_to_array($1, ',')::int4[])`,
      [ports.join(",")],
    );
    if (open === 0) return;
    await sleep(5);
  }
  throw new Error("The database does not come to rest.");
};

const killAt = async (moment: Moment, patience: boolean) => {
  const asks = await Promise.all(callers.get(moment.call)!.map(newAsk));
  const { killed, lines, ports } = await run(asks, moment);
  expect(ports.length).toBeGreaterThan(0);
  // In the middle of the calls they may all have been over.
  if (moment.side !== "during") {
    expect(killed, `${moment.side} ${moment.call}: ${lines.join("\n")}`).toBe(true);
  }
  await settled(ports);
  const found = await Promise.all(asks.map((ask) => examine(ask, moment, patience)));
  if (patience) {
    const longest = Math.max(...found.map(({ waited }) => waited));
    console.log(
      `${moment.side} ${moment.call}: asked again and answered ${longest.toFixed(0)} ms after kill -9`,
    );
  }
  const stored = found.filter((one) => one.stored > 0).length;
  return { asks: asks.length, killed, stored };
};

/** Processes at once, of each test. */
const width = 2;

test("which port calls an ask makes", async () => {
  const asks = await Promise.all(kinds.map(newAsk));
  const { killed, lines } = await run(asks, null);
  expect(killed).toBe(false);
  for (const line of lines) {
    const [, at, call] = /^(\d+) (.*)$/.exec(line)!;
    const kind = kinds[Number(at)]!;
    if (!call!.startsWith("ended: ")) {
      callers.set(call!, [...(callers.get(call!) ?? []), kind]);
    } else if (kind.fate === "failed") expect(call).toContain("AnswerUnavailable");
    else if (kind.fate === "crowded") expect(call).toContain("Overloaded");
    else expect(call).toBe("ended: stored");
  }
  const number = Object.fromEntries([...callers].map(([call, { length }]) => [call, length]));
  expect(number).toEqual({
    take: 11,
    check: 9,
    answer: 7,
    earlier: 4,
    renew: 7,
    "first piece": 4,
    "last piece": 4,
    usage: 4,
    "end of the answer": 7,
    append: 6,
    release: 3,
    leave: 2,
  });
});

test.concurrent.for(["before", "during", "after"] as const)(
  "kill -9 %s each port call of an ask leaves a whole entry or none, and the next ask works",
  { timeout: 600_000 },
  async (side) => {
    const calls =
      side === "during" ? ["take", "renew", "append", "release", "leave"] : [...callers.keys()];
    const queue = calls.flatMap((call) => {
      const repeats = side !== "during" ? 1 : call === "append" ? 3 * during : during;
      return Array.from({ length: repeats }, (_, n): Moment => {
        const millis = 0.5 + (20 * n) / repeats;
        return { call, side, millis, signal: "SIGKILL" };
      });
    });
    const counts = { processes: 0, killed: 0, asks: 0, stored: 0 };
    await Promise.all(
      Array.from({ length: width }, async () => {
        for (let moment = queue.shift(); moment !== undefined; moment = queue.shift()) {
          const patience = side === "after" && moment.call === "take";
          const { asks, killed, stored } = await killAt(moment, patience);
          counts.processes++;
          counts.asks += asks;
          counts.stored += stored;
          if (killed) counts.killed++;
        }
      }),
    );
    console.log(`${side}: ${JSON.stringify(counts)}`);
  },
);

/** What becomes of an ask that was stopped while another server took its turn and its key. */
const outcomeOf = (ask: AskToKill, { call, side }: Moment): RegExp => {
  const begins = call === "take" && side === "before";
  // It may have come back while it still had patience, and found the chat free.
  if (ask.fate === "crowded") return call === "take" ? /^stored$|Overloaded/ : /Overloaded/;
  if (ask.fate === "failed" && (ask.key === null || !begins)) return /AnswerUnavailable/;
  // Its turn began later, nobody else could take it, or it was over.
  const holds = begins || (ask.chatId === null && ask.key === null);
  if (holds || (call === "append" && side === "after")) return /^stored$/;
  return /the turn was lost/;
};

test.concurrent.for(["before", "after"] as const)(
  "SIGSTOP %s each call of an ask's store: another answers, and the late one stores nothing",
  { timeout: 600_000 },
  async (side) => {
    for (const call of ["take", "renew", "append", "release", "leave"]) {
      const moment: Moment = { call, side, millis: 0, signal: "SIGSTOP" };
      const asks = await Promise.all(callers.get(call)!.map(newAsk));
      const { child, ended } = start(asks, moment);
      try {
        await isStopped(child);
        await Promise.all(asks.map((ask) => examine(ask, moment, false)));
        const before = await Promise.all(asks.map(({ question }) => storedOf(question)));
        child.kill("SIGCONT");
        const { lines } = await ended;
        for (const [at, ask] of asks.entries()) {
          const what = `${ask.question}, ${side} ${call}, chat ${ask.chatId}, key ${ask.key}`;
          const prefix = `${at} ended: `;
          const outcome = lines.find((line) => line.startsWith(prefix))!.slice(prefix.length);
          expect(outcome, what).toMatch(outcomeOf(ask, moment));
          const rows = await storedOf(ask.question);
          expect(rows.slice(0, before[at]!.length), what).toEqual(before[at]);
          const stores = ask.key === null && outcome === "stored";
          expect(rows, what).toHaveLength(ask.key !== null || stores ? 1 : 0);
          if (ask.key === null) continue;
          const again = await askOther(ask.chatId, ask.question, ask.key);
          expect([again.replayed, again.entry.id], what).toEqual([true, Number(rows[0]!.id)]);
        }
      } finally {
        child.kill("SIGKILL");
      }
    }
  },
);

test("after all that no chat is half there", () => expectWhole());
