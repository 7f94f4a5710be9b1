/**
 * The chats, page by page: those first in which something was stored last.
 */
import { useEffect, useRef } from "preact/hooks";
import { ConnectionError, ResponseError } from "@parley/client";
import type { Chat, ChatsQuery, Page } from "@parley/client";
import { entries, stale } from "../../page/ChatSession.ts";
import { Failure } from "../../page/Failure.tsx";
import { Icon, IconButton, pause, Time, useRead } from "../../page/Parts.tsx";
import { nameChat, titleOf } from "../../page/titles.ts";
import { toLocale, translate } from "../../page/words.ts";
import { client, list, route } from "./Session.ts";

const limit = 25;

/** The chats that this page has read, by id. */
const readChatsById = new Map<number, Chat>();

/** Whether the server has not yet refused to sort the chats by their last activity. */
let sortsByActivity = true;

/** Reads a page of chats in the order of their last activity or, if the server refuses it, newest first. */
const readChats = async (query: ChatsQuery, signal: AbortSignal): Promise<Page<Chat>> => {
  const byActivity = { orderBy: "_lastEntryTime", desc: true, include: ["activity"] } as const;
  // On a server with very many chats, the order may take too long.
  const options = { signal: AbortSignal.any([signal, AbortSignal.timeout(3000)]) };
  try {
    if (sortsByActivity) return await client.chats({ ...query, ...byActivity }, options).page();
  } catch (error) {
    if (signal.aborted || error instanceof ConnectionError) throw error;
    if (error instanceof ResponseError && error.status === 401) throw error;
    sortsByActivity = false;
  }
  return client.chats(query, { signal }).page();
};

export const ChatList = () => {
  const { page, search } = list.value;
  const openPage = (to: number) => (list.value = { page: to, search });
  const { error, retry, value } = useRead(
    async (signal) => {
      // The person may still be typing.
      if (search !== "") await pause(250);
      const read = (query: ChatsQuery) => readChats({ ...query, limit, page }, signal);
      let chats = await read({ search: search || undefined });
      // No chat's name contains the search text, which may be a user reference instead.
      if (chats.total === 0 && search !== "" && [...search].length <= 60)
        chats = await read({ userRef: search });
      for (const chat of chats.data) readChatsById.set(chat.id, chat);
      // The page that this tab showed last may be gone: its chats may have been erased.
      if (chats.data.length === 0 && chats.total > 0) openPage(Math.ceil(chats.total / limit));
      return chats;
    },
    [search, page, stale.value, entries.value.size],
  );
  // The server searches names only, so the first page adds the chats without a name whose first question matches.
  const isTitled = (chat: Chat) =>
    chat.name === null &&
    titleOf(chat).toLowerCase().includes(search.toLowerCase()) &&
    !value?.data.some(({ id }) => id === chat.id);
  const titledChats = search === "" || page > 1 ? [] : [...readChatsById.values()].filter(isTitled);
  const chats = [...titledChats, ...(value?.data ?? [])];
  const days = Map.groupBy(chats, (chat) => dayOf(timeOf(chat)));
  return (
    <>
      <div class="row">
        <input
          type="search"
          id="search"
          dir="auto"
          aria-label={translate("Search chats")}
          placeholder={translate("Search chats")}
          title={translate("Search by name, first question or exact user reference ({})", "Ctrl+K")}
          value={search}
          onInput={(event) => (list.value = { page: 1, search: event.currentTarget.value })}
        />
        <a class="button" href="#" title={`${translate("New chat")} (Ctrl+Shift+O)`}>
          <Icon name="plus" />
          {translate("New chat")}
        </a>
      </div>
      <Failure error={error} retry={retry} />
      <div class="chats">
        {[...days].map(([day, chats]) => (
          <section key={day}>
            <h2>{day}</h2>
            <ul>
              {chats.map((chat) => (
                <Row key={chat.id} {...chat} />
              ))}
            </ul>
          </section>
        ))}
        {value && chats.length === 0 && (
          <p class="quiet">
            {translate(
              search === "" ? "No chats yet." : "No chats match that name or user reference.",
            )}
          </p>
        )}
      </div>
      {value && value.data.length > 0 && (
        <div class="row">
          <p class="quiet" role="status">
            {positionOf(value)}
          </p>
          <IconButton
            icon="back"
            title={translate("Newer chats")}
            disabled={page === 1}
            onClick={() => openPage(page - 1)}
          />
          <IconButton
            icon="next"
            title={translate("Older chats")}
            disabled={page * limit >= value.total}
            onClick={() => openPage(page + 1)}
          />
        </div>
      )}
    </>
  );
};

const Row = (chat: Chat) => {
  const row = useRef<HTMLLIElement>(null);
  useEffect(() => {
    const observer = new IntersectionObserver(([observation]) => {
      if (!observation!.isIntersecting) return;
      observer.disconnect();
      void nameChat(chat);
    });
    observer.observe(row.current!);
    return () => observer.disconnect();
  }, [chat.id]);
  return (
    <li ref={row}>
      <a
        href={`#chat/${chat.id}`}
        aria-current={route.value === `chat/${chat.id}` ? "page" : undefined}
      >
        <span class="name" dir="auto">
          {titleOf(chat)}
        </span>
        <span class="quiet facts">
          <Time iso={timeOf(chat)} />
          {chat.userRef && <bdi>{chat.userRef}</bdi>}
        </span>
      </a>
    </li>
  );
};

const timeOf = ({ _createTime, _lastEntryTime = _createTime }: Chat): string => _lastEntryTime;

const dayOf = (iso: string): string => {
  const [date, today] = [new Date(iso), new Date()];
  const days = Math.round(
    (new Date(today).setHours(0, 0, 0, 0) - date.setHours(0, 0, 0, 0)) / 864e5,
  );
  const year = date.getFullYear() === today.getFullYear() ? undefined : "numeric";
  return (
    [translate("Today"), translate("Yesterday")][days] ??
    date.toLocaleDateString(toLocale(), { day: "numeric", month: "long", year })
  );
};

const positionOf = ({ data, page, total }: Page<Chat>): string => {
  const before = (page - 1) * limit;
  const [first, last, all] = [before + 1, before + data.length, total].map((number) =>
    number.toLocaleString(toLocale()),
  );
  return translate("{}–{} of {}", first, last, all);
};
