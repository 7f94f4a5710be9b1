/**
 * The chats, newest first, page by page.
 */
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import type { Chat, Client, Page } from "../../client/index.ts";
import { Failure } from "./Failure.tsx";
import { route } from "./Session.ts";
import { Time } from "./Time.tsx";

/** Changes when a chat was created. */
export const listed = signal(0);

const limit = 25;
const number = new Intl.NumberFormat("en");

export const titleOf = ({ id, name }: Pick<Chat, "id" | "name">): string => name || `Chat ${id}`;

export const ChatList = ({ client }: { readonly client: Client }) => {
  const [search, setSearch] = useState("");
  const [page, setPage] = useState(1);
  const [found, setFound] = useState<Page<Chat> | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [attempt, setAttempt] = useState(0);

  useEffect(() => {
    const hangUp = new AbortController();
    const read = () =>
      client
        .chats({ search: search || undefined, limit, page }, { signal: hangUp.signal })
        .page()
        .then(
          (next) => {
            setFound(next);
            setError(null);
          },
          (failed: unknown) => {
            if (!hangUp.signal.aborted) setError(failed);
          },
        );
    // A person is still typing.
    const timer = setTimeout(() => void read(), search === "" ? 0 : 250);
    return () => {
      clearTimeout(timer);
      hangUp.abort();
    };
  }, [client, search, page, attempt, listed.value]);

  const first = (page - 1) * limit + 1;
  const total = found?.total ?? 0;
  return (
    <>
      <div class="tools">
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
        <a class="button primary" href="#new">
          New chat
        </a>
      </div>
      <Failure error={error} retry={() => setAttempt(attempt + 1)} />
      <ul class="chats">
        {found?.data.map((chat) => (
          <li key={chat.id}>
            <a
              href={`#chat/${chat.id}`}
              aria-current={route.value === `chat/${chat.id}` ? "page" : undefined}
            >
              <span class={chat.name ? "name" : "name unnamed"} dir="auto">
                {titleOf(chat)}
              </span>
              <span class="quiet facts">
                <Time iso={chat._createTime} />
                {chat.userRef && <bdi class="user">{chat.userRef}</bdi>}
              </span>
            </a>
          </li>
        ))}
      </ul>
      {found && (
        <div class="pages">
          <p role="status">
            {total === 0
              ? "No chats"
              : found.data.length === 0
                ? `No chats here, ${number.format(total)} in all`
                : `${number.format(first)}–${number.format(first + found.data.length - 1)} of ${number.format(total)}`}
          </p>
          <button aria-label="Newer chats" disabled={page === 1} onClick={() => setPage(page - 1)}>
            ‹
          </button>
          <button
            aria-label="Older chats"
            disabled={page * limit >= total}
            onClick={() => setPage(page + 1)}
          >
            ›
          </button>
        </div>
      )}
    </>
  );
};
