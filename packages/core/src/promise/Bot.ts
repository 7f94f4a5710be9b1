/**
 * The API of one chatbot as promises and async iterables.
 */
import { Context, Effect, Redacted, Schema, Stream, Struct } from "effect";
import { decodeArchive, encodeArchive } from "../archive/ArchiveFormat.ts";
import { defaultScopes, PointInTime } from "../model/ApiKey.ts";
import type { Chatbot } from "../model/Chatbot.ts";
import { pickEntry, type Entry } from "../model/Entry.ts";
import { ChatId } from "../model/Ids.ts";
import {
  chatFields,
  entryFields,
  entryIncludes,
  type ChatQuery,
  type EntryQuery,
} from "../model/ListQuery.ts";
import { ArgumentInvalid, UserRefNotGranted } from "../model/Errors.ts";
import { optionsOf } from "../model/Options.ts";
import { makeCheck } from "../model/SchemaErrors.ts";
import { Text, UserRef } from "../model/Text.ts";
import { ChatArchive, type Erasable } from "../ports/ChatArchive.ts";
import type { Principal } from "../services/access/Access.ts";
import { Administration } from "../services/Administration.ts";
import { Asking } from "../services/asking/Asking.ts";
import { Chats } from "../services/Chats.ts";
import type { AnswerEvent } from "../services/asking/LiveAnswer.ts";
import type { Calls } from "./Calls.ts";
import { makeList } from "./Lists.ts";
import type * as api from "./Interface.ts";
import { userMethods } from "./Interface.ts";

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

    /** Splits the options of an ask into what the service needs, and what the caller does. */
    const toAsk = (
      call: string,
      chatId: number | null,
      question: string,
      options: api.AskOptions | undefined,
    ) => {
      const { include = [], signal, ...rest } = optionsOf(call, options, askOptions);
      const ask = {
        ...rest,
        apiKeyId,
        tokensPerDay,
        visitor,
        chatId: chatId === null ? null : toChatId(chatId),
        question,
      };
      const pick = <Result extends { readonly entry: Entry }>(result: Result) => ({
        ...result,
        entry: pickEntry(result.entry, include),
      });
      return { ask, pick, signal, check: checkInclude({ include }) };
    };

    return {
      chatbot,

      createChat: async (chat, options) => {
        const fields = optionsOf("createChat", chat, { name: false, userRef: false });
        const { signal, ...more } = optionsOf("createChat", options, storeOptions);
        const { idempotencyKey = null } = more;
        const creation = chatService.create(chatbot, fields, idempotencyKey, visitor);
        return run(
          Effect.map(creation, ({ chat }) => chat),
          { signal },
        );
      },

      chats: (query, options) => {
        const call = optionsOf("chats", options, callOptions);
        return makeList(
          { search: null, userRef: null, include: [], ...optionsOf("chats", query, chatsQuery) },
          chatFields,
          (page: ChatQuery) => chatService.list(chatbot, page, visitor),
          (effect) => run(effect, call),
        );
      },

      history: (chatId, query, options) => {
        const call = optionsOf("history", options, callOptions);
        return makeList(
          { after: null, include: [], ...optionsOf("history", query, historyQuery) },
          entryFields,
          (page: EntryQuery) => chatService.history(chatbot, toChatId(chatId), page, visitor),
          (effect) => run(effect, call),
        );
      },

      ask: async (chatId, question, options) => {
        const { ask, check, pick, signal } = toAsk("ask", chatId, question, options);
        return run(Effect.andThen(check, Effect.map(asking.ask(chatbot, ask), pick)), { signal });
      },

      post: async (chatId, text, options) => {
        const { signal, ...rest } = optionsOf("post", options, {
          ...storeOptions,
          metadata: false,
        });
        const newPost = { ...rest, apiKeyId, visitor, chatId: toChatId(chatId), text };
        return run(
          Effect.map(asking.post(chatbot, newPost), ({ entry }) => pickEntry(entry, ["metadata"])),
          { signal },
        );
      },

      rename: (chatId, name) => run(chatService.rename(chatbot, toChatId(chatId), name, visitor)),

      rate: async (chatId, entryId, feedback) => {
        const change = optionsOf("rate", feedback, { rating: false, comment: false });
        return run(
          Effect.map(
            chatService.rate(chatbot, toChatId(chatId), entryId, change, visitor),
            (entry) => pickEntry(entry, ["feedback"]),
          ),
        );
      },

      delete: (chatId) =>
        run(chatService.delete(chatbot, toChatId(chatId), apiKeyId ?? actor, visitor)),

      as: (userRef) => {
        Effect.runSync(checkUser({ userRef }));
        if (visitor !== null && visitor !== userRef) throw new UserRefNotGranted();
        const user = { ...principal, chatbot, apiKeyId, visitor: userRef };
        return Struct.pick(makeBots(context, { iterate, run }, actor)(chatbot, user), userMethods);
      },

      stop: (idempotencyKey) => run(asking.stop(chatbot, idempotencyKey, visitor)),

      stream: (chatId, question, options) => {
        const { ask, check, pick, signal } = toAsk("stream", chatId, question, options);
        const toEvent = (event: AnswerEvent): api.AnswerEvent =>
          event._tag === "Delta"
            ? { type: "delta", text: event.text }
            : { type: "entry", entry: pick(event).entry };
        const events = asking.stream(chatbot, { onDisconnect: "cancel", ...ask });
        return iterate(Stream.unwrap(Effect.as(check, Stream.map(events, toEvent))), { signal });
      },

      erase: async (which) => {
        if (which !== "all")
          await run(checkErasure(optionsOf<Erasure>("erase", which, erasureOptions)));
        const selection = Effect.gen(function* (): Effect.fn.Return<Erasable, unknown> {
          if (which === "all") return { _tag: "All" };
          if ("chatId" in which) return { _tag: "Chat", id: ChatId.make(which.chatId) };
          if ("idleSince" in which) return { _tag: "IdleSince", limit: which.idleSince };
          return { _tag: "UserRef", ...(yield* administration.person(which.userRef)) };
        });
        return run(Effect.flatMap(selection, (erasable) => archive.erase(id, erasable, actor)));
      },

      usage: async (query) => {
        const options = optionsOf("usage", query, { since: false, until: false, by: false });
        const { by = null, since = new Date(0), until = null } = options;
        const whole = { by, since, until };
        return run(Effect.andThen(checkUsage(whole), archive.usage(id, whole)));
      },

      export: (which) => {
        const options = optionsOf("export", which, { userRef: false });
        return iterate(
          Effect.gen(function* () {
            yield* checkExport(options);
            const { userRef } = options;
            if (userRef === undefined) return archive.export(id, actor);
            return archive.export(id, actor, yield* administration.person(userRef));
          }).pipe(Stream.unwrap, encodeArchive),
        );
      },

      import: async (lines) => {
        checkLines(lines);
        const chunks = Stream.fromAsyncIterable(toBytes(lines), (error) => error);
        return run(archive.import(id, decodeArchive(chunks), actor));
      },

      createKey: async (key) => {
        const fields = { scopes: defaultScopes, ...optionsOf("createKey", key, keyOptions) };
        const apiKey = await run(administration.createKey(id, fields, actor));
        return { id: apiKey.id, key: Redacted.value(apiKey.key) };
      },

      revokeKey: (key) => run(administration.revokeKey(id, key, actor)),
    };
  };

const checkUser = makeCheck(Schema.Struct({ userRef: UserRef.check(Schema.isNonEmpty()) }));

const checkInclude = makeCheck(
  Schema.Struct({ include: Schema.Array(Schema.Literals(entryIncludes)) }),
);

const callOptions = { signal: false } as const;
const storeOptions = { ...callOptions, idempotencyKey: false } as const;
const askOptions = {
  ...storeOptions,
  onDisconnect: false,
  context: false,
  include: false,
} as const;
const listQuery = {
  limit: false,
  page: false,
  orderBy: false,
  desc: false,
  id: false,
  include: false,
} as const;
const chatsQuery = { ...listQuery, search: false, userRef: false } as const;
const historyQuery = { ...listQuery, after: false } as const;
interface Erasure {
  readonly chatId?: number;
  readonly userRef?: string;
  readonly idleSince?: Date;
}
const erasureOptions = { chatId: false, userRef: false, idleSince: false } as const;
const keyOptions = { name: false, scopes: false, expiresAt: false, ratePerMinute: false } as const;

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
    until: Schema.NullOr(PointInTime),
    by: Schema.NullOr(Schema.Literals(["day", "key", "userRef"])),
  }),
);

const checkExport = makeCheck(Schema.Struct({ userRef: Schema.optionalKey(Text) }));

/** Casts without a check, because the services validate every value. */
const toChatId = (id: number) => id as ChatId;

/** The encoded pieces. One piece may end with the first half of a surrogate pair. */
async function* toBytes(lines: Parameters<api.Bot["import"]>[0]) {
  const encoder = new TextEncoder();
  let half = "";
  for await (const line of typeof lines === "string" ? [lines] : lines) {
    if (typeof line === "string") {
      const text = half + line;
      half = /[\ud800-\udbff]$/.exec(text)?.[0] ?? "";
      yield encoder.encode(text.slice(0, text.length - half.length));
    } else yield line;
  }
  if (half !== "") yield encoder.encode(half);
}

const importArgument = "expects the lines of an export: an iterable of text or bytes";
/** Fails unless the lines can be iterated. */
const checkLines = (lines: unknown): void => {
  const { [Symbol.asyncIterator]: asynchronous, [Symbol.iterator]: synchronous } = Object(lines);
  if (typeof (asynchronous ?? synchronous) === "function") return;
  const message = `import: ${importArgument}.`;
  throw new ArgumentInvalid({ field: "", reason: importArgument, message });
};
