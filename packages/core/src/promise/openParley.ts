/**
 * The services of the core as promises and async iterables.
 */
import { Context, Duration, Effect, Layer, Logger, Metric, Redacted, Stream } from "effect";
import { decodeArchive, encodeArchive } from "../archive/ArchiveFormat.ts";
import { scopes } from "../model/ApiKey.ts";
import type { Chatbot } from "../model/Chatbot.ts";
import { ChatId } from "../model/Ids.ts";
import type { ChatQuery, EntryQuery } from "../model/ListQuery.ts";
import { ChatArchive, type Erasable } from "../ports/ChatArchive.ts";
import { Moderator } from "../ports/Moderator.ts";
import { Access, type Principal } from "../services/Access.ts";
import { Administration } from "../services/Administration.ts";
import { Asking } from "../services/Asking.ts";
import { AskLimits } from "../services/AskLimits.ts";
import { Chats } from "../services/Chats.ts";
import type { AnswerEvent } from "../services/LiveAnswer.ts";
import { layerParley } from "../services/Parley.ts";
import { makeCalls } from "./Calls.ts";
import * as check from "./Checks.ts";
import { withoutUndefined, makeList } from "./Lists.ts";
import type * as api from "./Parley.ts";

/**
 * Opens the store. Rejects with its error if it cannot be used, and with `ArgumentInvalid` if an option is wrong. Close
 * the result at the end of the process.
 */
export const openParley: (options: api.ParleyOptions) => Promise<api.Parley> = async ({
  actor = "openParley",
  answerMillis = Duration.toMillis(AskLimits.defaultValue().deadline),
  log = console.error,
  moderator = Moderator.layerOff,
  ...wiring
}) => {
  await Effect.runPromise(check.options({ ...wiring, moderator, actor, answerMillis }));
  const loggers = log === false ? [] : [Logger.map(Logger.formatLogFmt, (line) => log(line))];
  const limits = { ...AskLimits.defaultValue(), deadline: Duration.millis(answerMillis) };
  const layer = layerParley({ ...wiring, moderator }).pipe(
    Layer.provideMerge(Logger.layer(loggers)),
    // In a shared registry, the gauges of two instances would overwrite each other.
    Layer.provideMerge(Layer.succeed(Metric.MetricRegistry, new Map())),
    Layer.provideMerge(Layer.succeed(AskLimits, limits)),
  );
  const { close, context, iterate, run } = await makeCalls(layer, answerMillis + 5_000);
  const administration = Context.get(context, Administration);
  const archive = Context.get(context, ChatArchive);
  const asking = Context.get(context, Asking);
  const chats = Context.get(context, Chats);

  const bind = (chatbot: Chatbot, principal?: Principal): api.Bot => {
    const { id } = chatbot;
    const { apiKeyId = null, tokensPerDay = null, visitor = null } = principal ?? {};
    const asker = { apiKeyId, tokensPerDay, visitor };
    /** `Asking` checks the values, the id of the chat among them. */
    const toAsk = (chatId: number | null, question: string, options: api.AskOptions) => ({
      ...withoutUndefined(options),
      ...asker,
      chatId: chatId as ChatId | null,
      question,
    });
    return {
      chatbot,
      createChat: (chat = {}, { signal, ...options } = {}) =>
        run(
          Effect.gen(function* () {
            yield* check.idempotency(options);
            return (yield* chats.create(chatbot, chat, options.idempotencyKey, visitor)).chat;
          }),
          { signal },
        ),
      chats: (query = {}, call) =>
        makeList(
          { search: null, userRef: null, ...query },
          check.chats,
          (page: ChatQuery) => chats.list(chatbot, page, visitor),
          (effect) => run(effect, call),
        ),
      history: (chatId, query = {}, call) =>
        makeList(
          { ...query, chatId } as api.HistoryQuery,
          check.entries,
          ({ chatId: id, ...page }: EntryQuery & { readonly chatId: ChatId }) =>
            chats.history(chatbot, id, page, visitor),
          (effect) => run(effect, call),
        ),
      ask: (chatId, question, { signal, ...options } = {}) =>
        run(asking.ask(chatbot, toAsk(chatId, question, options)), { signal }),
      stream: (chatId, question, { signal, onDisconnect = "cancel", ...options } = {}) => {
        const ask = toAsk(chatId, question, { ...options, onDisconnect });
        return iterate(Stream.map(asking.stream(chatbot, ask), toEvent), { signal });
      },
      erase: (which) =>
        run(
          Effect.gen(function* () {
            if (which !== "all") yield* check.erasure(which);
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
        ),
      usage: ({ by = null, since = new Date(0), ...rest } = {}) =>
        run(Effect.andThen(check.usage({ ...rest, by, since }), archive.usage(id, since, by))),
      export: (which = {}) =>
        iterate(
          Effect.gen(function* () {
            yield* check.exportFilter(withoutUndefined(which));
            const { userRef } = which;
            if (userRef === undefined) return archive.export(id, actor);
            return archive.export(id, actor, yield* administration.person(userRef));
          }).pipe(Stream.unwrap, encodeArchive),
        ),
      import: (lines) => {
        const chunks = Stream.fromAsyncIterable(toBytes(lines), (error) => error);
        return run(archive.import(id, decodeArchive(chunks), actor));
      },
      createKey: async (key = {}) => {
        const fields = { scopes, ...withoutUndefined(key) };
        const apiKey = await run(administration.createKey(id, fields, actor));
        return { id: apiKey.id, key: Redacted.value(apiKey.key) };
      },
      revokeKey: (key) => run(administration.revokeKey(id, key, actor)),
    };
  };

  const findOrCreate = Effect.fnUntraced(function* (declaration: api.ChatbotDeclaration) {
    yield* check.declaration(declaration);
    const { description, name, workspace: workspaceName, ...settings } = declaration;
    const change = { ...(description !== undefined && { description }), settings };
    const find = Effect.map(administration.chatbots, (all) =>
      all.find(({ chatbot }) => chatbot.name === name && chatbot.workspaceName === workspaceName),
    );
    const createOrChange = Effect.gen(function* () {
      const existing = yield* find;
      return existing === undefined
        ? yield* administration.createChatbot({ ...change, name, workspaceName }, actor)
        : yield* administration.changeChatbot(existing.chatbot.id, change, actor);
    });
    return yield* Effect.retry(createOrChange, {
      // Another process created or deleted the chatbot in the meantime.
      while: ({ _tag }) => _tag === "ChatbotTaken" || _tag === "ChatbotNotFound",
      times: 3,
    });
  });

  return {
    chatbot: async (declaration) => bind(await run(findOrCreate(withoutUndefined(declaration)))),
    authenticate: async (text) => {
      const access = Context.get(context, Access);
      const principal = await run(access.authenticate(text));
      return { bot: bind(principal.chatbot, principal), scopes: principal.scopes };
    },
    close,
    [Symbol.asyncDispose]: close,
    layer: Layer.succeedContext(context),
  };
};

const toEvent = (event: AnswerEvent): api.AnswerEvent =>
  event._tag === "Delta"
    ? { type: "delta", text: event.text }
    : { type: "entry", entry: event.entry };

async function* toBytes(lines: Parameters<api.Bot["import"]>[0]) {
  const encoder = new TextEncoder();
  for await (const line of typeof lines === "string" ? [lines] : lines) {
    yield typeof line === "string" ? encoder.encode(line) : line;
  }
}
