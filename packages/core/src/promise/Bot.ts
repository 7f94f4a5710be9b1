/**
 * The API of one chatbot as promises and async iterables.
 */
import { Context, Effect, Redacted, Schema, Stream } from "effect";
import { decodeArchive, encodeArchive } from "../archive/ArchiveFormat.ts";
import { defaultScopes, PointInTime } from "../model/ApiKey.ts";
import type { Chatbot } from "../model/Chatbot.ts";
import { pickEntry, type Entry } from "../model/Entry.ts";
import { IdempotencyKeyText } from "../model/IdempotencyKey.ts";
import { ChatId } from "../model/Ids.ts";
import type { ChatQuery, EntryQuery } from "../model/ListQuery.ts";
import { makeCheck } from "../model/SchemaErrors.ts";
import { UserRefNotGranted } from "../model/Errors.ts";
import { Text, UserRef } from "../model/Text.ts";
import { ChatArchive, type Erasable } from "../ports/ChatArchive.ts";
import type { Principal } from "../services/Access.ts";
import { Administration } from "../services/Administration.ts";
import { Asking } from "../services/Asking.ts";
import { Chats } from "../services/Chats.ts";
import type { AnswerEvent } from "../services/LiveAnswer.ts";
import type { Calls } from "./Calls.ts";
import { makeList, withoutUndefined } from "./Lists.ts";
import type * as api from "./Interface.ts";

/** Creates a function that binds calls to a chatbot and, if given, to the principal who makes them. */
export const makeBots =
  (
    context: Context.Context<Administration | Asking | ChatArchive | Chats>,
    { iterate, run }: Calls,
    actor: string,
  ) =>
  (
    chatbot: Chatbot,
    principal?: Omit<Principal, "apiKeyId" | "scopes"> & { readonly apiKeyId: string | null },
  ): api.Bot => {
    const administration = Context.get(context, Administration);
    const archive = Context.get(context, ChatArchive);
    const asking = Context.get(context, Asking);
    const chatService = Context.get(context, Chats);
    const { id } = chatbot;
    const { apiKeyId = null, tokensPerDay = null, visitor = null } = principal ?? {};

    const createChat: api.Bot["createChat"] = (chat = {}, { signal, ...options } = {}) =>
      run(
        Effect.gen(function* () {
          yield* checkStoreOptions(options);
          return (yield* chatService.create(chatbot, chat, options.idempotencyKey, visitor)).chat;
        }),
        { signal },
      );

    const chats: api.Bot["chats"] = (query = {}, call) =>
      makeList(
        { search: null, userRef: null, include: [], ...withoutUndefined(query) },
        (page: ChatQuery) => chatService.list(chatbot, page, visitor),
        (effect) => run(effect, call),
      );

    const history: api.Bot["history"] = (chatId, query = {}, call) =>
      makeList(
        { after: null, include: [], ...withoutUndefined(query) },
        (page: EntryQuery) => chatService.history(chatbot, toChatId(chatId), page, visitor),
        (effect) => run(effect, call),
      );

    const toAsk = (
      chatId: number | null,
      question: string,
      { include: _include, ...options }: api.AskOptions,
    ) => ({
      ...withoutUndefined(options),
      apiKeyId,
      tokensPerDay,
      visitor,
      chatId: chatId === null ? null : toChatId(chatId),
      question,
    });
    const pick =
      (include: api.AskOptions["include"]) =>
      <Result extends { readonly entry: Entry }>(result: Result) => ({
        ...result,
        entry: pickEntry(result.entry, include ?? []),
      });

    const ask: api.Bot["ask"] = (chatId, question, { signal, ...options } = {}) =>
      run(
        Effect.map(asking.ask(chatbot, toAsk(chatId, question, options)), pick(options.include)),
        { signal },
      );

    const post: api.Bot["post"] = (chatId, text, { signal, ...options } = {}) =>
      run(
        Effect.map(
          asking.post(chatbot, {
            ...withoutUndefined(options),
            apiKeyId,
            chatId: toChatId(chatId),
            text,
          }),
          ({ entry }) => pickEntry(entry, ["metadata"]),
        ),
        { signal },
      );

    const rename: api.Bot["rename"] = (chatId, name) =>
      run(chatService.rename(chatbot, toChatId(chatId), name, visitor));

    const rate: api.Bot["rate"] = (chatId, entryId, feedback) =>
      run(
        Effect.map(
          chatService.rate(chatbot, toChatId(chatId), entryId, withoutUndefined(feedback), visitor),
          (entry) => pickEntry(entry, ["feedback"]),
        ),
      );

    const remove: api.Bot["delete"] = (chatId) =>
      run(chatService.delete(chatbot, toChatId(chatId), apiKeyId ?? actor, visitor));

    const as: api.Bot["as"] = (userRef) => {
      Effect.runSync(checkUser({ userRef }));
      if (visitor !== null && visitor !== userRef) throw new UserRefNotGranted();
      const user = { ...principal, chatbot, apiKeyId, visitor: userRef };
      const {
        as: _,
        post: __,
        ...bound
      } = makeBots(context, { iterate, run }, actor)(chatbot, user);
      return bound;
    };

    const stream: api.Bot["stream"] = (
      chatId,
      question,
      { signal, onDisconnect = "cancel", ...options } = {},
    ) => {
      const ask = toAsk(chatId, question, { ...options, onDisconnect });
      const toEvent = (event: AnswerEvent): api.AnswerEvent =>
        event._tag === "Delta"
          ? { type: "delta", text: event.text }
          : { type: "entry", entry: pickEntry(event.entry, options.include ?? []) };
      return iterate(Stream.map(asking.stream(chatbot, ask), toEvent), { signal });
    };

    const erase: api.Bot["erase"] = (which) =>
      run(
        Effect.gen(function* () {
          if (which !== "all") yield* checkErasure(which);
          const erasable: Erasable =
            which === "all"
              ? { _tag: "All" }
              : "chatId" in which
                ? { _tag: "Chat", id: ChatId.make(which.chatId) }
                : "userRef" in which
                  ? { _tag: "UserRef", ...(yield* administration.person(which.userRef)) }
                  : { _tag: "IdleSince", limit: which.idleSince };
          return yield* archive.erase(id, erasable, actor);
        }),
      );

    const usage: api.Bot["usage"] = ({ by = null, since = new Date(0), ...rest } = {}) =>
      run(Effect.andThen(checkUsage({ ...rest, by, since }), archive.usage(id, since, by)));

    const exportChats: api.Bot["export"] = (which = {}) =>
      iterate(
        Effect.gen(function* () {
          yield* checkExport(withoutUndefined(which));
          const { userRef } = which;
          if (userRef === undefined) return archive.export(id, actor);
          return archive.export(id, actor, yield* administration.person(userRef));
        }).pipe(Stream.unwrap, encodeArchive),
      );

    const importChats: api.Bot["import"] = (lines) => {
      const chunks = Stream.fromAsyncIterable(toBytes(lines), (error) => error);
      return run(archive.import(id, decodeArchive(chunks), actor));
    };

    const createKey: api.Bot["createKey"] = async (key = {}) => {
      const fields = { scopes: defaultScopes, ...withoutUndefined(key) };
      const apiKey = await run(administration.createKey(id, fields, actor));
      return { id: apiKey.id, key: Redacted.value(apiKey.key) };
    };

    const revokeKey: api.Bot["revokeKey"] = (key) => run(administration.revokeKey(id, key, actor));

    return {
      chatbot,
      createChat,
      chats,
      history,
      ask,
      stream,
      post,
      rename,
      rate,
      delete: remove,
      as,
      erase,
      usage,
      export: exportChats,
      import: importChats,
      createKey,
      revokeKey,
    };
  };

const checkUser = makeCheck(Schema.Struct({ userRef: UserRef.check(Schema.isNonEmpty()) }));

const checkStoreOptions = makeCheck(
  Schema.Struct({ idempotencyKey: Schema.optional(IdempotencyKeyText) }),
);

const checkErasure = makeCheck(
  Schema.Struct({
    chatId: Schema.optionalKey(Schema.Int),
    userRef: Schema.optionalKey(Text),
    idleSince: Schema.optionalKey(PointInTime),
  }).check(
    Schema.makeFilter(
      (which) =>
        Object.keys(which).length === 1 ||
        'Expected "all", or exactly one of chatId, userRef and idleSince',
    ),
  ),
);

const checkUsage = makeCheck(
  Schema.Struct({
    since: PointInTime,
    by: Schema.NullOr(Schema.Literals(["day", "key", "userRef"])),
  }),
);

const checkExport = makeCheck(Schema.Struct({ userRef: Schema.optionalKey(Text) }));

/** Casts without a check, because the services validate every value. */
const toChatId = (id: number) => id as ChatId;

async function* toBytes(lines: Parameters<api.Bot["import"]>[0]) {
  const encoder = new TextEncoder();
  for await (const line of typeof lines === "string" ? [lines] : lines) {
    yield typeof line === "string" ? encoder.encode(line) : line;
  }
}
