/**
 * Runs random commands on a store, and makes its results comparable with those of another store.
 */
import { Clock, Effect, Stream } from "effect";
import { TestClock } from "effect/testing";
import { plainKey, type KeyRecord } from "../../model/ApiKey.ts";
import { defaultSettings } from "../../model/Chatbot.ts";
import type { NewEntry, Usage } from "../../model/Entry.ts";
import { idempotencyKeyLifetime, type IdempotencyKey } from "../../model/IdempotencyKey.ts";
import { ChatbotId, ChatId } from "../../model/Ids.ts";
import {
  chatFields,
  defaultChatQuery,
  defaultEntryQuery,
  type ListQuery,
} from "../../model/ListQuery.ts";
import type { ArchiveRecord, Erasable, UsageSum } from "../../ports/ChatArchive.ts";
import type { ChatbotChange, KeyChange } from "../../ports/ChatbotRegistry.ts";
import { ChatArchive } from "../../ports/ChatArchive.ts";
import { ChatbotDirectory } from "../../ports/ChatbotDirectory.ts";
import { ChatbotRegistry } from "../../ports/ChatbotRegistry.ts";
import { ChatStore } from "../../ports/ChatStore.ts";
import { TurnStore, type Turn } from "../../ports/TurnStore.ts";
import { errorFields } from "../Check.ts";
import { StoreUnderTest, type Instance } from "../StoreUnderTest.ts";
import type { Command } from "./Commands.ts";

const highestId = Number.MAX_SAFE_INTEGER;
const day = 86_400_000;
const epoch = new Date(-60 * 365 * day);
const actor = "tester";

type Answer = Extract<Command, { readonly _tag: "Ask" }>;
type Taking = Pick<Answer, "chat" | "key" | "visitor">;

/**
 * Opens a store. Each call of the result starts a run, which begins with one chatbot, and returns a function that runs a
 * command. With `isExact`, results contain times, because both stores read clocks that show the same time; otherwise,
 * the commands avoid what depends on the exact time.
 */
export const openSubject = Effect.fnUntraced(function* (isExact: boolean) {
  const under = yield* StoreUnderTest;
  const first: Instance = {
    chats: yield* ChatStore,
    turns: yield* TurnStore,
    archive: yield* ChatArchive,
    directory: yield* ChatbotDirectory,
    registry: yield* ChatbotRegistry,
  };
  /** The highest id of a chat or entry so far. Imported ids are higher. */
  let highest = 0;

  return Effect.fnUntraced(function* (run: string) {
    const began = Math.floor(Date.now() / day);
    const chatbots: Array<number> = [];
    const turns: Array<{ readonly turn: Turn; readonly takenAt: number; isSpent: boolean }> = [];
    /** The ids of each chatbot's chats and entries, in order of first occurrence. A copy keeps its ids. */
    const known = new Map<string, Array<number>>();
    /** Ids that a command made up. */
    const strangers = new Set<string>();
    /** How many milliseconds have passed, and the part that was not whole days. */
    let [elapsed, partial] = [0, 0];
    let hasSteppedBack = false;

    const idsOf = (kind: string, of: number) => {
      const name = `${kind} ${of}`;
      if (!known.has(name)) known.set(name, []);
      return known.get(name)!;
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
        const isFixed = value < new Date("1990-01-02") || value > new Date("2200-01-01");
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
        if (name === "chatId" || name === "chat") return place("chat", of, item);
        if (name === "chatbot") return place("chatbot", of, item);
        if (name === "id" && "question" in among) return place("entry", of, item);
        if (name === "id" && "userRef" in among) return place("chat", of, item);
        if (name === "id") return place("chatbot", of, item);
        if (!isExact && name === "nowMillis") return "now";
        if (!isExact && name.endsWith("Millis") && name !== "latencyMillis") return Math.sign(item);
      }
      if (name === "turnId" || (name === "id" && "newest" in among))
        return `turn ${turns.findIndex(({ turn }) => turn.id === item)}`;
      // Nothing is promised about the texts of reasons and causes.
      if (name === "reason" || name === "cause") return "";
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
      hash: new Uint8Array(32).fill(key),
      scopes: ["read"],
      ...more,
    });
    const keyFields = ({
      expiresAt,
      ...more
    }: Extract<Command, { _tag: "ChangeKey" }>["change"]): KeyChange => ({
      ...more,
      ...(expiresAt !== undefined && {
        expiresAt: expiresAt === null ? null : new Date(expiresAt),
      }),
    });
    const workspace = (name: string) => `${run} ${name}`;
    const idempotencyKey = (
      key: Answer["key"],
      endpoint: string,
      visitor: string | null,
    ): IdempotencyKey | null =>
      key && {
        key: visitor === null ? `key ${key.name}` : `key ${key.name}\n${visitor}`,
        fingerprint: `${endpoint} ${key.request}`,
      };
    const usageOf = (usage: Answer["usage"]): Usage | null =>
      usage && {
        provider: usage.provider,
        model: usage.model,
        promptTokens: usage.tokens,
        completionTokens: usage.tokens + 1,
        attempts: usage.attempts,
        latencyMillis: 7,
      };
    const texts = ({
      answer,
      flagged,
      moderation,
      question,
    }: Pick<Answer, "answer" | "flagged" | "moderation" | "question">) => ({
      question,
      answer,
      moderation,
      flagged,
    });
    const entryOf = (
      command: Omit<Answer, "_tag" | "chat" | "key" | "visitor" | "by">,
    ): NewEntry => ({
      ...texts(command),
      usage: usageOf(command.usage),
      ...(command.cost && { apiKeyId: keyId(command.cost.key), spentTokens: command.cost.tokens }),
    });
    /** The time that many milliseconds ago; without exact times, any time that is before or after all others. */
    const ago = (millis: number, now: number) =>
      new Date(
        isExact ? now - millis : millis > day ? -5 * 365 * day + millis / 1e9 : "2200-01-01",
      );
    /** Without exact times, one that does not depend on how long a command takes. */
    const inExact = <Field extends string>(orderBy: ListQuery<Field>["orderBy"]) =>
      isExact
        ? orderBy
        : (orderBy.toSorted(
            (a, b) => Number(a.field === "createTime") - Number(b.field === "createTime"),
          ) as unknown as typeof orderBy);
    const isDayKnown = () =>
      isExact || (partial < day / 3 && began === Math.floor(Date.now() / day));
    const sorted = (sums: ReadonlyArray<UsageSum>) =>
      sums.toSorted((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));

    const created = yield* first.registry.create(
      {
        workspaceName: workspace("a"),
        name: "a",
        description: "",
        settings: defaultSettings,
        keys: [keyRecord(0)],
      },
      actor,
    );
    chatbots.push(created.id);
    let chatbot = created.id;
    /** The chatbot whose ids the result of a command contains. */
    let concerned = chatbot;

    const take = (
      { turns: store }: Pick<Instance, "turns">,
      { chat, key, visitor }: Taking,
      at: ChatId | null,
    ) =>
      Effect.tap(
        store.take(chatbot, at, idempotencyKey(key, `ask ${chat === null}`, visitor), visitor),
        (result) =>
          Effect.sync(() => {
            if (result._tag === "TurnTaken")
              turns.push({ turn: result.turn, takenAt: elapsed, isSpent: false });
          }),
      );
    const takenChat = (chat: number | null) =>
      chat === null ? null : ChatId.make(idAt("chat", chatbot, chat));
    const listOf = ({ registry }: Instance) =>
      Effect.map(registry.list, (all) =>
        all
          .filter((registered) => chatbots.includes(registered.chatbot.id))
          .map(({ chatbot, keys }) => ({
            chatbot,
            isOldestFirst:
              !isExact ||
              hasSteppedBack ||
              keys.every((key, n) => n === 0 || key.createdAt >= keys[n - 1]!.createdAt),
            keys: keys.toSorted((a, b) => (a.id < b.id ? -1 : 1)),
          })),
      );
    const auditOf = ({ registry }: Instance, limit: number) =>
      Effect.map(registry.audit(limit), (lines) =>
        lines.filter((line) => chatbots.includes(line.chatbot)),
      );
    const spendingOf = ({ turns }: Instance, of: ChatbotId, key: number) =>
      Effect.map(turns.spending(of, keyId(key)), (spending) =>
        isDayKnown() ? spending : "unknown",
      );

    /** Everything that the ports tell about a chatbot. */
    const contents = Effect.fnUntraced(function* (instance: Instance, of: ChatbotId) {
      const { archive, chats } = instance;
      const all = { ...defaultChatQuery, limit: 100 };
      const lists: Array<unknown> = [];
      for (const field of chatFields.filter((field) => isExact || field !== "createTime"))
        for (const descending of [true, false])
          lists.push(yield* chats.listChats(of, { ...all, orderBy: [{ field, descending }] }));
      const histories: Array<unknown> = [];
      const { items } = yield* chats.listChats(of, all);
      for (const { id, userRef } of items) {
        histories.push(yield* chats.listEntries(of, id, { ...defaultEntryQuery, limit: 100 }));
        if (userRef !== null) lists.push(yield* chats.listChats(of, { ...all, userRef }));
      }
      const usage: Array<unknown> = [];
      for (const by of [null, "key", "userRef", "day"] as const)
        if (by !== "day" || isExact) usage.push(sorted(yield* archive.usage(of, epoch, by)));
      const exported = yield* settle(Stream.runCollect(archive.export(of, actor)));
      const spending: Array<unknown> = [];
      for (const key of [0, 1, 2, 3]) spending.push(yield* spendingOf(instance, of, key));
      return plain({ lists, histories, usage, exported, spending }, of);
    });

    /** Reads everything through the ports, and then deletes the run's chatbots. */
    const finish = Effect.gen(function* () {
      strangers.clear();
      const contained: Array<unknown> = [];
      for (const of of chatbots) contained.push(yield* contents(under.second, ChatbotId.make(of)));
      const grants = yield* Effect.forEach([0, 1, 2, 3], (key) => first.directory.find(keyId(key)));
      const registered = yield* listOf(under.second);
      for (const { chatbot } of registered) yield* first.registry.delete(chatbot.id, actor);
      const audit = yield* auditOf(first, 1_000);
      return { contained, ...(plain({ grants, registered, audit }, 0) as object) };
    });

    /** What the command does on an instance; `of` is the chatbot that it concerns. */
    const perform = (
      command: Command,
      instance: Instance,
      other: Instance,
      now: number,
    ): Effect.Effect<unknown, unknown> => {
      const { archive, chats, directory, registry, turns: turnStore } = instance;
      const onTurn = (
        at: number,
        act: (turn: Turn, isSpent: boolean) => Effect.Effect<unknown, unknown>,
      ) => {
        const held = turns.at(-1 - (at % Math.max(1, turns.length)));
        if (held === undefined) return Effect.succeed("no turn");
        // From a day after the take, a store may forget the key and its turn at any time.
        if (held.turn.idempotencyKey !== null && elapsed - held.takenAt >= idempotencyKeyLifetime)
          return Effect.succeed("an old turn");
        concerned = held.turn.chatbot;
        return act(held.turn, held.isSpent);
      };
      switch (command._tag) {
        case "Create": {
          const { hello, isVisitor, key, name, userRef } = command;
          const idempotency = idempotencyKey(key, "create", isVisitor ? userRef : null);
          return chats.createChat(chatbot, { name, userRef, helloMessage: hello }, idempotency);
        }
        case "Take":
          return take(instance, command, takenChat(command.chat));
        case "TakeAndDie":
          return Effect.scoped(
            Effect.flatMap(under.open, (dying) => take(dying, command, takenChat(command.chat))),
          );
        case "Ask":
          return Effect.gen(function* () {
            const result = yield* take(instance, command, takenChat(command.chat));
            if (result._tag !== "TurnTaken") return result;
            turns.at(-1)!.isSpent = true;
            return [result, yield* turnStore.append(result.turn, entryOf(command))];
          });
        case "AskTogether":
          return Effect.gen(function* () {
            const chat = takenChat(command.chat);
            const result = yield* take(instance, command, chat);
            if (result._tag !== "TurnTaken") return result;
            turns.at(-1)!.isSpent = true;
            const wait = Effect.gen(function* () {
              for (let tries = 0; tries < 10; tries++) {
                const outcome = yield* take(other, command, chat);
                if (outcome._tag !== "Held") return outcome;
                yield* Effect.yieldNow;
              }
              return null;
            });
            const append = settle(turnStore.append(result.turn, entryOf(command)));
            const [own, early] = yield* Effect.all([append, wait], { concurrency: 2 });
            const late = early ?? (yield* take(other, command, chat));
            if (late._tag !== "TurnTaken") return [own, late];
            turns.at(-1)!.isSpent = true;
            return [own, late, yield* settle(other.turns.append(late.turn, entryOf(command)))];
          });
        case "Append":
          return onTurn(command.turn, (turn) => {
            const held = turns.find((one) => one.turn === turn)!;
            return Effect.tap(turnStore.append(turn, entryOf(command)), () =>
              Effect.sync(() => (held.isSpent = true)),
            );
          });
        case "Renew":
          return onTurn(command.turn, turnStore.renew);
        case "Release":
          return onTurn(command.turn, (turn, isSpent) => {
            turns.find((one) => one.turn === turn)!.isSpent = true;
            const { cost } = command;
            // Whether a second release counts is left open.
            if (cost === null || isSpent || command.by === "both") return turnStore.release(turn);
            return turnStore.release(turn, { apiKeyId: keyId(cost.key), tokens: cost.tokens });
          });
        case "Earlier":
          return onTurn(command.turn, (turn) =>
            turnStore.earlier(turn, idAt("entry", turn.chatbot, command.entry)),
          );
        case "List": {
          const { limit, orderBy, page, search, userRef } = command;
          const id = command.id === null ? null : takenChat(command.id);
          return chats.listChats(chatbot, {
            limit,
            page,
            orderBy: inExact(orderBy),
            id,
            search,
            userRef,
          });
        }
        case "History": {
          const { limit, orderBy, page, visitor } = command;
          const id = command.id === null ? null : idAt("entry", chatbot, command.id);
          const query = { limit, page, orderBy: inExact(orderBy), id };
          return chats.listEntries(chatbot, takenChat(command.chat)!, query, visitor);
        }
        case "Erase": {
          const { userRef } = command;
          const erasures = {
            Chat: { _tag: "Chat", id: takenChat(command.chat)! },
            UserRef: { _tag: "UserRef", userRef },
            IdleSince: { _tag: "IdleSince", limit: ago(command.ago, now) },
            // Without exact times, this erases only imported chats.
            IdleFor: { _tag: "IdleFor", millis: isExact ? command.ago : 20 * 365 * day },
            All: { _tag: "All" },
          } satisfies Record<Erasable["_tag"], Erasable>;
          return archive.erase(chatbot, erasures[command.which], actor);
        }
        case "Export": {
          const { digest, userRef } = command;
          const person =
            userRef === null ? undefined : digest === "" ? { userRef } : { userRef, digest };
          return Stream.runCollect(archive.export(chatbot, actor, person));
        }
        case "Copy": {
          const to = ChatbotId.make(chatbots.at(-1 - (command.to % chatbots.length))!);
          return Effect.gen(function* () {
            const records = yield* Stream.runCollect(archive.export(chatbot, actor));
            const count = yield* archive.import(to, Stream.fromIterable(records), actor);
            for (const kind of ["chat", "entry"])
              if (to !== chatbot) known.set(`${kind} ${to}`, [...idsOf(kind, chatbot)]);
            return count;
          });
        }
        case "Import": {
          const isSorted = command.flaw !== "times";
          const chats = isSorted
            ? command.chats.toSorted((a, b) => a.year - b.year)
            : command.chats;
          let id = highest;
          // Entries of different chats with the same id.
          const twice = highest + 100;
          const entryId = (n: number) => (command.flaw === "ids" ? twice + n : ++id);
          const records = chats.flatMap(
            ({ entries, name, userRef, year }): Array<ArchiveRecord> => {
              const chatId = ChatId.make(++id);
              const at = (year: number) => new Date(Date.UTC(year, 0));
              const years = entries.map((entry) =>
                isSorted ? Math.max(entry.year, year) : entry.year,
              );
              if (isSorted) years.sort((a, b) => a - b);
              return [
                { _tag: "Chat", chat: { id: chatId, name, userRef, createTime: at(year) } },
                ...entries.map(({ usage, ...entry }, n): ArchiveRecord => ({
                  _tag: "Entry",
                  entry: { ...texts(entry), id: entryId(n), chatId, createTime: at(years[n]!) },
                  usage: usageOf(usage),
                })),
              ];
            },
          );
          const source =
            command.flaw === "broken" ? Stream.fail({ _tag: "Broken" as const }) : Stream.empty;
          return Effect.map(
            archive.import(chatbot, Stream.concat(Stream.fromIterable(records), source), actor),
            (count) => [
              count,
              records.map((record) => (record._tag === "Chat" ? record.chat : record.entry)),
            ],
          );
        }
        case "Usage":
          // Without exact times, a day may have passed in one store only.
          return Effect.map(
            archive.usage(
              chatbot,
              ago(command.ago, now),
              isExact || command.group !== "day" ? command.group : null,
            ),
            sorted,
          );
        case "Spending":
          return spendingOf(instance, chatbot, command.key);
        case "Register": {
          const { description, keys, name, settings } = command;
          return registry.create(
            {
              workspaceName: workspace(command.workspace),
              name,
              description,
              settings: { ...defaultSettings, ...settings },
              keys: keys.map((key) => keyRecord(key)),
            },
            actor,
          );
        }
        case "Change": {
          const {
            change: { workspace: at, ...change },
            settings,
          } = command;
          const fields: ChatbotChange = {
            ...change,
            ...(at !== undefined && { workspaceName: workspace(at) }),
          };
          const isEmpty = Object.keys(settings).length === 0;
          return registry.change(chatbot, isEmpty ? fields : { ...fields, settings }, actor);
        }
        case "Delete":
          return registry.delete(chatbot, actor);
        case "AddKey":
          return registry.addKey(chatbot, keyRecord(command.key, keyFields(command.fields)), actor);
        case "ChangeKey":
          return registry.changeKey(chatbot, keyId(command.key), keyFields(command.change), actor);
        case "RevokeKey":
          return registry.revokeKey(chatbot, keyId(command.key), actor);
        case "UseKeys":
          return directory.recordUse(command.keys.map(keyId));
        case "FindKey":
          return directory.find(keyId(command.key));
        case "ListChatbots":
          return listOf(instance);
        case "Audit":
          return auditOf(instance, command.limit);
        case "RecordRead":
          return chatbots.length === 0
            ? Effect.void
            : registry.recordRead(chatbot, command.detail, actor);
        case "Pass": {
          // Without exact times, the spans are clearly longer or shorter than each limit.
          const millis = isExact ? command.millis : (looseSpans[command.millis] ?? command.millis);
          elapsed += millis;
          partial += millis % day;
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
      const both = [first, under.second] as const;
      const [instance, other] = command.by === "second" ? [both[1], both[0]] : both;
      const once = settle(perform(command, instance, other, now));
      if (command.by !== "both") return plain(yield* once, concerned);
      const again = settle(perform(command, other, instance, now));
      const results = yield* Effect.all([once, again], { concurrency: 2 });
      // Which of the two was first does not matter.
      return plain(results.toSorted(byId), concerned);
    });
    return { answer, finish };
  });
});

/** What stands for some spans in a store whose clock cannot be set. */
const looseSpans: Readonly<Record<number, number>> = {
  1: 0,
  999: 0,
  2_000: 3_500,
  9_999: 3_500,
  10_000: 11_000,
  86_399_999: 46_800_000,
  86_400_000: 90_000_000,
};

type Settled = { readonly success: unknown } | { readonly failure: unknown };

const settle = <A, E>(effect: Effect.Effect<A, E>): Effect.Effect<Settled> =>
  Effect.match(effect, {
    onSuccess: (success) => ({ success }),
    onFailure: (failure) => ({ failure }),
  });

/** Sorts the results of two concurrent calls: by the id of what was stored, failures last. */
const byId = (a: Settled, b: Settled): number => {
  const [x, y] = [a, b].map((result): number => {
    if ("failure" in result) return 1e16;
    const row = result.success as
      | { id?: number; chatId?: number; chat?: { id: number }; replayed?: boolean }
      | null
      | undefined;
    return (row?.chat?.id ?? row?.chatId ?? row?.id ?? 0) + (row?.replayed === true ? 0.5 : 0);
  });
  return x! - y!;
};
