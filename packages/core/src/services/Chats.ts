/**
 * Creates and reads chats.
 */
import { Context, Effect, Layer, Schema } from "effect";
import { Digest } from "effect/crypto";
import { NewChat } from "../model/Chat.ts";
import type { Chatbot } from "../model/Chatbot.ts";
import { UserRefNotGranted } from "../model/Errors.ts";
import { ratings, type Feedback } from "../model/Entry.ts";
import { ChatName, Comment } from "../model/Text.ts";
import { ChatArchive } from "../ports/ChatArchive.ts";
import { ChatStore } from "../ports/ChatStore.ts";
import { EntryEvents } from "./asking/EntryEvents.ts";
import { countRating, operation } from "./Telemetry.ts";
import { ChatQuery, EntryQuery } from "../model/ListQuery.ts";
import { makeCheck } from "../model/SchemaErrors.ts";
import { IdempotencyKeyText, toIdempotencyKey } from "../model/IdempotencyKey.ts";
import { ChatId } from "../model/Ids.ts";

const make = Effect.gen(function* () {
  const store = yield* ChatStore;
  const archive = yield* ChatArchive;
  const digest = yield* Digest.Digest;
  const events = yield* EntryEvents;
  // A metric does not appear until it has a value.
  for (const rating of ratings) yield* countRating(rating, 0);

  const create = operation("Chats.create")((
    chatbot: Chatbot,
    { name = null, userRef: requestedUserRef = null, ...rest }: NewChat,
    idempotencyKey: string | null = null,
    visitor: string | null = null,
  ) => {
    const userRef = requestedUserRef ?? visitor;
    const isGranted = visitor === null || userRef === visitor;
    const chat = { name, userRef, helloMessage: chatbot.settings.helloMessage || null };
    return checkChat({ ...rest, name, userRef, idempotencyKey }).pipe(
      Effect.andThen(toIdempotencyKey(digest, idempotencyKey, "chats", [name, userRef], visitor)),
      Effect.filterOrFail(
        () => isGranted,
        () => new UserRefNotGranted(),
      ),
      Effect.flatMap((requestKey) => store.createChat(chatbot.id, chat, requestKey)),
      Effect.tap(({ chat, helloEntry }) =>
        Effect.sync(() => {
          if (helloEntry !== null)
            events.publish("entry", { chatbot: chatbot.id, chat, entry: helloEntry, usage: null });
        }),
      ),
      // A client that disconnects must not cancel a write in progress.
      Effect.uninterruptible,
    );
  });

  const list = operation("Chats.list")((
    chatbot: Chatbot,
    query: ChatQuery,
    visitor: string | null = null,
  ) => {
    const userRef = query.userRef ?? visitor;
    return Effect.andThen(
      checkChatQuery(query),
      visitor !== null && userRef !== visitor
        ? Effect.succeed({ items: [], total: 0 })
        : store.listChats(chatbot.id, { ...query, userRef }),
    );
  });

  const history = operation("Chats.history")(
    (chatbot: Chatbot, chatId: ChatId, query: EntryQuery, visitor: string | null = null) =>
      Effect.andThen(
        checkEntryQuery({ ...query, chatId }),
        store.listEntries(chatbot.id, chatId, query, visitor),
      ),
  );

  const rename = operation("Chats.rename")(
    (chatbot: Chatbot, chatId: ChatId, name: string | null, visitor: string | null = null) =>
      Effect.andThen(
        checkRename({ chatId, name }),
        store.renameChat(chatbot.id, chatId, name, visitor),
      ).pipe(Effect.uninterruptible),
  );

  const rate = operation("Chats.rate")(
    (
      chatbot: Chatbot,
      chatId: ChatId,
      entryId: number,
      feedback: Partial<Feedback>,
      visitor: string | null = null,
    ) =>
      Effect.andThen(
        checkFeedback({ ...feedback, chatId, entryId }),
        store.rateEntry(chatbot.id, chatId, entryId, feedback, visitor),
      ).pipe(
        Effect.tap(() => (feedback.rating == null ? Effect.void : countRating(feedback.rating))),
        Effect.uninterruptible,
      ),
  );

  const remove = operation("Chats.delete")(
    (chatbot: Chatbot, chatId: ChatId, actor: string, visitor: string | null = null) =>
      Effect.andThen(
        checkDeletion({ chatId }),
        archive.deleteChat(chatbot.id, chatId, actor, visitor),
      ).pipe(Effect.uninterruptible),
  );

  return {
    /**
     * Creates a chat, and its hello entry if the chatbot has a hello message. With an idempotency key, the same request
     * returns the same chat for 24 hours, and a different request fails with `IdempotencyKeyReused`.
     *
     * Every method fails with `ArgumentInvalid` if an argument is invalid. In every method, `visitor` is the only user
     * whose chats are accessible (the `visitor` of a `Principal`), or `null` for every user. A chat that a visitor
     * creates has the visitor as its `userRef`; any other `userRef` fails with `UserRefNotGranted`.
     */
    create,
    /** Returns a page of the chatbot's chats, and the number of chats that match. */
    list,
    /** Returns a page of the chat's entries, and the number of entries that match. */
    history,
    /** Gives a chat another name, or none. */
    rename,
    /** Changes the given fields of an entry's feedback, and returns the entry with its metadata and its feedback. */
    rate,
    /** Erases a chat with everything in it, and returns the chat as it was. `actor` is for the audit log. */
    delete: remove,
  };
});

const checkChat = makeCheck(
  Schema.Struct({ ...NewChat.fields, idempotencyKey: Schema.NullOr(IdempotencyKeyText) }),
);

const checkRename = makeCheck(Schema.Struct({ chatId: ChatId, name: Schema.NullOr(ChatName) }));
const checkFeedback = makeCheck(
  Schema.Struct({
    chatId: ChatId,
    entryId: Schema.Int,
    rating: Schema.optionalKey(Schema.NullOr(Schema.Literals(ratings))),
    comment: Schema.optionalKey(Schema.NullOr(Comment)),
  }),
);
const checkDeletion = makeCheck(Schema.Struct({ chatId: ChatId }));

const checkChatQuery = makeCheck(ChatQuery);
const checkEntryQuery = makeCheck(Schema.Struct({ ...EntryQuery.fields, chatId: ChatId }));

/** Creates chats, and lists them and their entries. */
export class Chats extends Context.Service<Chats>()("@parley/core/Chats", { make }) {
  static readonly layer = Layer.effect(Chats, Chats.make);
}
