/**
 * A chat: its history, the answer that arrives, and the next question.
 */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Chat, Client, Entry } from "../../client/index.ts";
import { titleOf } from "./ChatList.tsx";
import { Failure } from "./Failure.tsx";
import { Markdown } from "./Markdown.tsx";
import { addresses, asks, mayAsk, startAsk, type Ask } from "./Session.ts";
import { Time } from "./Time.tsx";

const limit = 100;
const longestQuestion = 200;
const number = new Intl.NumberFormat("en");

/** The newest entries of a chat, and older ones on demand, in groups that do not change. */
const useHistory = (client: Client, chatId: number) => {
  const [groups, setGroups] = useState<ReadonlyArray<ReadonlyArray<Entry>>>([]);
  const [total, setTotal] = useState<number | null>(null);
  const [error, setError] = useState<unknown>(null);
  const known = useRef(new Set<number>());
  const isReading = useRef(false);

  const read = async (page: number) => {
    if (isReading.current && page > 1) return;
    isReading.current = true;
    try {
      const found = await client.history(chatId, { limit, page }).page();
      const added = found.data.filter(({ id }) => !known.current.has(id)).reverse();
      // There may be more new entries, between these and the known ones.
      const hasGap = page === 1 && added.length === limit;
      if (hasGap) known.current.clear();
      for (const { id } of added) known.current.add(id);
      if (added.length > 0) {
        setGroups((rest) => (hasGap ? [added] : page === 1 ? [...rest, added] : [added, ...rest]));
      }
      setTotal(found.total);
      setError(null);
    } catch (failed) {
      setError(failed);
    } finally {
      isReading.current = false;
    }
  };

  useEffect(() => void read(1), [client, chatId]);
  const count = known.current.size;
  return {
    groups,
    count,
    total,
    error,
    refresh: () => read(1),
    // Entries that were added since have moved the pages. Those that arrive twice are kept once.
    readOlder: () => read(Math.floor(count / limit) + 1),
  };
};

interface ConversationProps {
  readonly client: Client;
  readonly chatId: number;
}

export const Conversation = ({ chatId, client }: ConversationProps) => {
  const { count, error, groups, readOlder, refresh, total } = useHistory(client, chatId);
  const [chat, setChat] = useState<Chat | null>(null);
  useEffect(() => {
    client
      .chats({ id: chatId })
      .page()
      // The history shows the failure.
      .then(
        ({ data }) => setChat(data[0] ?? null),
        () => {},
      );
  }, [client, chatId]);

  useEffect(() => {
    // On a phone, the field would open the keyboard over the history.
    const target = matchMedia("(hover: hover)").matches ? "textarea" : ".conversation h2";
    document.querySelector<HTMLElement>(target)?.focus();
  }, []);

  const ask = asks.value.get(chatId);
  return (
    <div class="conversation">
      <header>
        <a class="back" href="#">
          All chats
        </a>
        <h2 dir="auto" tabIndex={-1}>
          {titleOf(chat ?? { id: chatId, name: null })}
        </h2>
        <p class="quiet facts">
          <span>Chat {chatId}</span>
          {chat?.userRef && <bdi class="user">{chat.userRef}</bdi>}
          {total !== null && (
            <span>{total === 1 ? "1 entry" : `${number.format(total)} entries`}</span>
          )}
        </p>
      </header>
      <div class="scroller" role="region" aria-label="History" tabIndex={0}>
        <div>
          <Failure error={error} retry={() => void refresh()} />
          {total !== null && count < total && (
            <Older key={count} readOlder={() => void readOlder()} />
          )}
          {groups.map((entries) => (
            <Group key={entries[0]!.id} entries={entries} />
          ))}
          {ask && <Answering {...ask} />}
          {total === 0 && !ask && <p class="empty">Nothing has been said yet.</p>}
        </div>
      </div>
      <Composer ask={ask} send={(question) => startAsk(client, chatId, question, refresh)} />
    </div>
  );
};

/** Reads older entries when it comes into view, or when it is pressed. */
const Older = ({ readOlder }: { readonly readOlder: () => void }) => {
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    const observer = new IntersectionObserver(
      (seen) => {
        if (seen.some(({ isIntersecting }) => isIntersecting)) readOlder();
      },
      { root: button.current!.closest(".scroller"), rootMargin: "600px" },
    );
    observer.observe(button.current!);
    return () => observer.disconnect();
  }, []);
  return (
    <button class="older" ref={button} onClick={readOlder}>
      Earlier entries
    </button>
  );
};

/** A group is rendered once, however many others come. */
const Group = ({ entries }: { readonly entries: ReadonlyArray<Entry> }) =>
  useMemo(
    () => (
      // A guess at its height, until it comes into view.
      <div class="group" style={{ containIntrinsicSize: `auto ${12 * entries.length}rem` }}>
        {entries.map((entry) => (
          <Answered key={entry.id} {...entry} />
        ))}
      </div>
    ),
    [entries],
  );

const Answered = ({ _createTime, answer, flagged, id, moderation, question }: Entry) => (
  <article>
    {question !== "" && (
      <p class="question" dir="auto">
        {question}
      </p>
    )}
    <div class={flagged ? "answer flagged" : "answer"}>
      <Markdown text={answer} />
      <p class="quiet facts">
        {flagged && <strong class="bad">Flagged: {moderation}</strong>}
        {question === "" && <span>Hello message</span>}
        <Time iso={_createTime} />
        <span>Entry {id}</span>
        {!flagged && moderation !== "none" && <span>Moderation: {moderation}</span>}
      </p>
    </div>
  </article>
);

const states: Readonly<Record<Ask["state"], string>> = {
  waiting: "Waiting for the answer…",
  streaming: "Answering…",
  reconnecting: "The connection is lost. Trying again…",
  stopped: "Stopped. Nothing was stored.",
  failed: "",
};

const Answering = ({ error, question, retry, state, text }: Ask) => (
  <article class={`pending ${state}`} aria-busy={state !== "stopped" && state !== "failed"}>
    <p class="question" dir="auto">
      {question}
    </p>
    <div class="answer">
      {text !== "" && <Markdown text={text} />}
      <p class="quiet state">{states[state]}</p>
      {state === "failed" && <Failure error={error ?? null} retry={retry} />}
      {state === "stopped" && <button onClick={retry}>Ask again</button>}
    </div>
  </article>
);

interface ComposerProps {
  readonly ask: Ask | undefined;
  readonly send: (question: string) => void;
}

const Composer = ({ ask, send }: ComposerProps) => {
  const [text, setText] = useState("");
  const isRunning = ask !== undefined && ask.state !== "failed" && ask.state !== "stopped";
  const length = [...text].length;
  const submit = () => {
    if (text.trim() === "" || isRunning) return;
    send(text);
    setText("");
  };
  if (!mayAsk) {
    return (
      <p class="notice">
        The answers interface has port {new URL(addresses.askUrl).port}. Start the server with{" "}
        <code>PARLEY_CORS_ORIGINS={location.origin}</code>, so that this page may ask.
      </p>
    );
  }
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      <textarea
        dir="auto"
        rows={1}
        aria-label="Your question"
        aria-describedby="length"
        placeholder="Ask a question"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          // Enter ends the composition of a character in some scripts.
          if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
          event.preventDefault();
          submit();
        }}
      />
      <span id="length" class={length > longestQuestion ? "quiet bad" : "quiet"}>
        {length}/{longestQuestion}
        <span class="unseen"> characters</span>
      </span>
      {isRunning ? (
        <button type="button" onClick={ask.stop}>
          Stop
        </button>
      ) : (
        <button class="primary" disabled={text.trim() === ""}>
          Ask
        </button>
      )}
    </form>
  );
};
