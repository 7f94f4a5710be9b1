/**
 * What each command should do to a store, and does to the plain arrays that it must agree with.
 */
import { Effect, Result, Stream } from "effect";
import type { Chat } from "../Chat.ts";
import { ChatArchive, type Erasable } from "../ChatArchive.ts";
import { ChatStore } from "../ChatStore.ts";
import type { NewEntry, Usage } from "../Entry.ts";
import { ChatNotFound, RetryKeyReused, TurnLost } from "../Errors.ts";
import { chatFields, entryFields, type ChatQuery, type EntryQuery } from "../ListQuery.ts";
import { retryKeyLifetime, type RetryKey } from "../RetryKey.ts";
import { turnLease, TurnStore, type Turn } from "../TurnStore.ts";
import { failsWith, same } from "./Check.ts";
import { awkwardKeys, bare, entry, newChatbot, pass, usage } from "./Fixtures.ts";
import { Ledger } from "./Ledger.ts";
import type { ModelCommand, ModelOrder } from "./ModelCommand.ts";
import {
  forget,
  forgetKeys,
  hold,
  holderOf,
  isOurs,
  makeTenant,
  requestOf,
  type Tenant,
} from "./ModelTenant.ts";
import { chatOf, entriesOf, isKnown, meantBy, usedAt } from "./Written.ts";

/** What all chatbots of a sequence should hold. */
interface ModelState {
  readonly tenants: Array<Tenant>;
  /** The one that the next command is for. */
  tenant: Tenant;
}

const writtenTo = ({ chatbot }: Tenant) => Ledger.useSync((ledger) => ledger.of(chatbot).written);

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
  Effect.map(Effect.result(effect), Result.merge);

const take = Effect.fnUntraced(function* (
  tenant: Tenant,
  chat: number | null,
  retryKey: RetryKey | null,
) {
  const turns = yield* TurnStore;
  const written = yield* writtenTo(tenant);
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
  if (chat !== null && !isKnown(written, chat)) {
    return yield* same(what, taken, new ChatNotFound({ chatId: chat }));
  }
  const until = known?.held.until ?? held?.until ?? 0;
  if (until > tenant.time.now) {
    const { by, forMillis } = taken._tag === "Held" ? taken : { by: taken, forMillis: 0 };
    yield* same(what, by, known === undefined ? "chat" : "key");
    const within = forMillis <= until - tenant.time.now;
    yield* same("whether it is held no longer than its lease", within, true);
    // So that the other instance need not wait for this one.
    if (chat !== null) yield* turns.leave(tenant.chatbot, chat);
    return;
  }
  if (taken._tag !== "Turn") return yield* same(what, taken, "Turn");
  tenant.turns.push(taken.turn);
  hold(tenant, taken.turn);
  return taken.turn;
});

const append = Effect.fnUntraced(function* (tenant: Tenant, turn: Turn, answered: NewEntry) {
  const { chat, id, retryKey } = turn;
  const turns = yield* TurnStore;
  const written = yield* writtenTo(tenant);
  const made = yield* outcome(turns.append(turn, answered));
  if (chat !== null && !isKnown(written, chat)) {
    return yield* same("an append to no chat", made, new ChatNotFound({ chatId: chat }));
  }
  if (!isOurs(tenant, turn)) {
    return yield* same("an append without the turn", made, new TurnLost());
  }
  if ("_tag" in made) return yield* same("an append", made, "an entry");
  if (chat !== null) tenant.held.delete(chat);
  if (retryKey !== null) {
    const of = chatOf(written, made.chatId)!;
    tenant.requests.set(retryKey.key, {
      fingerprint: retryKey.fingerprint,
      made: { chat: of, entry: made, turn: id },
      until: tenant.time.now + retryKeyLifetime,
    });
  }
  forget(tenant, turn);
});

/** Forgets who holds the chats that are gone, and the keys that made them or their entries. */
const forgetChats = Effect.fnUntraced(function* (tenant: Tenant, gone: ReadonlyArray<Chat>) {
  const ids = new Set(gone.map(({ id }) => id));
  for (const id of ids) tenant.held.delete(id);
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

/** Does to the store what the command says, and fails unless what comes of it is what should. */
export const step = Effect.fnUntraced(function* (model: ModelState, command: ModelCommand) {
  const { tenant } = model;
  const store = yield* ChatStore;
  const turns = yield* TurnStore;
  const archive = yield* ChatArchive;
  const { chatbot } = tenant;
  const written = yield* writtenTo(tenant);
  const { chats } = written;
  switch (command._tag) {
    case "Create": {
      const { hello: helloMessage, name, userRef } = command;
      yield* store.createChat(chatbot, { name, userRef, helloMessage }, null);
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
      if ("_tag" in made) return yield* same("a creation", made, "a chat");
      yield* same("whether it was made before", made.replayed, false);
      tenant.requests.set(key, {
        fingerprint,
        made: { chat: made.chat, entry: null, turn: null },
        until: tenant.time.now + retryKeyLifetime,
      });
      return;
    }
    case "Ask": {
      const chat = command.chat === null ? null : (pick(chats, command.chat)?.id ?? absent);
      const turn = yield* take(tenant, chat, keyOf(command.key, chat));
      if (turn === undefined) return;
      return yield* append(tenant, turn, answerOf(command.question ?? "q", command.way));
    }
    case "Take": {
      const chat = command.chat === null ? null : (pick(chats, command.chat)?.id ?? absent);
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
      const erased = turn.chat !== null && !isKnown(written, turn.chat);
      yield* same(
        "whether the turn is renewed",
        yield* outcome(turns.renew(turn)),
        erased ? new ChatNotFound({ chatId: turn.chat! }) : ours,
      );
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
      const before = pick(entriesOf(written, turn.chat), command.entry)?.id;
      if (before !== undefined) yield* turns.earlier(turn, before);
      return;
    }
    case "Erase": {
      const chat = pick(chats, command.chat);
      const which: Erasable = {
        chat: { _tag: "Chat" as const, id: chat?.id ?? absent },
        userRef: { _tag: "UserRef" as const, userRef: chat?.userRef ?? "nobody" },
        idle: {
          _tag: "IdleSince" as const,
          limit: chat === undefined ? new Date(0) : usedAt(written, chat),
        },
      }[command.which];
      const gone = meantBy(written, which);
      yield* archive.erase(chatbot, which);
      if (command.compact === 9) yield* archive.compact(command.second ? "quick" : "thorough");
      return yield* forgetChats(tenant, gone);
    }
    case "Pass": {
      const millis = passes[command.long]!;
      tenant.time.now += millis;
      model.tenants.forEach(forgetKeys);
      return yield* pass(millis);
    }
    case "Switch":
      model.tenant = model.tenants[command.chatbot % model.tenants.length]!;
      return;
    case "Usage": {
      const chat = pick(chats, command.chat);
      yield* archive.usage(chatbot, chat === undefined ? new Date(0) : usedAt(written, chat));
      return;
    }
    case "Export": {
      const records = yield* Stream.runCollect(archive.export(chatbot));
      if (command.to < 8) return;
      let to = tenant;
      if (command.to === 9) {
        yield* archive.erase(chatbot, { _tag: "IdleSince", limit: new Date(8_000_000_000_000) });
        yield* forgetChats(tenant, chats);
      } else {
        to = makeTenant(yield* newChatbot, tenant.time);
        model.tenants.push(to);
        model.tenant = to;
      }
      yield* archive.import(to.chatbot, Stream.fromIterable(records));
      return;
    }
    case "List": {
      const id = command.id === null ? null : (pick(chats, command.id)?.id ?? absent);
      const query: ChatQuery = {
        limit: command.limit + 1,
        page: (command.page % 3) + 1,
        orderBy: orderOf(chatFields, command.order),
        id,
        search: command.search,
        userRef: command.userRef,
      };
      yield* store.listChats(chatbot, query);
      return;
    }
    case "History": {
      const chat = pick(chats, command.chat);
      const entries = chat === undefined ? [] : entriesOf(written, chat.id);
      const query: EntryQuery = {
        limit: command.limit + 1,
        page: (command.page % 3) + 1,
        orderBy: orderOf(entryFields, command.order),
        id: command.id === null ? null : (pick(entries, command.id)?.id ?? absent),
      };
      const chatId = chat?.id ?? absent;
      const read = store.listEntries(chatbot, chatId, query);
      if (chat !== undefined) return void (yield* read);
      return yield* failsWith("the history", new ChatNotFound({ chatId }), read);
    }
  }
});
