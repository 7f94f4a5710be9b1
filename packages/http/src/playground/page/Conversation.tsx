/**
 * A chat: its history, the answer that arrives, and the next question.
 */
import type { VNode } from "preact";
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

/** The newest entries of a chat, and older ones as they are asked for. */
const useHistory = (client: Client, chatId: number) => {
  const [entries, setEntries] = useState<ReadonlyArray<Entry>>([]);
  const [total, setTotal] = useState<number | null>(null);
  const [error, setError] = useState<unknown>(null);
  const known = useRef(new Map<number, Entry>());
  const isReading = useRef(false);

  const read = async (page: number) => {
    if (isReading.current && page > 1) return;
    isReading.current = true;
    try {
      const found = await client.history(chatId, { limit, page }).page();
      // So many new entries that some are between these and the known ones.
      const hasGap = page === 1 && found.data.length === limit && !found.data.some(isKnown);
      if (hasGap) known.current.clear();
      for (const entry of found.data) known.current.set(entry.id, entry);
      setEntries([...known.current.values()].sort((a, b) => a.id - b.id));
      setTotal(found.total);
      setError(null);
    } catch (failed) {
      setError(failed);
    } finally {
      isReading.current = false;
    }
  };
  const isKnown = ({ id }: Entry) => known.current.has(id);

  useEffect(() => void read(1), [client, chatId]);
  return {
    entries,
    total,
    error,
    refresh: () => read(1),
    // Entries that were added since have moved the pages. Those that arrive twice are kept once.
    readOlder: () => read(Math.floor(known.current.size / limit) + 1),
  };
};

interface ConversationProps {
  readonly client: Client;
  readonly chatId: number;
}

export const Conversation = ({ chatId, client }: ConversationProps) => {
  const { entries, error, readOlder, refresh, total } = useHistory(client, chatId);
  const [chat, setChat] = useState<Chat | null>(null);
  useEffect(() => {
    client
      .chats({ id: chatId })
      .page()
      // The history tells what is wrong.
      .then(({ data }) => setChat(data[0] ?? null), () => {});
  }, [client, chatId]);

  useEffect(() => {
    // On a phone, the field would open the keyboard over the history.
    const target = matchMedia("(hover: hover)").matches ? "textarea" : ".conversation h2";
    document.querySelector<HTMLElement>(target)?.focus();
  }, []);

  const ask = asks.value.get(chatId);
  const shown = useMemo(() => entries.map(toElement), [entries]);
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
          {total !== null && <span>{total === 1 ? "1 entry" : `${number.format(total)} entries`}</span>}
        </p>
      </header>
      <div class="scroller" role="region" aria-label="History" tabIndex={0}>
        <div>
          <Failure error={error} retry={() => void refresh()} />
          {total !== null && entries.length < total && (
            <Older key={entries.length} readOlder={() => void readOlder()} />
          )}
          <ol class="entries">{shown}</ol>
          {ask && <Answering {...ask} />}
          {total === 0 && !ask && <p class="empty">Nothing has been said yet.</p>}
        </div>
      </div>
      <Composer
        ask={ask}
        send={(question) => startAsk(client, chatId, question, refresh)}
      />
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

/** The element of an entry, once: of ten thousand, only new ones are rendered. */
const toElement = (entry: Entry): VNode => {
  const element = elements.get(entry) ?? <Answered key={entry.id} {...entry} />;
  elements.set(entry, element);
  return element;
};
const elements = new WeakMap<Entry, VNode>();

const Answered = ({ _createTime, answer, flagged, id, moderation, question }: Entry) => (
  <li>
    {question !== "" && (
      <p class="question" dir="auto">
        {question}
      </p>
    )}
    <div class={flagged ? "answer flagged" : "answer"}>
      <Markdown text={answer} />
      <p class="quiet facts">
        {flagged && <strong class="flag">Flagged: {moderation}</strong>}
        {question === "" && <span>Hello message</span>}
        <Time iso={_createTime} />
        <span>Entry {id}</span>
        {!flagged && moderation !== "none" && <span>Moderation: {moderation}</span>}
      </p>
    </div>
  </li>
);

const states: Readonly<Record<Ask["state"], string>> = {
  waiting: "Waiting for the answer…",
  streaming: "Answering…",
  reconnecting: "The connection is lost. Trying again…",
  stopped: "Stopped. Nothing was stored.",
  failed: "",
};

const Answering = ({ error, question, retry, state, text }: Ask) => (
  <div class={`entry ${state}`} aria-busy={state !== "stopped" && state !== "failed"}>
    <p class="question" dir="auto">
      {question}
    </p>
    <div class="answer">
      {text !== "" && <Markdown text={text} />}
      <p class="quiet state">{states[state]}</p>
      {state === "failed" && <Failure error={error} retry={retry} />}
      {state === "stopped" && <button onClick={retry}>Ask again</button>}
    </div>
  </div>
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
      <span id="length" class={length > longestQuestion ? "quiet over" : "quiet"}>
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
