/**
 * The services of the core as promises and async iterables.
 */
import { Context, Duration, Effect, Layer, Logger, Metric, Redacted, Schema } from "effect";
import { Stream, Struct } from "effect";
import { decodeArchive, encodeArchive } from "../archive/ArchiveFormat.ts";
import { PointInTime, scopes } from "../model/ApiKey.ts";
import { ChatbotSettings, LongText, Name, type Chatbot } from "../model/Chatbot.ts";
import { StorageUnavailable } from "../model/Errors.ts";
import type { ChatQuery, EntryQuery } from "../model/ListQuery.ts";
import { makeCheck } from "../model/SchemaErrors.ts";
import { Text } from "../model/Text.ts";
import { ChatArchive, type Erasable } from "../ports/ChatArchive.ts";
import { Moderator } from "../ports/Moderator.ts";
import { Access } from "../services/Access.ts";
import { Administration } from "../services/Administration.ts";
import { Asking } from "../services/Asking.ts";
import { AskLimits } from "../services/AskLimits.ts";
import { Chats } from "../services/Chats.ts";
import { makeDrainingRuntime } from "../services/DrainingRuntime.ts";
import type { AnswerEvent } from "../services/LiveAnswer.ts";
import { layerParley } from "../services/Parley.ts";
import { checkChats, checkEntries, defined, makeList } from "./Lists.ts";
import type * as api from "./Parley.ts";

/** Opens the store, and rejects with its error if it cannot be used. */
export const openParley = async ({
  actor = "openParley",
  answerMillis = Duration.toMillis(AskLimits.defaultValue().deadline),
  log = console.error,
  moderator = Moderator.layerOff,
  ...wiring
}: api.ParleyOptions): Promise<api.Parley> => {
  await Effect.runPromise(checkOptions({ ...wiring, moderator, actor, answerMillis }));
  const loggers = log === false ? [] : [Logger.map(Logger.formatLogFmt, (line) => log(line))];
  const limits = { ...AskLimits.defaultValue(), deadline: Duration.millis(answerMillis) };
  const runtime = makeDrainingRuntime(
    layerParley({ ...wiring, moderator }).pipe(
      Layer.provideMerge(Logger.layer(loggers)),
      // Gauges of two instances would overwrite each other.
      Layer.provideMerge(Layer.succeed(Metric.MetricRegistry, new Map())),
      Layer.provideMerge(Layer.succeed(AskLimits, limits)),
    ),
  );
  const context = await runtime
    .run(async (services) => services, refuse)
    .catch((error: unknown) => runtime.dispose().then(() => Promise.reject(error)));
  type Services = typeof context extends Context.Context<infer R> ? R : never;
  const administration = Context.get(context, Administration);
  const archive = Context.get(context, ChatArchive);
  const asking = Context.get(context, Asking);
  const chats = Context.get(context, Chats);

  let expire = () => {};
  const expired = new Promise<void>((resolve) => (expire = resolve));
  const close = () => {
    // An iterator that is neither read nor left must not keep the store open for ever.
    const timer = setTimeout(expire, answerMillis + 5_000);
    return runtime.dispose().finally(() => clearTimeout(timer));
  };

  const run = async <A, E>(
    effect: Effect.Effect<A, E, Services>,
    { signal }: api.CallOptions = {},
  ): Promise<A> => {
    signal?.throwIfAborted();
    const start = () => Effect.runPromiseWith(context)(effect, { signal });
    return orAborted(runtime.run(start, refuse), signal);
  };

  /** Runs the stream from the first step of a loop on. The signal and the end of the loop end it at once. */
  const iterate = <A, E>(
    stream: Stream.Stream<A, E, Services>,
    { signal }: api.CallOptions = {},
  ): AsyncIterable<A> => ({
    [Symbol.asyncIterator]: () => {
      let iterator: AsyncIterator<A> | undefined;
      let isLeft = false;
      let end = () => {};
      const left = new Promise<void>((resolve) => (end = resolve));
      const leave = async (): Promise<IteratorResult<A>> => {
        isLeft = true;
        signal?.removeEventListener("abort", leave);
        await iterator?.return?.().finally(end);
        return { done: true, value: undefined };
      };
      const start = () =>
        new Promise<IteratorResult<A>>((resolve, reject) => {
          const loop = async () => {
            if (isLeft) return;
            iterator = Stream.toAsyncIterableWith(stream, context)[Symbol.asyncIterator]();
            signal?.addEventListener("abort", leave);
            resolve(iterator.next());
            await Promise.race([left, expired]);
          };
          runtime.run(loop, refuse).catch(reject);
        });
      const step = async (): Promise<IteratorResult<A>> => {
        signal?.throwIfAborted();
        if (isLeft) return leave();
        try {
          const result = await orAborted(iterator?.next() ?? start(), signal);
          return result.done ? leave() : result;
        } catch (error) {
          void leave();
          throw error;
        }
      };
      let last: Promise<unknown> = Promise.resolve();
      const next = () => {
        const result = last.then(step, step);
        last = result;
        return result;
      };
      return { next, return: leave };
    },
  });

  const bind = (chatbot: Chatbot, keyId: string | null = null): api.Bot => {
    const { id } = chatbot;
    return {
      chatbot,
      createChat: async (chat = {}, { idempotencyKey, signal } = {}) =>
        (await run(chats.create(chatbot, chat, idempotencyKey), { signal })).chat,
      chats: (query = {}, call) =>
        makeList(
          { search: null, userRef: null, ...query },
          checkChats,
          (page: ChatQuery) => chats.list(chatbot, page),
          (effect) => run(effect, call),
        ),
      history: (chatId, query = {}, call) =>
        makeList(
          { ...query, chatId } as api.HistoryQuery,
          checkEntries,
          ({ chatId: id, ...page }: EntryQuery & { readonly chatId: number }) =>
            chats.history(chatbot, id, page),
          (effect) => run(effect, call),
        ),
      ask: (chatId, question, { signal, ...options } = {}) =>
        run(asking.ask(chatbot, { chatId, question, keyId, ...defined(options) }), { signal }),
      stream: (chatId, question, { signal, ...options } = {}) => {
        const ask = {
          chatId,
          question,
          keyId,
          onDisconnect: "cancel",
          ...defined(options),
        } as const;
        return iterate(Stream.map(asking.stream(chatbot, ask), toEvent), { signal });
      },
      erase: (which) =>
        run(
          Effect.gen(function* () {
            if (which === "all") return yield* archive.erase(id, { _tag: "All" }, actor);
            yield* checkErasure(which);
            const erasable: Erasable =
              "chatId" in which
                ? { _tag: "Chat", id: which.chatId }
                : "userRef" in which
                  ? { _tag: "UserRef", ...(yield* administration.person(which.userRef)) }
                  : { _tag: "IdleSince", limit: which.idleSince };
            return yield* archive.erase(id, erasable, actor);
          }),
        ),
      usage: ({ by = null, since = new Date(0) } = {}) =>
        run(Effect.andThen(checkUsage({ by, since }), archive.usage(id, since, by))),
      export: ({ userRef } = {}) =>
        iterate(
          Stream.unwrap(
            Effect.gen(function* () {
              if (userRef === undefined) return archive.export(id, actor);
              yield* checkErasure({ userRef });
              return archive.export(id, actor, yield* administration.person(userRef));
            }),
          ).pipe(encodeArchive),
        ),
      import: (lines) => {
        const chunks = Stream.fromAsyncIterable(toBytes(lines), (error) => error);
        return run(archive.import(id, decodeArchive(chunks), actor));
      },
      createKey: async (key = {}) => {
        const created = await run(administration.createKey(id, { scopes, ...defined(key) }, actor));
        return { id: created.id, key: Redacted.value(created.key) };
      },
      revokeKey: (key) => run(administration.revokeKey(id, key, actor)),
    };
  };

  return {
    chatbot: async (declaration) => {
      const { description, name, workspace: workspaceName, ...settings } = defined(declaration);
      const change = { ...(description !== undefined && { description }), settings };
      const find = Effect.map(administration.chatbots, (all) =>
        all.find(({ chatbot }) => chatbot.name === name && chatbot.workspaceName === workspaceName),
      );
      const create = administration.createChatbot({ ...change, name, workspaceName }, actor);
      return bind(
        await run(
          Effect.gen(function* () {
            yield* checkDeclaration(defined(declaration));
            if ((yield* find) === undefined) {
              // Another process may create it at the same time.
              const created = yield* Effect.catchTag(create, "ChatbotTaken", () =>
                Effect.succeed(null),
              );
              if (created !== null) return created;
            }
            const { chatbot } = (yield* find)!;
            return yield* administration.changeChatbot(chatbot.id, change, actor);
          }),
        ),
      );
    },
    authenticate: async (text) => {
      const access = Context.get(context, Access);
      const { chatbot, keyId, scopes } = await run(access.authenticate(text));
      return { bot: bind(chatbot, keyId), scopes };
    },
    close,
    [Symbol.asyncDispose]: close,
    layer: Layer.succeedContext(context),
  };
};

const refuse = () =>
  Promise.reject(new StorageUnavailable({ cause: new Error("Parley was closed") }));

/** The promise, or a rejection with the signal's reason as soon as that is aborted. */
const orAborted = <A>(promise: Promise<A>, signal: AbortSignal | undefined): Promise<A> =>
  signal === undefined
    ? promise
    : new Promise((resolve, reject) => {
        const abort = () => reject(signal.reason);
        signal.addEventListener("abort", abort);
        promise.finally(() => signal.removeEventListener("abort", abort)).then(resolve, reject);
      });

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

const functionOrLayer = Schema.declare(
  (value): value is Function | Layer.Any => typeof value === "function" || Layer.isLayer(value),
  { expected: "a function or a layer" },
);
const checkOptions = makeCheck(
  Schema.Struct({
    store: Schema.declare((value): value is Layer.Any => Layer.isLayer(value), {
      expected: "a store, such as memory() or postgres(url)",
    }),
    answerer: functionOrLayer,
    moderator: functionOrLayer,
    actor: Name,
    answerMillis: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 3_600_000 })),
  }),
);
const checkErasure = makeCheck(
  Schema.Union([
    Schema.Struct({ chatId: Schema.Int }),
    Schema.Struct({ userRef: Text }),
    Schema.Struct({ idleSince: PointInTime }),
  ]),
);
const checkUsage = makeCheck(
  Schema.Struct({
    since: PointInTime,
    by: Schema.NullOr(Schema.Literals(["day", "key", "userRef"])),
  }),
);
const checkDeclaration = makeCheck(
  Schema.Struct({
    workspace: Name,
    name: Name,
    description: Schema.optionalKey(LongText),
    ...ChatbotSettings.mapFields(Struct.map(Schema.optionalKey)).fields,
  }),
);
