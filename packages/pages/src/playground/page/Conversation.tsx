/**
 * A chat: its history, the answer that arrives, and the next question.
 */
import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import type { Entry } from "@parley/client";
import { titleOf } from "./Chats.tsx";
import { Markdown } from "./Markdown.tsx";
import { Failure, focus, Time, useRead } from "./Parts.tsx";
import { addresses, asks, client, made, mayAsk, startAsk, states, type Ask } from "./Session.ts";

const limit = 100;
const longestQuestion = 200;
/** On a phone, the focus would open the keyboard over the history. */
const isPhone = !matchMedia("(hover: hover)").matches;

export const Conversation = ({ chatId }: { readonly chatId: number }) => {
  const known = useRef(new Set<number>());
  // As elements: those of a page are rendered once, however many others come.
  const groups = useRef<ReadonlyArray<JSX.Element>>([]);
  const [page, setPage] = useState(1);
  const history = useRead(async () => {
    const read = await client.history(chatId, { limit, page }).page();
    // Entries that were added since move the pages. Those that arrive twice are kept once.
    const fresh = read.data.filter(({ id }) => !known.current.has(id)).reverse();
    for (const { id } of fresh) known.current.add(id);
    const group = (
      <div key={page} class="group">
        {fresh.map(toArticle)}
      </div>
    );
    groups.current = [group, ...groups.current];
    return read;
  }, [page]);
  const { value: chats } = useRead(() => client.chats({ id: chatId }).page());
  const chat = chats?.data[0];

  const ask = asks.value.get(chatId);
  const added = [...made.value.values()].filter(
    ({ chat_id, id }) => chat_id === chatId && !known.current.has(id),
  );
  const found = history.value;
  const total = (found?.total ?? 0) + added.length;
  const hasOlder = found !== undefined && page === found.page && page * limit < found.total;
  const readOlder = () => hasOlder && setPage(page + 1);
  return (
    <div class="column">
      <header>
        <a class="back" href="#">
          All chats
        </a>
        <h2 dir="auto" tabIndex={-1} ref={isPhone ? focus : null}>
          {titleOf(chat ?? { id: chatId, name: null })}
        </h2>
        <p class="quiet facts">
          <span>Chat {chatId}</span>
          {chat?.userRef && <bdi>{chat.userRef}</bdi>}
          {found && (
            <span>{total === 1 ? "1 entry" : `${total.toLocaleString("en")} entries`}</span>
          )}
        </p>
      </header>
      <div
        class="scroller"
        role="region"
        aria-label="History"
        tabIndex={0}
        onScroll={({ currentTarget: { clientHeight, scrollHeight, scrollTop } }) => {
          // Counted from the end of the history.
          if (scrollHeight - clientHeight + scrollTop < 600) readOlder();
        }}
      >
        <div>
          <Failure error={history.error} retry={history.retry} />
          {hasOlder && <button onClick={readOlder}>Earlier entries</button>}
          {groups.current}
          {added.map(toArticle)}
          {ask && <Answering {...ask} />}
        </div>
      </div>
      {mayAsk ? (
        <Composer ask={ask} send={(question) => startAsk(chatId, question)} />
      ) : (
        <p>
          The answers interface has port {new URL(addresses.askUrl).port}. Start the server with{" "}
          <code>PARLEY_CORS_ORIGINS={location.origin}</code>, so that this page may ask.
        </p>
      )}
    </div>
  );
};

const toArticle = ({ _createTime, answer, flagged, id, moderation, question }: Entry) => (
  <article key={id} class="stack stored">
    {question && (
      <p class="question" dir="auto">
        {question}
      </p>
    )}
    <div class={flagged ? "flagged" : ""}>
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

const isRunning = (ask: Ask) => ask.state !== "stopped" && ask.state !== "failed";

const Answering = (ask: Ask) => (
  <article class={`stack pending ${ask.state}`} aria-busy={isRunning(ask)}>
    <p class="question" dir="auto">
      {ask.question}
    </p>
    {ask.text && <Markdown text={ask.text} />}
    <p class="quiet state">{states[ask.state]}</p>
    <Failure error={ask.error} retry={ask.retry} />
    {ask.state === "stopped" && <button onClick={ask.retry}>Ask again</button>}
  </article>
);

interface ComposerProps {
  readonly ask: Ask | undefined;
  readonly send: (question: string) => void;
}

const Composer = ({ ask, send }: ComposerProps) => {
  const [text, setText] = useState("");
  const running = ask !== undefined && isRunning(ask) ? ask : null;
  const canSend = text.trim() !== "" && running === null;
  const submit = (event: Event) => {
    event.preventDefault();
    if (!canSend) return;
    send(text);
    setText("");
  };
  const length = [...text].length;
  return (
    <form class="row" onSubmit={submit}>
      <textarea
        dir="auto"
        rows={1}
        aria-label="Your question"
        placeholder="Ask a question"
        value={text}
        ref={isPhone ? null : focus}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          // Enter ends the composition of a character in some scripts.
          if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
        }}
      />
      <span class={length > longestQuestion ? "bad" : "quiet"}>
        {length}/{longestQuestion}
        <span class="unseen"> characters</span>
      </span>
      {running ? (
        <button type="button" onClick={running.stop}>
          Stop
        </button>
      ) : (
        <button class="primary" disabled={!canSend}>
          Ask
        </button>
      )}
    </form>
  );
};
