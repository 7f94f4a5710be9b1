/**
 * A chat: its history, the answer that arrives, and the next question.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Entry } from "@parley/client";
import { isRunning, type Ask, type ChatSession } from "./ChatSession.ts";
import { Composer } from "./Composer.tsx";
import { Failure } from "./Failure.tsx";
import { Markdown } from "./Markdown.tsx";
import { CopyButton, Icon, Time, useRead } from "./Parts.tsx";

const limit = 100;
/** The entries that are shown or hidden together. */
const groupSize = 20;

interface ConversationProps {
  readonly session: ChatSession;
  readonly chatId: number;
  /** What stands above, with the number of entries as far as it is known. */
  readonly header: (total: number | undefined) => ComponentChildren;
  /** The line below the field. */
  readonly note?: ComponentChildren;
  /** In place of the field, where nobody may ask. */
  readonly instead?: ComponentChildren;
  readonly forgetKey?: () => void;
}

export const Conversation = (props: ConversationProps) => {
  const { chatId, forgetKey, header, instead, note, session } = props;
  const history = useHistory(session, chatId);
  const scroller = useRef<HTMLDivElement>(null);
  const [isAway, setAway] = useState(false);
  const asks = session.asks.value.filter((ask) => ask.chatId === chatId);
  const running = asks.find(isRunning);
  const waitsElsewhere = [...session.elsewhere.value.values()].includes(chatId);
  // Counted from the end of the history.
  const toNewest = () => scroller.current!.scrollTo({ top: 0 });
  const tail = [
    ...history.added.map((entry) => ({ at: entry.id, key: entry.askId ?? entry.id, entry })),
    ...asks.map((ask) => ({ at: isRunning(ask) ? Infinity : ask.after + 0.5, key: ask.id, ask })),
  ].toSorted((a, b) => a.at - b.at);
  return (
    <div class="column">
      {header(history.total)}
      <div
        class="scroller"
        role="region"
        aria-label="History"
        tabIndex={0}
        ref={scroller}
        onScroll={({ currentTarget: { clientHeight, scrollHeight, scrollTop } }) => {
          setAway(scrollTop < -200);
          if (scrollHeight - clientHeight + scrollTop < 600) history.readOlder?.();
        }}
      >
        <div>
          <Failure error={history.error} retry={history.retry} forgetKey={forgetKey} />
          {history.readOlder && <button onClick={history.readOlder}>Earlier entries</button>}
          {history.groups.map((entries) => (
            <Group key={entries[0]!.id} session={session} entries={entries} />
          ))}
          {tail.map(({ at: _, key, ...exchange }) => (
            <Exchange key={key} {...exchange} {...{ forgetKey, session, waitsElsewhere }} />
          ))}
          {waitsElsewhere && !running && (
            <p class="quiet">Another tab waits for an answer in this chat.</p>
          )}
        </div>
      </div>
      <div class="below">
        {isAway && (
          <button
            class="round to-newest"
            aria-label="To the newest"
            title="To the newest"
            onClick={toNewest}
          >
            <Icon name="down" />
          </button>
        )}
        {instead ?? (
          <Composer
            session={session}
            chat={chatId}
            running={running}
            last={history.newest?.question}
            send={(question) => {
              toNewest();
              session.start({ chatId, question, after: history.newest?.id ?? 0 });
            }}
          >
            {note}
          </Composer>
        )}
      </div>
    </div>
  );
};

/** The history of a chat, newest page first, and what was added while it was open. */
const useHistory = (session: ChatSession, chatId: number) => {
  const { client, entries, stale } = session;
  const known = useRef(new Set<number>());
  const newest = useRef<Entry | undefined>(undefined);
  const groups = useRef<ReadonlyArray<ReadonlyArray<Entry>>>([]);
  const [page, setPage] = useState(1);
  const isUnknown = ({ id }: Entry) => !known.current.has(id);
  const { error, retry, value } = useRead(async () => {
    const read = await client.history(chatId, { limit, page }).page();
    // Entries that were added since move the pages. Those that arrive twice are kept once.
    const fresh = read.data.filter(isUnknown).reverse();
    for (const { id } of fresh) known.current.add(id);
    if (page === 1) newest.current = fresh.at(-1);
    const chunks = [];
    for (let at = 0; at < fresh.length; at += groupSize) {
      chunks.push(fresh.slice(at, at + groupSize));
    }
    groups.current = [...chunks, ...groups.current];
    session.settle(read.data);
    return read;
  }, [page]);

  const refresh = async () => {
    const { data } = await client.history(chatId, { limit }).page();
    if (data.length === limit && data.every(isUnknown)) {
      // More than a page was added: it begins anew.
      known.current.clear();
      groups.current = [];
      setPage(1);
      return retry();
    }
    const fresh = data.filter((entry) => isUnknown(entry) && !entries.peek().has(entry.id));
    if (fresh.length > 0) {
      entries.value = new Map([...entries.peek(), ...fresh.map((one) => [one.id, one] as const)]);
    }
    session.settle(data);
  };
  const read = useRef(stale.value);
  useEffect(() => {
    if (read.current !== stale.value) refresh().catch(() => undefined);
    read.current = stale.value;
  }, [stale.value]);

  const added = [...entries.value.values()]
    .filter((entry) => entry.chat_id === chatId && isUnknown(entry))
    .toSorted((a, b) => a.id - b.id);
  const hasOlder = value !== undefined && page === value.page && page * limit < value.total;
  return {
    added,
    error,
    retry,
    groups: groups.current,
    newest: added.at(-1) ?? newest.current,
    readOlder: hasOlder ? () => setPage(page + 1) : undefined,
    total: value && value.total + added.length,
  };
};

interface GroupProps {
  readonly session: ChatSession;
  readonly entries: ReadonlyArray<Entry>;
}

/** Ten thousand entries cost as much as those in view: far from it, a group is a box of the same height. */
const Group = ({ entries, session }: GroupProps) => {
  const box = useRef<HTMLDivElement>(null);
  const [height, setHeight] = useState<number>();
  useEffect(() => {
    const observer = new IntersectionObserver(
      ([seen]) => {
        const mayHide = !seen!.isIntersecting && !box.current!.contains(document.activeElement);
        setHeight(mayHide ? seen!.boundingClientRect.height : undefined);
      },
      { root: box.current!.closest(".scroller"), rootMargin: "1500px 0px" },
    );
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, []);
  const isShown = height === undefined;
  // As elements: they are rendered once, however often the chat is.
  const exchanges = useMemo(
    () =>
      isShown &&
      entries.map((entry) => <Exchange key={entry.id} session={session} entry={entry} />),
    [isShown],
  );
  return (
    <div ref={box} style={{ height: isShown ? "" : `${height}px` }}>
      {exchanges}
    </div>
  );
};

interface ExchangeProps {
  readonly session: ChatSession;
  /** The stored exchange, or the ask that is to become one. */
  readonly entry?: Entry;
  readonly ask?: Ask;
  readonly waitsElsewhere?: boolean;
  readonly forgetKey?: (() => void) | undefined;
}

/** A question with its answer. It stays the same element when the answer is complete. */
export const Exchange = ({ ask, entry, forgetKey, session, waitsElsewhere }: ExchangeProps) => {
  const question = ask?.question ?? entry!.question;
  const text = ask?.text.value ?? entry!.answer;
  return (
    <article
      class={`stack ${ask ? `pending ${ask.state}` : "stored"}`}
      aria-busy={ask && isRunning(ask)}
    >
      {question && (
        <p class="question" dir="auto">
          {question}
        </p>
      )}
      <div class={`stack ${entry?.flagged ? "flagged" : ""}`}>
        {entry?.flagged && <strong class="bad">Flagged: {entry.moderation}</strong>}
        {text && <Markdown text={text} toAddress={session.toAddress} />}
      </div>
      {ask ? (
        <State {...{ ask, forgetKey, session }} waitsElsewhere={waitsElsewhere === true} />
      ) : (
        <Facts {...entry!} />
      )}
    </article>
  );
};

const Facts = ({ _createTime, answer, flagged, id, moderation }: Entry) => (
  <div class="acts quiet">
    <CopyButton text={answer} name="Copy answer" />
    <details>
      <summary aria-label="Details" title="Details">
        <Icon name="more" />
      </summary>
      <span class="facts">
        <Time iso={_createTime} dateStyle="medium" />
        <span>Entry {id}</span>
        <span>Moderation: {moderation}</span>
        <span>{flagged ? "Flagged" : "Not flagged"}</span>
      </span>
    </details>
  </div>
);

interface StateProps {
  readonly ask: Ask;
  readonly session: ChatSession;
  readonly waitsElsewhere: boolean;
  readonly forgetKey: (() => void) | undefined;
}

/** How an ask stands, and what can be done about it. */
const State = ({ ask, forgetKey, session, waitsElsewhere }: StateProps) => {
  const again = () => session.again(ask);
  const { chatId, error, isCancelled, question, since, state } = ask;
  if (!isRunning(ask)) {
    const stopped = isCancelled
      ? "Stopped. Nothing was stored."
      : "Stopped. If the server has gone on, the answer appears here.";
    const acts = (
      <>
        <button
          onClick={() => {
            session.setDraft(chatId ?? "new", question);
            session.drop(ask.id);
          }}
        >
          Edit
        </button>
        <button
          class="plain"
          aria-label="Remove"
          title="Remove"
          onClick={() => session.drop(ask.id)}
        >
          <Icon name="close" />
        </button>
      </>
    );
    if (error !== undefined) {
      return (
        <Failure error={error} retry={again} forgetKey={forgetKey}>
          {acts}
        </Failure>
      );
    }
    return (
      <>
        <p class="quiet" role="status">
          {state === "stopped" ? stopped : "There is no answer yet."}
        </p>
        <div class="acts">
          <button onClick={again}>Ask again</button>
          {acts}
        </div>
      </>
    );
  }
  const states = {
    waiting: waitsElsewhere ? "Waiting for the answer in another tab" : "Waiting for the answer",
    streaming: "Answering",
    reconnecting: "The connection is lost. Trying again",
    busy: "The server is busy. Trying again",
    stopping: "Stopping",
  };
  return (
    <p class="quiet state">
      <span class="motion" aria-hidden="true" />
      {states[state as keyof typeof states]}
      {state !== "streaming" && <Since time={since} />}
    </p>
  );
};

/** For how long, after two seconds. */
const Since = ({ time }: { readonly time: number }) => {
  const seconds = Math.floor((Date.now() - time) / 1000);
  const [, setShown] = useState(seconds);
  useEffect(() => {
    const timer = setInterval(() => setShown(Math.floor((Date.now() - time) / 1000)), 500);
    return () => clearInterval(timer);
  }, [time]);
  return seconds >= 2 && <span> · {seconds} s</span>;
};
