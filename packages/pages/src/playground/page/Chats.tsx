/**
 * The chats, newest first, page by page, and the form of a new one.
 */
import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import type { Chat, Page } from "@parley/client";
import { Failure, focus, Time, useRead } from "./Parts.tsx";
import { client, route } from "./Session.ts";

/** Counts the chats that this page has created. */
const created = signal(0);

const limit = 25;

export const titleOf = ({ id, name }: Pick<Chat, "id" | "name">): string => name || `Chat ${id}`;

export const ChatList = () => {
  const [search, setSearch] = useState("");
  const [page, setPage] = useState(1);
  const {
    error,
    retry,
    value: found,
  } = useRead(
    async (signal) => {
      // A person is still typing.
      if (search !== "") await new Promise((resume) => setTimeout(resume, 250));
      return client.chats({ search: search || undefined, limit, page }, { signal }).page();
    },
    [search, page, created.value],
  );
  return (
    <>
      <div class="row">
        <input
          type="search"
          dir="auto"
          aria-label="Search chats by name"
          placeholder="Search chats"
          value={search}
          onInput={(event) => {
            setSearch(event.currentTarget.value);
            setPage(1);
          }}
        />
        <NewChatButton />
      </div>
      <Failure error={error} retry={retry} />
      <ul class="chats">
        {found?.data.map((chat) => (
          <li key={chat.id}>
            <a
              href={`#chat/${chat.id}`}
              aria-current={route.value === `chat/${chat.id}` ? "page" : undefined}
            >
              <span class={chat.name ? "name" : ""} dir="auto">
                {titleOf(chat)}
              </span>
              <span class="quiet facts">
                <Time iso={chat._createTime} />
                <bdi>{chat.userRef}</bdi>
              </span>
            </a>
          </li>
        ))}
      </ul>
      {found && (
        <div class="row">
          <p role="status">{positionOf(found)}</p>
          <button aria-label="Newer chats" disabled={page === 1} onClick={() => setPage(page - 1)}>
            ‹
          </button>
          <button
            aria-label="Older chats"
            disabled={page * limit >= found.total}
            onClick={() => setPage(page + 1)}
          >
            ›
          </button>
        </div>
      )}
    </>
  );
};

const positionOf = ({ data, page, total }: Page<Chat>): string => {
  if (total === 0) return "No chats";
  const before = (page - 1) * limit;
  const [first, last, all] = [before + 1, before + data.length, total].map((one) =>
    one.toLocaleString("en"),
  );
  return `${first}–${last} of ${all}`;
};

export const NewChatButton = () => (
  <button class="primary" onClick={() => (location.hash = "new")}>
    New chat
  </button>
);

export const NewChat = () => {
  const [error, setError] = useState<unknown>();
  const [isSending, setSending] = useState(false);
  const create = async (fields: FormData) => {
    const field = (name: string) => String(fields.get(name)) || null;
    setSending(true);
    try {
      const { id } = await client.createChat({ name: field("name"), userRef: field("userRef") });
      created.value++;
      location.replace(`#chat/${id}`);
    } catch (failed) {
      setError(failed);
      setSending(false);
    }
  };
  return (
    <form
      class="stack form"
      onSubmit={(event) => {
        event.preventDefault();
        void create(new FormData(event.currentTarget));
      }}
    >
      <a class="back" href="#">
        All chats
      </a>
      <h2>New chat</h2>
      <label for="name">Name</label>
      <input id="name" name="name" dir="auto" ref={focus} />
      <label for="user-ref">User reference</label>
      <input id="user-ref" name="userRef" dir="auto" aria-describedby="user-ref-help" />
      <p id="user-ref-help" class="quiet">
        Your own name of the user. Both may be empty.
      </p>
      <button class="primary" disabled={isSending}>
        Create chat
      </button>
      <Failure error={error} />
    </form>
  );
};
