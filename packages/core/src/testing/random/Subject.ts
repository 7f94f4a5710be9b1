/**
 * Runs random commands on a store, and makes its results comparable with those of another store.
 */
import { Array as Arr, Clock, Effect, Stream, Struct } from "effect";
import { TestClock } from "effect/testing";
import { plainKey, type KeyRecord } from "../../model/ApiKey.ts";
import { defaultSettings } from "../../model/Chatbot.ts";
import { dayMillis, dayNumber } from "../../model/Day.ts";
import type { NewEntry } from "../../model/Entry.ts";
import { idempotencyKeyLifetime } from "../../model/IdempotencyKey.ts";
import { ChatbotId, ChatId } from "../../model/Ids.ts";
import type { ArchiveRecord, Erasable, UsageSum } from "../../ports/ChatArchive.ts";
import type { KeyChange } from "../../ports/ChatbotRegistry.ts";
import { turnLease, type Turn } from "../../ports/TurnStore.ts";
import { errorFields } from "../Check.ts";
import { instances } from "../Fixtures.ts";
import { StoreUnderTest, type Instance } from "../StoreUnderTest.ts";
import type { Command } from "./Commands.ts";

const highestId = Number.MAX_SAFE_INTEGER;

type Answer = Extract<Command, { readonly _tag: "Ask" | "AskTogether" }>;
type Registration = Extract<Command, { readonly _tag: "Register" }>;
type Since = Extract<Command, { readonly _tag: "Usage" }>["since"];
type Taking = Pick<Answer, "at" | "key">;

interface HeldTurn {
  readonly turn: Turn;
  readonly takenAt: number;
  /** Whether an append or a release may have counted its cost. */
  isSpent: boolean;
}

/**
 * Opens a store. Each call of the result starts a run, which begins with one chatbot, and returns a function that runs
 * a command, and the chatbots that it knows. With `isExact`, results contain times, because both stores read clocks
 * that show the same time; otherwise, the commands avoid what depends on the exact time.
 */
export const openSubject = Effect.fnUntraced(function* (isExact: boolean) {
  const under = yield* StoreUnderTest;
  const [first, second] = yield* instances;
  /** The highest id of a chat or entry so far. Imported ids are higher. */
  let highest = 0;

  return Effect.fnUntraced(function* (run: string) {
    const began = dayNumber(Date.now());
    const chatbots: Array<number> = [];
    const turns: Array<HeldTurn> = [];
    /** The ids of each chatbot's chats and entries, in order of first occurrence. A copy keeps its ids. */
    const idsByKind = new Map<string, Array<number>>();
    /** The times of all rows, and when the leases of all turns end. */
    const times = { row: [0], lease: [0] };
    /** Ids that a command made up. */
    const strangers = new Set<string>();
    /** How many milliseconds have passed, and the part that was not whole days. */
    let [elapsed, partial] = [0, 0];
    let hasSteppedBack = false;

    const idsOf = (kind: string, of: number) => {
      const name = `${kind} ${of}`;
      if (!idsByKind.has(name)) idsByKind.set(name, []);
      return idsByKind.get(name)!;
    };
    const place = (kind: "chat" | "entry" | "chatbot", of: number, id: number): string => {
      if (strangers.has(`${kind} ${id}`)) return `no ${kind}`;
      const ids = kind === "chatbot" ? chatbots : idsOf(kind, of);
      if (!ids.includes(id)) ids.push(id);
      if (kind !== "chatbot") highest = Math.max(highest, id);
      return `${kind} ${ids.indexOf(id)}`;
    };
    const idAt = (kind: "chat" | "entry", of: number, at: number): number => {
      const ids = idsOf(kind, of);
      const own = at < 9 ? ids.at(-1 - (at % Math.max(1, ids.length))) : undefined;
      if (own !== undefined) return own;
      // Ids are unique only within a chatbot.
      const foreign = chatbots
        .flatMap((other) => idsOf(kind, other))
        .find((id) => !ids.includes(id));
      const id = at === 9 ? (foreign ?? 0) : at === 10 ? 0 : highestId;
      strangers.add(`${kind} ${id}`);
      return id;
    };

    /** Makes a result comparable: numbers in place of ids; no times unless they are exact. */
    const plain = (value: unknown, of: number): unknown => {
      if (value instanceof Uint8Array) return `bytes ${value.join()}`;
      if (value instanceof Date) {
        const isFixed = value < new Date("2023-12-31") || value > new Date("2200-01-01");
        return isExact || isFixed ? value.getTime() : "time";
      }
      if (Array.isArray(value)) return value.map((item) => plain(item, of));
      if (typeof value !== "object" || value === null) return value;
      const fields = value instanceof Error ? errorFields(value) : value;
      return Object.fromEntries(
        Object.entries(fields).flatMap(([name, item]) => {
          const as = field(name, item, fields, of);
          return as === undefined ? [] : [[name, as]];
        }),
      );
    };
    const field = (name: string, item: unknown, among: object, of: number): unknown => {
      if (typeof item === "number") {
        const isChat = name === "chatId" || name === "chat" || "userRef" in among;
        if (name === "entryId" || (name === "id" && "question" in among))
          return place("entry", of, item);
        if (["chatId", "chat", "chatbot", "id"].includes(name))
          return place(isChat ? "chat" : "chatbot", of, item);
        if (!isExact && name === "nowMillis") return "now";
        if (!isExact && name.endsWith("Millis") && name !== "latencyMillis") return Math.sign(item);
      }
      if (name === "turnId" || (name === "id" && "newest" in among))
        return `turn ${turns.findIndex(({ turn }) => turn.id === item)}`;
      // Nothing is promised about the texts of reasons and causes.
      if (name === "reason" || name === "cause") return "";
      if (
        (name === "createTime" || name === "lastEntryTime") &&
        item instanceof Date &&
        !times.row.includes(item.getTime())
      )
        times.row.push(item.getTime());
      // Optional.
      if (name === "visitor" && item === null) return undefined;
      if (name === "detail" && typeof item === "string") {
        const detail = item.replace(/^chat (\d+)$/, (_, id) => place("chat", of, Number(id)));
        return isExact ? detail : detail.replace(/\d{4}-.*Z$/, "a time");
      }
      return plain(item, of);
    };

    const keyId = (key: number) => `${run} key ${key}`;
    const keyRecord = (key: number, more: KeyChange = {}): KeyRecord => ({
      ...plainKey,
      id: keyId(key),
      hash: new Uint8Array(64).fill(key).subarray(8, 40),
      scopes: ["read"],
      ...more,
    });
    const workspace = (name: string) => `${run} ${name}`;
    const idempotencyKey = (key: Answer["key"], endpoint: string, visitor: string | null) =>
      key && {
        key: visitor === null ? `key ${key.name}` : `key ${key.name}\n${visitor}`,
        // Two endpoints can get the same fingerprint.
        fingerprint: key.request === 0 ? endpoint : "same",
      };
    const entryOf = ({
      cost,
      ...command
    }: Answer | Extract<Command, { _tag: "Append" }>): NewEntry => ({
      ...Struct.pick(command, ["question", "answer", "moderation", "flagged", "usage", "metadata"]),
      ...(cost && { apiKeyId: keyId(cost.key), spentTokens: cost.tokens }),
    });
    /** The time that a command selects; without exact times, one that no command's duration changes. */
    const timeOf = (since: Since) => {
      if (since === null) return new Date("0001-01-01");
      if (!isExact) return new Date(since.row % 2 === 0 ? "1965-01-01" : "2200-01-02");
      const candidates = times[since.kind];
      const time = candidates.at(-1 - (since.row % candidates.length))!;
      const midnight = dayNumber(time) * dayMillis;
      const moments = {
        itself: time,
        after: time + 1,
        day: midnight,
        "next day": midnight + dayMillis,
      };
      return new Date(moments[since.moment]);
    };
    const isDayKnown = () =>
      isExact || (partial < dayMillis / 3 && began === dayNumber(Date.now()));
    const sorted = (sums: ReadonlyArray<UsageSum>) =>
      sums.toSorted((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));

    const register = (
      { registry }: Instance,
      chatbot: Registration["chatbot"],
      keys: Registration["keys"],
      actor: string,
    ) =>
      registry.create(
        {
          name: "a",
          description: "",
          ...chatbot,
          workspaceName: workspace(chatbot.workspaceName ?? "a"),
          settings: { ...defaultSettings, ...chatbot.settings },
          keys: keys.map((key) => keyRecord(key)),
        },
        actor,
      );
    let chatbot = (yield* register(first, {}, [0], "tester")).id;
    chatbots.push(chatbot);
    /** The chatbot whose ids the result of a command contains. */
    let concerned = chatbot;

    const take = (
      { turns: store }: Pick<Instance, "turns">,
      { at: { chat, visitor }, key }: Taking,
      chatId: ChatId | null,
    ) =>
      Effect.gen(function* () {
        const idempotency = idempotencyKey(key, `ask ${chat === null}`, visitor);
        const result = yield* store.take(chatbot, chatId, idempotency, visitor);
        if (result._tag !== "TurnTaken") return result;
        turns.push({ turn: result.turn, takenAt: elapsed, isSpent: false });
        // An erasure of idle chats also erases keys.
        times.lease.push((yield* Clock.currentTimeMillis) + turnLease);
        return result;
      });
    const takenChat = (chat: number | null) =>
      chat === null ? null : ChatId.make(idAt("chat", chatbot, chat));
    /** What the command does on an instance. */
    const perform = (
      command: Command,
      instance: Instance,
      other: Instance,
      now: number,
    ): Effect.Effect<unknown, unknown> => {
      const { archive, chats, directory, registry, turns: turnStore } = instance;
      const actor = `tester ${command.by}`;
      const onTurn = (at: number, act: (heldTurn: HeldTurn) => Effect.Effect<unknown, unknown>) => {
        const heldTurn = turns.at(-1 - (at % Math.max(1, turns.length)));
        if (heldTurn === undefined) return Effect.succeed("no turn");
        // From a day after the take, a store may forget the key and its turn at any time.
        if (
          heldTurn.turn.idempotencyKey !== null &&
          elapsed - heldTurn.takenAt >= idempotencyKeyLifetime
        )
          return Effect.succeed("an old turn");
        concerned = heldTurn.turn.chatbot;
        return act(heldTurn);
      };
      switch (command._tag) {
        case "Create": {
          const { chat, isVisitor, key } = command;
          const idempotency = idempotencyKey(key, "create", isVisitor ? chat.userRef : null);
          return chats.createChat(chatbot, chat, idempotency);
        }
        case "Take":
          return take(instance, command, takenChat(command.at.chat));
        case "TakeAndDie":
          return Effect.scoped(
            Effect.flatMap(under.open, (dying) => take(dying, command, takenChat(command.at.chat))),
          );
        case "Ask":
        case "AskTogether":
          return Effect.gen(function* () {
            const chat = takenChat(command.at.chat);
            const result = yield* take(instance, command, chat);
            if (result._tag !== "TurnTaken") return result;
            turns.at(-1)!.isSpent = true;
            const append = settle(turnStore.append(result.turn, entryOf(command)));
            if (command._tag === "Ask") return [result, yield* append];
            const wait = Effect.gen(function* () {
              for (let tries = 0; tries < 10; tries++) {
                const outcome = yield* take(other, command, chat);
                if (outcome._tag !== "Held") return outcome;
                yield* Effect.yieldNow;
              }
              return null;
            });
            const [own, early] = yield* Effect.all([append, wait], { concurrency: 2 });
            const late = early ?? (yield* take(other, command, chat));
            if (late._tag !== "TurnTaken") return [own, late];
            turns.at(-1)!.isSpent = true;
            return [own, late, yield* settle(other.turns.append(late.turn, entryOf(command)))];
          });
        case "Stop": {
          const { at, isWaiting, key } = command;
          const stopKey = idempotencyKey(key, `ask ${at.chat === null}`, at.visitor);
          if (stopKey === null) return Effect.succeed("no key");
          const waiting = isWaiting ? { ...stopKey, chatId: takenChat(at.chat) } : null;
          return turnStore.stop(chatbot, stopKey.key, waiting);
        }
        case "Append":
          return onTurn(command.turn, (heldTurn) =>
            Effect.tap(turnStore.append(heldTurn.turn, entryOf(command)), () =>
              Effect.sync(() => (heldTurn.isSpent = true)),
            ),
          );
        case "Renew":
          return onTurn(command.turn, ({ turn }) => turnStore.renew(turn));
        case "Release":
          return onTurn(command.turn, (heldTurn) => {
            const { by, cost } = command;
            // Whether a second release counts is left open.
            const isCounted = !heldTurn.isSpent && by !== "both";
            heldTurn.isSpent = true;
            const spent = cost && { apiKeyId: keyId(cost.key), tokens: cost.tokens ?? 0 };
            return turnStore.release(heldTurn.turn, isCounted ? spent : null);
          });
        case "Earlier":
          return onTurn(command.turn, ({ turn }) =>
            turnStore.earlier(turn, idAt("entry", turn.chatbot, command.entry)),
          );
        case "List": {
          // Without exact times, an order by `lastEntryTime` says nothing.
          const orderBy = Arr.map(command.query.orderBy, (by) =>
            isExact || by.field !== "lastEntryTime" ? by : { ...by, field: "id" as const },
          );
          const query = { ...command.query, orderBy, id: takenChat(command.id) };
          return chats.listChats(chatbot, query);
        }
        case "History": {
          const id = command.id === null ? null : idAt("entry", chatbot, command.id);
          const after = command.after === null ? null : idAt("entry", chatbot, command.after);
          const query = { ...command.query, after, id };
          return chats.listEntries(chatbot, takenChat(command.chat)!, query, command.visitor);
        }
        case "Rename": {
          const { name, visitor } = command;
          return chats.renameChat(chatbot, takenChat(command.chat)!, name, visitor);
        }
        case "Rate": {
          const entry = idAt("entry", chatbot, command.entry);
          const { feedback, visitor } = command;
          return chats.rateEntry(chatbot, takenChat(command.chat)!, entry, feedback, visitor);
        }
        case "DeleteChat": {
          // The place of the visitors' sum in the audit log depends on exact times.
          const visitor = isExact ? command.visitor : null;
          return archive.deleteChat(chatbot, takenChat(command.chat)!, actor, visitor);
        }
        case "Erase": {
          const { userRef } = command;
          const erasures = {
            Chat: { _tag: "Chat", id: takenChat(command.chat)! },
            UserRef: { _tag: "UserRef", userRef },
            IdleSince: { _tag: "IdleSince", limit: timeOf(command.since) },
            // Without exact times, this erases only imported chats.
            IdleFor: {
              _tag: "IdleFor",
              millis: isExact ? now - timeOf(command.since).getTime() : 20 * 365 * dayMillis,
            },
            All: { _tag: "All" },
          } satisfies Record<Erasable["_tag"], Erasable>;
          return archive.erase(chatbot, erasures[command.which], actor);
        }
        case "Export":
          return Stream.runCollect(archive.export(chatbot, actor, command.person ?? undefined));
        case "Copy": {
          const to = ChatbotId.make(chatbots.at(-1 - (command.to % chatbots.length))!);
          return Effect.gen(function* () {
            const records = yield* Stream.runCollect(archive.export(chatbot, actor));
            const count = yield* archive.import(to, Stream.fromIterable(records), actor);
            for (const kind of ["chat", "entry"])
              if (to !== chatbot) idsByKind.set(`${kind} ${to}`, [...idsOf(kind, chatbot)]);
            return count;
          });
        }
        case "Import": {
          const { chats, flaw } = command;
          const isSorted = flaw !== "times";
          let id = highest;
          // With this flaw, entries of different chats have the same ids.
          const twice = highest + 100;
          const entryId = (n: number) => (flaw === "ids" ? twice + n : ++id);
          const inOrder = <A extends { readonly time: Date }>(rows: ReadonlyArray<A>) =>
            isSorted ? rows.toSorted((a, b) => a.time.getTime() - b.time.getTime()) : rows;
          const records = inOrder(chats).flatMap(
            ({ entries, time, ...chat }): Array<ArchiveRecord> => {
              const chatId = ChatId.make(++id);
              const timeAfter = (own: Date) => (isSorted && own < time ? time : own);
              return [
                { _tag: "Chat", chat: { ...chat, id: chatId, createTime: timeAfter(time) } },
                ...inOrder(entries).map(({ time, usage, ...texts }, n): ArchiveRecord => ({
                  _tag: "Entry",
                  entry: { ...texts, id: entryId(n), chatId, createTime: timeAfter(time) },
                  usage,
                })),
              ];
            },
          );
          const end = flaw === "broken" ? Stream.fail({ _tag: "Broken" as const }) : Stream.empty;
          const source = Stream.concat(Stream.fromIterable(records), end);
          const enter = Effect.map(
            register(instance, { name: `import ${chatbots.length}` }, [], actor),
            (created) => void chatbots.push((chatbot = concerned = created.id)),
          );
          // The records make their ids known, if they are stored.
          return Effect.gen(function* () {
            if (command.isNew) yield* enter;
            const count = yield* archive.import(chatbot, source, actor);
            return [count, ...records.map((one) => (one._tag === "Chat" ? one.chat : one.entry))];
          });
        }
        case "Usage": {
          // Without exact times, a day may have passed in one store only.
          const by = isExact || command.group !== "day" ? command.group : null;
          const until = command.until && timeOf(command.until);
          const query = { since: timeOf(command.since), until, by };
          return Effect.map(archive.usage(chatbot, query), sorted);
        }
        case "Feedback": {
          const { kind, since } = command;
          return Stream.runCollect(archive.feedback(chatbot, timeOf(since), kind));
        }
        case "Spending":
          return Effect.map(turnStore.spending(chatbot, keyId(command.key)), (spending) =>
            isDayKnown() ? spending : "unknown",
          );
        case "Register":
          return register(instance, command.chatbot, command.keys, actor);
        case "Change": {
          const { workspaceName: name, ...change } = command.change;
          const renamed = name === undefined ? {} : { workspaceName: workspace(name) };
          return registry.change(chatbot, { ...change, ...renamed }, actor);
        }
        case "Delete":
          return registry.delete(chatbot, actor);
        case "AddKey":
          return registry.addKey(chatbot, keyRecord(command.key, command.fields), actor);
        case "ChangeKey":
          return registry.changeKey(chatbot, keyId(command.key), command.change, actor);
        case "RevokeKey":
          return registry.revokeKey(chatbot, keyId(command.key), actor);
        case "UseKeys":
          return directory.recordUse(command.keys.map(keyId));
        case "FindKey":
          return directory.find(keyId(command.key));
        case "ListChatbots":
          return Effect.map(
            Effect.all([registry.list, settle(registry.get(chatbot))]),
            ([all, own]) => [
              "success" in own ? (own.success as (typeof all)[number]).chatbot : own,
              ...all
                .filter((registered) => chatbots.includes(registered.chatbot.id))
                .map(({ chatbot, keys }) => ({
                  chatbot,
                  isOldestFirst:
                    !isExact ||
                    hasSteppedBack ||
                    keys.every((key, n) => n === 0 || key.createdAt >= keys[n - 1]!.createdAt),
                  keys: keys.toSorted((a, b) => (a.id < b.id ? -1 : 1)),
                })),
            ],
          );
        case "Audit":
          return Effect.map(registry.audit(command.limit), (lines) =>
            lines.filter((line) => chatbots.includes(line.chatbot)),
          );
        case "RecordRead":
          return registry.record(chatbot, "read", command.detail, actor);
        case "Pass": {
          const millis = isExact ? command.millis : looseSpan(command.millis);
          elapsed += millis;
          partial += millis % dayMillis;
          return under.pass(millis);
        }
        case "StepBack":
          if (!isExact) return Effect.void;
          hasSteppedBack = true;
          return TestClock.setTime(now - command.millis);
        case "Switch":
          chatbot = ChatbotId.make(chatbots.at(-1 - (command.chatbot % chatbots.length))!);
          return Effect.void;
      }
    };

    const answer = Effect.fnUntraced(function* (command: Command) {
      strangers.clear();
      concerned = chatbot;
      const now = yield* Clock.currentTimeMillis;
      const both = [first, second] as const;
      const [instance, other] = command.by === "second" ? [both[1], both[0]] : both;
      const once = settle(perform(command, instance, other, now));
      if (command.by !== "both") return plain(yield* once, concerned);
      const again = settle(perform(command, other, instance, now));
      const results = yield* Effect.all([once, again], { concurrency: 2 });
      // Which of the two was first does not matter.
      return plain(results.toSorted(byId), concerned);
    });
    return { answer, chatbots };
  });
});

/** Replaces a span of time by one that is clearly longer or shorter than each limit. */
const looseSpan = (millis: number): number =>
  [0, 3_500, 11_000, 46_800_000].find((_, n) => millis < [2_000, 10_000, 12_000, dayMillis][n]!) ??
  90_000_000;

type Settled = { readonly success: unknown } | { readonly failure: unknown };

const settle = Effect.match({
  onSuccess: (success: unknown): Settled => ({ success }),
  onFailure: (failure: unknown): Settled => ({ failure }),
});

/** Sorts the results of two concurrent calls: by the id of what was stored, failures last. */
const byId = (a: Settled, b: Settled): number => {
  const [x, y] = [a, b].map((result): number => {
    if ("failure" in result) return 1e16;
    type Row = { id?: number; chatId?: number; chat?: { id: number }; replayed?: boolean };
    const row = result.success as Row | null | undefined;
    return (row?.chat?.id ?? row?.chatId ?? row?.id ?? 0) + (row?.replayed === true ? 0.5 : 0);
  });
  return x! - y!;
};
