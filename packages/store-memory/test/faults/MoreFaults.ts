/**
 * More stores that break one promise each, written with the checks in view.
 */
import { ChatNotFound, turnLease, type Page, type Turn } from "@parley/core";
import { Effect, Stream } from "effect";
import { withArchive, withChats, withTurns, type Fault, type Stores } from "./Faults.ts";

const chats = (
  name: string,
  change: (chats: Stores["chats"]) => Partial<Stores["chats"]>,
): Fault => ({
  name,
  break: (stores) => withChats(stores, change(stores.chats)),
});

const turns = (
  name: string,
  change: (turns: Stores["turns"]) => Partial<Stores["turns"]>,
): Fault => ({
  name,
  break: (stores) => withTurns(stores, change(stores.turns)),
});

const archive = (
  name: string,
  change: (archive: Stores["archive"]) => Partial<Stores["archive"]>,
): Fault => ({
  name,
  break: (stores) => withArchive(stores, change(stores.archive)),
});

const mapPage = <A>(page: Page<A>, change: (item: A) => A): Page<A> => ({
  ...page,
  items: page.items.map(change),
});

export const moreFaults: ReadonlyArray<Fault> = [
  chats("the last page is one row short", ({ listChats }) => ({
    listChats: (chatbot, query) =>
      Effect.map(listChats(chatbot, query), ({ items, total }) => ({
        total,
        items: items.length > 1 && items.length < query.limit ? items.slice(0, -1) : items,
      })),
  })),
  chats("the total of a page past the end is 0", ({ listChats }) => ({
    listChats: (chatbot, query) =>
      Effect.map(listChats(chatbot, query), (page) =>
        page.items.length === 0 ? { items: [], total: 0 } : page,
      ),
  })),
  chats("the total ignores the search", ({ listChats }) => ({
    listChats: (chatbot, query) =>
      Effect.flatMap(listChats(chatbot, query), ({ items }) =>
        Effect.map(listChats(chatbot, { ...query, search: null }), ({ total }) => ({
          items,
          total,
        })),
      ),
  })),
  chats("an underscore in a search stands for any character", ({ listChats }) => ({
    listChats: (chatbot, query) =>
      query.search === "_"
        ? listChats(chatbot, { ...query, search: "" })
        : listChats(chatbot, query),
  })),
  chats("references are compared without their case", ({ listChats }) => ({
    listChats: (chatbot, query) =>
      query.userRef === "A"
        ? listChats(chatbot, { ...query, userRef: "a" })
        : listChats(chatbot, query),
  })),
  chats("an empty name is kept as none", ({ createChat }) => ({
    createChat: (chatbot, chat, key) =>
      createChat(chatbot, { ...chat, name: chat.name === "" ? null : chat.name }, key),
  })),
  chats("names lose the white space around them", ({ createChat }) => ({
    createChat: (chatbot, chat, key) =>
      createChat(chatbot, { ...chat, name: chat.name?.trim() ?? null }, key),
  })),
  chats("an unknown chat has an empty history", ({ listEntries }) => ({
    listEntries: (chatbot, chat, query) =>
      listEntries(chatbot, chat, query).pipe(
        Effect.catchTag("ChatNotFound", () => Effect.succeed({ items: [], total: 0 })),
      ),
  })),
  chats("the history of an entry's id is that of any chat", ({ listChats, listEntries }) => ({
    listEntries: Effect.fnUntraced(function* (chatbot, chat, query) {
      const page = yield* listEntries(chatbot, chat, query);
      if (query.id === null || page.total > 0) return page;
      const all = yield* listChats(chatbot, {
        ...query,
        limit: 100,
        page: 1,
        orderBy: [{ field: "id", descending: true }],
        id: null,
        search: null,
        userRef: null,
      });
      for (const { id } of all.items) {
        const other = yield* listEntries(chatbot, id, query);
        if (other.total > 0) return mapPage(other, (entry) => ({ ...entry, chatId: chat }));
      }
      return page;
    }),
  })),
  chats("the key of another request makes another chat", ({ createChat }) => ({
    createChat: (chatbot, chat, key) =>
      createChat(chatbot, chat, key).pipe(
        Effect.catchTag("RetryKeyReused", () => createChat(chatbot, chat, null)),
      ),
  })),
  turns("entries lose whether they were flagged", ({ append }) => ({
    append: (turn, entry) => append(turn, { ...entry, flagged: false }),
  })),
  turns("a renewal does not lengthen the lease", ({ renew }) => {
    const until = new Map<string, number>();
    return {
      renew: (turn: Turn) =>
        Effect.clockWith((clock) => {
          const now = clock.currentTimeMillisUnsafe();
          const end = until.get(turn.id) ?? now + turnLease / 10;
          until.set(turn.id, end);
          return now > end ? Effect.succeed(false) : renew(turn);
        }),
    };
  }),
  turns("a turn brings all entries of a long chat", ({ earlier, take }) => ({
    take: Effect.fnUntraced(function* (chatbot, chat, key) {
      const taken = yield* take(chatbot, chat, key);
      if (taken._tag !== "Turn" || taken.turn.newest.length < 20) return taken;
      const more = yield* earlier(taken.turn, taken.turn.newest.at(-1)!.id);
      return {
        ...taken,
        turn: { ...taken.turn, newest: [...taken.turn.newest, ...more] },
      };
    }),
  })),
  archive(
    "an erasure of a user's chats takes those without a user, too",
    ({ erase, export: all }) => ({
      erase: Effect.fnUntraced(function* (chatbot, which) {
        let erased = yield* erase(chatbot, which);
        if (which._tag !== "UserRef") return erased;
        for (const record of yield* Stream.runCollect(all(chatbot))) {
          if (record._tag === "Chat" && record.chat.userRef === null) {
            erased += yield* erase(chatbot, { _tag: "Chat", id: record.chat.id });
          }
        }
        return erased;
      }),
    }),
  ),
  {
    name: "one chatbot reads another's history",
    break: (stores) => ({
      ...stores,
      chats: {
        ...stores.chats,
        listEntries: (chatbot, chat, query) =>
          stores.chats
            .listEntries(chatbot, chat, query)
            .pipe(
              Effect.catchTag("ChatNotFound", () =>
                chatbot < 2
                  ? Effect.fail(new ChatNotFound({ chatId: chat }))
                  : Effect.catchTag(
                      stores.chats.listEntries(chatbot + 1, chat, query),
                      "ChatNotFound",
                      () => stores.chats.listEntries(chatbot - 1, chat, query),
                    ),
              ),
            ),
      },
    }),
  },
];
