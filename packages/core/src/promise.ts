/**
 * The services of the core for code without Effect, as promises.
 */
import { Effect, Schema, type Layer } from "effect";
import { Access } from "./services/Access.ts";
import { Asking } from "./services/Asking.ts";
import { NewChat } from "./model/Chat.ts";
import type { Chatbot } from "./model/Chatbot.ts";
import { Chats } from "./services/Chats.ts";
import { makeDrainingRuntime } from "./services/DrainingRuntime.ts";
import { StorageUnavailable } from "./model/Errors.ts";
import { ChatQuery, EntryQuery, newest, newestChats } from "./model/ListQuery.ts";
import { IdempotencyKeyText } from "./model/IdempotencyKey.ts";
import { Question } from "./model/Text.ts";

// Arguments are fields of a structure, so that a SchemaError names the wrong one.
const Keyed = Schema.Struct({ idempotencyKey: Schema.optional(IdempotencyKeyText) });
const History = Schema.Struct({ chatId: Schema.Int });
const Ask = Schema.Struct({
  chatId: Schema.NullOr(Schema.Int),
  question: Question,
  ...Keyed.fields,
});

/**
 * The services as promises. A promise rejects with an error of the core, whose `_tag` names it, or with a
 * `SchemaError` that names the field if an argument breaks a rule of the contract.
 */
export type Parley = ReturnType<typeof makeParley>;

/** The only user whose chats a call makes and finds, that of a `Principal`; every user by default. */
interface ForVisitor {
  readonly visitor?: string | null | undefined;
}

/** The services of `layer`, which is built at the first call. */
export const makeParley = <E>(layer: Layer.Layer<Access | Chats | Asking, E>) => {
  const runtime = makeDrainingRuntime(layer);
  const run = <A, E>(effect: Effect.Effect<A, E, Access | Chats | Asking>): Promise<A> =>
    runtime.run((context) => Effect.runPromiseWith(context)(effect), disposed);
  return {
    /** Checks an API key (section 5); rejects with `KeyRejected`, `RateExceeded` or `StorageUnavailable`. */
    authenticate: (key: string) => run(Access.use((access) => access.authenticate(key))),
    /** Creates a chat (section 4.2). A repetition with the same `idempotencyKey` returns the same chat for 24 hours. */
    createChat: async (
      chatbot: Chatbot,
      chat: { readonly name?: string | null; readonly userRef?: string | null } = {},
      { idempotencyKey, visitor }: { readonly idempotencyKey?: string } & ForVisitor = {},
    ) => {
      const wanted = Schema.decodeUnknownSync(NewChat)(chat);
      const { idempotencyKey: key = null } = Schema.decodeUnknownSync(Keyed)({ idempotencyKey });
      return run(Chats.use((chats) => chats.create(chatbot, wanted, key, visitor)));
    },
    /** A page of chats, and the number of chats that match (section 4.3); the newest 25 by default. */
    listChats: async (
      chatbot: Chatbot,
      query?: Partial<ChatQuery>,
      { visitor }: ForVisitor = {},
    ) => {
      const wanted = Schema.decodeUnknownSync(ChatQuery)({ ...newestChats, ...query });
      return run(Chats.use((chats) => chats.list(chatbot, wanted, visitor)));
    },
    /** A page of a chat's entries, and the number of entries that match (section 4.4); the newest 25 by default. */
    history: async (
      chatbot: Chatbot,
      chatId: number,
      query?: Partial<EntryQuery>,
      { visitor }: ForVisitor = {},
    ) => {
      const { chatId: id } = Schema.decodeUnknownSync(History)({ chatId });
      const wanted = Schema.decodeUnknownSync(EntryQuery)({ ...newest, ...query });
      return run(Chats.use((chats) => chats.history(chatbot, id, wanted, visitor)));
    },
    /**
     * Asks in a chat, or in a new one, and waits for the stored entry (section 4.5). A repetition with the same
     * `idempotencyKey` returns the same entry for 24 hours.
     */
    ask: async (
      chatbot: Chatbot,
      { chatId = null, question }: { readonly chatId?: number | null; readonly question: string },
      { idempotencyKey, visitor = null }: { readonly idempotencyKey?: string } & ForVisitor = {},
    ) => {
      const { idempotencyKey: key = null, ...wanted } = Schema.decodeUnknownSync(Ask)({
        chatId,
        question,
        idempotencyKey,
      });
      return run(Asking.use((asking) => asking.ask(chatbot, { ...wanted, key, visitor })));
    },
    /**
     * Waits for the promises in progress and releases the services. Later calls reject with `StorageUnavailable`. A
     * promise in progress must not wait for it: neither would end.
     */
    dispose: runtime.dispose,
  };
};

const disposed = () =>
  Promise.reject(new StorageUnavailable({ cause: new Error("the services were disposed of") }));
