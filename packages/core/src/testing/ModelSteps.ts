/**
 * What each command should do to a store, and does to the plain arrays that it must agree with.
 */
import { Effect, Exit, Stream } from "effect";
import type { Chat } from "../Chat.ts";
import { ChatArchive, type Erasable, type UsageSum } from "../ChatArchive.ts";
import { ChatStore } from "../ChatStore.ts";
import type { Entry, NewEntry, Usage } from "../Entry.ts";
import { ChatNotFound, RetryKeyReused, TurnLost } from "../Errors.ts";
import { chatFields, entryFields, type ChatQuery, type EntryQuery } from "../ListQuery.ts";
import { retryKeyLifetime, type RetryKey } from "../RetryKey.ts";
import { turnEntries, turnLease, TurnStore, type Turn } from "../TurnStore.ts";
import { failuresOf, same } from "./Check.ts";
import { awkwardKeys, bare, entry, newChatbot, pass, usage } from "./Fixtures.ts";
import { chatPage, entryPage } from "./Model.ts";
import type { ModelCommand, ModelOrder } from "./ModelCommand.ts";
import {
  entriesOf,
  forget,
  forgetKeys,
  hold,
  holderOf,
  isKnown,
  isOurs,
  makeTenant,
  recordsOf,
  requestOf,
  sumsOf,
  usedAt,
  type Tenant,
} from "./ModelTenant.ts";

/** What all chatbots of a sequence should hold. */
export interface ModelState {
  readonly tenants: Array<Tenant>;
  /** The one that the next command is for. */
  tenant: Tenant;
}

export const emptyState = (chatbot: number): ModelState => {
  const tenant = makeTenant(chatbot, { now: 0 });
  return { tenants: [tenant], tenant };
};

/** One of the rows, or one that is not there. */
const pick = <A>(rows: ReadonlyArray<A>, n: number): A | undefined =>
  n === 9 ? undefined : rows[n % Math.max(1, rows.length)];

/** An order as the ports get it: no field twice. */
const orderOf = <Field extends string>(
  fields: ReadonlyArray<Field>,
  order: (typeof ModelOrder)["Type"],
): ChatQuery["orderBy"] & EntryQuery["orderBy"] => {
  const seen = new Set<Field>();
  const by = order.flatMap(({ descending, field }) => {
    const name = fields[field % fields.length]!;
    if (seen.has(name)) return [];
    seen.add(name);
    return [{ field: name, descending }];
  });
  return by as any;
};

const absent = 9_007_199_254_740_991;

/** The key of an ask in the chat. */
const keyOf = (key: number | null, chat: number | null): RetryKey | null =>
  key === null ? null : { key: awkwardKeys[key]!, fingerprint: `ask ${chat}` };

/** What is answered, in several ways. */
const answerOf = (question: string, way: number) =>
  entry(question, {
    flagged: way % 3 === 1,
    moderation: way % 3 === 1 ? "hate" : "none",
    usage: usages[way % usages.length]!,
  });

/** No usage, or that of one of several models, with names that are easily mixed up. */
const usages: ReadonlyArray<Usage | null> = [
  null,
  usage,
  { ...usage, model: "b/c", provider: "a" },
  { ...usage, model: "c", provider: "a/b" },
];

/** A chat that was just created. */
const addChat = Effect.fnUntraced(function* (tenant: Tenant, chat: Chat) {
  yield* same("whether its id is greater than all before", chat.id > tenant.newestId, true);
  const last = tenant.chats.at(-1)?.createTime ?? chat.createTime;
  yield* same("whether its time is not before the last", chat.createTime >= last, true);
  tenant.newestId = chat.id;
  tenant.chats = [...tenant.chats, chat];
  tenant.entries.set(chat.id, []);
});

const addEntry = Effect.fnUntraced(function* (
  tenant: Tenant,
  made: Entry,
  spent: Usage | null = null,
) {
  const entries = tenant.entries.get(made.chatId)!;
  const last = entries.at(-1)?.entry;
  const ascends = last === undefined || (made.id > last.id && made.createTime >= last.createTime);
  yield* same("whether its id and time ascend", ascends, true);
  yield* same("whether its id was used before", tenant.entryIds.has(made.id), false);
  tenant.entryIds.add(made.id);
  entries.push({ entry: made, usage: spent });
});

/** In milliseconds: hardly any, half a lease, half of what a key is known for, all of it. */
const passes: ReadonlyArray<number> = [
  1,
  turnLease / 2,
  retryKeyLifetime / 2,
  retryKeyLifetime,
].flatMap((millis, n) =>
  Array.from({ length: [4, 3, 2, 1][n]! }, () => millis + (n === 0 ? 0 : 1)),
);

/** What came of it, or with what it failed. */
const outcome = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.map(Effect.exit(effect), (exit) =>
    Exit.isSuccess(exit) ? exit.value : failuresOf(exit.cause)[0]!,
  );

const take = Effect.fnUntraced(function* (
  tenant: Tenant,
  chat: number | null,
  retryKey: RetryKey | null,
) {
  const turns = yield* TurnStore;
  const taken = yield* outcome(turns.take(tenant.chatbot, chat, retryKey));
  const known = retryKey === null ? undefined : requestOf(tenant, retryKey.key);
  const held = chat === null ? undefined : tenant.held.get(chat);
  const what = "what comes of asking for a turn";
  if (known !== undefined && known.fingerprint !== retryKey!.fingerprint) {
    return yield* same(what, taken, new RetryKeyReused({ key: retryKey!.key }));
  }
  if (known !== undefined && known.made !== null) {
    const { entry, turn } = known.made;
    return yield* same(what, taken, { _tag: "Done", entry, turn });
  }
  if (chat !== null && !isKnown(tenant, chat)) {
    return yield* same(what, taken, new ChatNotFound({ chatId: chat }));
  }
  const until = known?.held.until ?? held?.until ?? 0;
  if (until > tenant.time.now) {
    const { by, forMillis } =
      typeof taken !== "string" && taken._tag === "Held" ? taken : { by: taken, forMillis: 0 };
    yield* same(what, by, known === undefined ? "chat" : "key");
    const within = forMillis > 0 && forMillis <= until - tenant.time.now;
    yield* same("whether it is held no longer than its lease", within, true);
    // So that the other instance need not wait for this one.
    if (chat !== null) yield* turns.leave(tenant.chatbot, chat);
    return;
  }
  if (typeof taken === "string" || taken._tag !== "Turn") return yield* same(what, taken, "Turn");
  const { id, newest } = taken.turn;
  const expected = chat === null ? [] : entriesOf(tenant, chat).slice(-turnEntries).toReversed();
  yield* same("the newest entries", newest, expected);
  yield* same(
    "whether another turn has its name",
    tenant.turns.some((turn) => turn.id === id),
    false,
  );
  tenant.turns.push(taken.turn);
  hold(tenant, taken.turn);
  return taken.turn;
});

const append = Effect.fnUntraced(function* (
  tenant: Tenant,
  turn: Turn,
  { usage: spent, ...texts }: NewEntry,
) {
  const { chat, id, retryKey } = turn;
  const turns = yield* TurnStore;
  const made = yield* outcome(turns.append(turn, { ...texts, usage: spent }));
  if (chat !== null && !isKnown(tenant, chat)) {
    return yield* same("an append to no chat", made, new ChatNotFound({ chatId: chat }));
  }
  if (!isOurs(tenant, turn)) return yield* same("an append without the turn", made, new TurnLost());
  if (typeof made === "string" || "_tag" in made) {
    return yield* same("an append", made, "an entry");
  }
  const { chatId, createTime, id: entryId } = made;
  yield* same("the entry", made, { ...texts, id: entryId, chatId, createTime });
  if (chat === null) {
    const order = { limit: 1, page: 1, orderBy: [{ field: "id", descending: true }] } as const;
    const query = { ...order, id: chatId, search: null, userRef: null };
    const { items } = yield* ChatStore.use((store) => store.listChats(tenant.chatbot, query));
    yield* same("the new chat", [items[0]?.name, items[0]?.userRef], [null, null]);
    yield* addChat(tenant, items[0]!);
  } else {
    yield* same("the entry's chat", chatId, chat);
    tenant.held.delete(chat);
  }
  yield* addEntry(tenant, made, spent);
  if (retryKey !== null) {
    const of = tenant.chats.find((other) => other.id === chatId)!;
    tenant.requests.set(retryKey.key, {
      fingerprint: retryKey.fingerprint,
      made: { chat: of, entry: made, turn: id },
      until: tenant.time.now + retryKeyLifetime,
    });
  }
  forget(tenant, turn);
});

/** Takes away the chats, and with them the keys that made them or their entries. */
const remove = Effect.fnUntraced(function* (tenant: Tenant, gone: ReadonlyArray<Chat>) {
  const ids = new Set(gone.map(({ id }) => id));
  tenant.chats = tenant.chats.filter(({ id }) => !ids.has(id));
  for (const id of ids) {
    tenant.entries.delete(id);
    tenant.held.delete(id);
  }
  for (const [key, { made }] of tenant.requests) {
    if (made !== null && ids.has(made.chat.id)) tenant.requests.delete(key);
  }
  // The key of an ask in flight may be free at once or with its turn's end.
  for (const turn of tenant.turns) {
    if (turn.chat === null || !ids.has(turn.chat) || turn.retryKey === null) continue;
    if (holderOf(tenant, turn.retryKey.key) !== turn.id) continue;
    yield* TurnStore.use((turns) => turns.release(turn));
    tenant.requests.delete(turn.retryKey.key);
  }
});

const byModel = (sums: ReadonlyArray<UsageSum>) =>
  sums.toSorted((a, b) => (`${a.provider} ${a.model}` < `${b.provider} ${b.model}` ? -1 : 1));

/** Does to the store what the command says, and fails unless what comes of it is what should. */
export const step = Effect.fnUntraced(function* (model: ModelState, command: ModelCommand) {
  const { tenant } = model;
  const store = yield* ChatStore;
  const turns = yield* TurnStore;
  const archive = yield* ChatArchive;
  const { chatbot } = tenant;
  switch (command._tag) {
    case "Create": {
      const { hello: helloMessage, name, userRef } = command;
      const { chat } = yield* store.createChat(chatbot, { name, userRef, helloMessage }, null);
      yield* same("the chat", [chat.name, chat.userRef], [name, userRef]);
      const { items } = yield* store.listEntries(chatbot, chat.id, {
        limit: 100,
        page: 1,
        orderBy: [{ field: "id", descending: false }],
        id: null,
      });
      yield* same(
        "its entries",
        items.map(({ answer }) => answer),
        helloMessage === null ? [] : [helloMessage],
      );
      yield* addChat(tenant, chat);
      for (const hello of items) yield* addEntry(tenant, hello);
      return;
    }
    case "CreateWithKey": {
      const key = awkwardKeys[command.key]!;
      const fingerprint = `create ${command.name}`;
      const known = requestOf(tenant, key);
      const wanted = { ...bare, name: command.name };
      const made = yield* outcome(store.createChat(chatbot, wanted, { key, fingerprint }));
      if (known !== undefined) {
        const expected =
          known.made === null || known.fingerprint !== fingerprint
            ? new RetryKeyReused({ key })
            : { chat: known.made.chat, replayed: true };
        return yield* same("what a known key gives", made, expected);
      }
      if (typeof made === "string" || "_tag" in made) {
        return yield* same("a creation", made, "a chat");
      }
      yield* same("the chat", [made.replayed, made.chat.name], [false, command.name]);
      yield* addChat(tenant, made.chat);
      tenant.requests.set(key, {
        fingerprint,
        made: { chat: made.chat, entry: null, turn: null },
        until: tenant.time.now + retryKeyLifetime,
      });
      return;
    }
    case "Ask": {
      const chat = command.chat === null ? null : (pick(tenant.chats, command.chat)?.id ?? absent);
      const turn = yield* take(tenant, chat, keyOf(command.key, chat));
      if (turn === undefined) return;
      return yield* append(tenant, turn, answerOf(command.question ?? "q", command.way));
    }
    case "Take": {
      const chat = command.chat === null ? null : (pick(tenant.chats, command.chat)?.id ?? absent);
      yield* take(tenant, chat, keyOf(command.key, chat));
      return;
    }
    case "Append": {
      const turn = pick(tenant.turns, command.turn);
      if (turn !== undefined) yield* append(tenant, turn, entry(command.question ?? "q"));
      return;
    }
    case "Renew": {
      const turn = pick(tenant.turns, command.turn);
      if (turn === undefined) return;
      const ours = isOurs(tenant, turn);
      yield* same("whether the turn is renewed", yield* turns.renew(turn), ours);
      if (ours) hold(tenant, turn);
      return;
    }
    case "Release": {
      const turn = pick(tenant.turns, command.turn);
      if (turn === undefined) return;
      yield* turns.release(turn);
      const { chat, id, retryKey } = turn;
      if (chat !== null && tenant.held.get(chat)?.turn === id) tenant.held.delete(chat);
      if (retryKey !== null && holderOf(tenant, retryKey.key) === id) {
        tenant.requests.delete(retryKey.key);
      }
      return forget(tenant, turn);
    }
    case "Earlier": {
      const turn = pick(tenant.turns, command.turn);
      if (turn === undefined || turn.chat === null) return;
      const entries = entriesOf(tenant, turn.chat);
      const before = pick(entries, command.entry)?.id;
      if (before === undefined) return;
      const older = entries.filter(({ id }) => id < before).slice(-turnEntries);
      return yield* same(
        "the earlier entries",
        yield* turns.earlier(turn, before),
        older.toReversed(),
      );
    }
    case "Erase": {
      const chat = pick(tenant.chats, command.chat);
      const limit = chat === undefined ? new Date(0) : usedAt(tenant, chat);
      const userRef = chat?.userRef ?? "nobody";
      const [which, gone]: readonly [Erasable, (chat: Chat) => boolean] = {
        chat: [
          { _tag: "Chat", id: chat?.id ?? absent },
          ({ id }: Chat) => id === chat?.id,
        ] as const,
        userRef: [{ _tag: "UserRef", userRef }, (chat: Chat) => chat.userRef === userRef] as const,
        idle: [{ _tag: "IdleSince", limit }, (chat: Chat) => usedAt(tenant, chat) < limit] as const,
      }[command.which];
      const erased = tenant.chats.filter(gone);
      yield* same("how many are erased", yield* archive.erase(chatbot, which), erased.length);
      return yield* remove(tenant, erased);
    }
    case "Pass": {
      const millis = passes[command.long]!;
      tenant.time.now += millis;
      if (millis > turnLease) for (const other of model.tenants) forgetKeys(other);
      return yield* pass(millis);
    }
    case "Switch":
      model.tenant = model.tenants[command.chatbot % model.tenants.length]!;
      return;
    case "Usage": {
      const chat = pick(tenant.chats, command.chat);
      const since = chat === undefined ? new Date(0) : usedAt(tenant, chat);
      const sums = yield* archive.usage(chatbot, since);
      return yield* same("the usage", byModel(sums), byModel(sumsOf(tenant, since)));
    }
    case "Export": {
      const records = yield* Stream.runCollect(archive.export(chatbot));
      yield* same("the export", records, recordsOf(tenant));
      if (command.to < 8) return;
      const { chats, entries } = tenant;
      let to = tenant;
      if (command.to === 9) {
        const limit = new Date(8_000_000_000_000);
        const erased = yield* archive.erase(chatbot, { _tag: "IdleSince", limit });
        yield* same("how many are erased", erased, chats.length);
        tenant.entries = new Map(entries);
        yield* remove(tenant, chats);
      } else {
        to = makeTenant(yield* newChatbot, tenant.time);
        to.newestId = chats.at(-1)?.id ?? 0;
        model.tenants.push(to);
        model.tenant = to;
      }
      const imported = yield* archive.import(to.chatbot, Stream.fromIterable(records));
      yield* same("how many are imported", imported, chats.length);
      to.chats = chats;
      for (const { entry } of [...entries.values()].flat()) to.entryIds.add(entry.id);
      to.entries = new Map([...entries].map(([chat, stored]) => [chat, [...stored]]));
      return;
    }
    case "List": {
      const id = command.id === null ? null : (pick(tenant.chats, command.id)?.id ?? absent);
      const query: ChatQuery = {
        limit: command.limit + 1,
        page: (command.page % 3) + 1,
        orderBy: orderOf(chatFields, command.order),
        id,
        search: command.search,
        userRef: command.userRef,
      };
      const actual = yield* store.listChats(chatbot, query);
      return yield* same("the list", actual, chatPage(tenant.chats, query));
    }
    case "History": {
      const chat = pick(tenant.chats, command.chat);
      const entries = chat === undefined ? [] : entriesOf(tenant, chat.id);
      const query: EntryQuery = {
        limit: command.limit + 1,
        page: (command.page % 3) + 1,
        orderBy: orderOf(entryFields, command.order),
        id: command.id === null ? null : (pick(entries, command.id)?.id ?? absent),
      };
      const chatId = chat?.id ?? absent;
      const read = yield* outcome(store.listEntries(chatbot, chatId, query));
      const expected =
        chat === undefined ? new ChatNotFound({ chatId }) : entryPage(entries, query);
      return yield* same("the history", read, expected);
    }
  }
});
