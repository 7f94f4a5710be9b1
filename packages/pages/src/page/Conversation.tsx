/**
 * A chat: its history, the answer in progress, and the field for the next question.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { hasQuestion, type Entry, type NewChat } from "@parley/client";
import * as chat from "./ChatSession.ts";
import { Composer } from "./Composer.tsx";
import { Byline, Rating, Sources } from "./EntryParts.tsx";
import { Failure } from "./Failure.tsx";
import { Markdown } from "./Markdown.tsx";
import { CopyButton, Icon, useRead } from "./Parts.tsx";
import { translate } from "./words.ts";

export interface ConversationProps {
  /** `null` if the first question is to create the chat, with the fields that `toNewChat` returns. */
  readonly chatId: number | null;
  readonly toNewChat?: (question: string) => NewChat;
  /** Content above the history; `total` is the number of entries, once it is known. */
  readonly header?: (total: number | undefined) => ComponentChildren;
  /** Content below the entries of a chat in which nothing has been asked. */
  readonly welcome?: (ask: (question: string) => void) => ComponentChildren;
  /** The line below the question field. */
  readonly note?: ComponentChildren;
  /** Shows only the entries that contain this text. */
  readonly search?: string | undefined;
  /** Content in place of the question field, if the page may not ask questions. */
  readonly replacement?: ComponentChildren;
}

export const Conversation = (props: ConversationProps) => {
  const { chatId, header, replacement, note, search, toNewChat, welcome } = props;
  const { newEntries, error, groups, lastQuestion, newest, readOlder, retry, total } =
    useHistory(chatId);
  const scroller = useRef<HTMLDivElement>(null);
  const [isAway, setAway] = useState(false);
  const asks = chat.asks.value.filter((ask) => ask.chatId === chatId);
  const runningAsk = asks.find(chat.isRunning);
  const isRead = chatId === null || total !== undefined;
  const isNew = isRead && asks.length === 0 && lastQuestion === undefined;
  // The scroll position is measured from the end of the history.
  const toNewest = () => scroller.current!.scrollTo({ top: 0 });
  const send = (question: string) => {
    toNewest();
    chat.start({ chatId, newChat: toNewChat?.(question), question, after: newest?.id ?? 0 });
  };
  const question = chat.nextQuestion.value;
  useEffect(() => {
    if (question === undefined || !isRead || runningAsk) return;
    chat.nextQuestion.value = undefined;
    send(question);
  }, [question, isRead, runningAsk]);
  const tail = [
    ...newEntries.map((entry) => ({ at: entry.id, key: entry.askId ?? entry.id, entry })),
    ...asks.map((ask) => ({
      at: ask === runningAsk ? Infinity : ask.after + 0.5,
      key: ask.id,
      ask,
    })),
  ].toSorted((a, b) => a.at - b.at);
  return (
    <div class="column">
      {header?.(total)}
      {search !== undefined && <Matches chatId={chatId!} search={search} />}
      <div
        class="scroller"
        hidden={search !== undefined}
        role="region"
        aria-label={translate("History")}
        tabIndex={0}
        ref={scroller}
        onScroll={({ currentTarget: { clientHeight, scrollHeight, scrollTop } }) => {
          setAway(scrollTop < -200);
          if (scrollHeight - clientHeight + scrollTop < 600) readOlder?.();
        }}
      >
        <div>
          <Failure error={error} retry={retry} />
          {readOlder && <button onClick={readOlder}>{translate("Earlier entries")}</button>}
          {groups.map((entries) => (
            <Group key={entries[0]!.id} entries={entries} />
          ))}
          {tail.map(({ at: _, key, ...exchange }) => (
            <Exchange key={key} {...exchange} />
          ))}
          {isNew && welcome?.(send)}
          {chat.waitsElsewhere(chatId) && !runningAsk && (
            <p class="quiet">{translate("Another tab is waiting for an answer in this chat.")}</p>
          )}
        </div>
      </div>
      <div class="below">
        {isAway && (
          <button class="round to-newest" title={translate("Jump to latest")} onClick={toNewest}>
            <Icon name="down" />
          </button>
        )}
        {replacement ?? (
          <Composer {...{ chatId, runningAsk, send }} last={lastQuestion}>
            {note}
          </Composer>
        )}
      </div>
    </div>
  );
};

const limit = 100;
/** The number of entries that are shown or hidden together. */
const groupSize = 20;

/** Reads the history of a chat, newest page first, and adds the entries that arrive while the chat is open. */
const useHistory = (chatId: number | null) => {
  const shownIds = useRef(new Set<number>());
  const groups = useRef<ReadonlyArray<ReadonlyArray<Entry>>>([]);
  const [page, setPage] = useState(1);
  const read = async (page: number) => {
    if (chatId === null) return undefined;
    const query = { include: chat.include, limit, page };
    const list = await chat.session.client.history(chatId, query).page();
    const last = groups.current.at(-1)?.at(-1)?.id ?? Infinity;
    // There may be further entries between this page and the entries that are already shown.
    if (list.data.length === limit && list.data.at(-1)!.id > last) location.reload();
    chat.add(list.data, last);
    // New entries shift the pages, so some entries arrive twice.
    const older = list.data.filter(({ id }) => id <= last && !shownIds.current.has(id)).reverse();
    for (const { id } of older) shownIds.current.add(id);
    const chunks = [];
    while (older.length > 0) chunks.push(older.splice(0, groupSize));
    groups.current = [...chunks, ...groups.current];
    return list;
  };
  const first = useRead(() => read(1), [chat.stale.value]);
  const more = useRead(async () => (page === 1 ? undefined : read(page)), [page]);
  const newEntries = [...chat.entries.value.values()]
    .filter(({ chat_id, id }) => chat_id === chatId && !shownIds.current.has(id))
    .toSorted((a, b) => a.id - b.id);
  const { data = [], total = 0 } = first.value ?? {};
  const since = newEntries.filter(({ id }) => id > (data[0]?.id ?? 0)).length;
  const mayRead = (more.value?.page ?? 1) === page && page * limit < total;
  return {
    newEntries,
    error: first.error ?? more.error,
    groups: groups.current,
    lastQuestion: [...groups.current, newEntries]
      .findLast((entries) => entries.some(hasQuestion))
      ?.findLast(hasQuestion)?.question,
    newest: newEntries.at(-1) ?? groups.current.at(-1)?.at(-1),
    readOlder: mayRead ? () => setPage(page + 1) : undefined,
    retry: first.error === undefined ? more.retry : first.retry,
    total: first.value && total + since,
  };
};

/** How many of a chat's newest entries a search reads. */
const maxSearched = 2000;

/** The entries of a chat that contain a text, newest first. */
const Matches = ({ chatId, search }: { readonly chatId: number; readonly search: string }) => {
  const { error, retry, value } = useRead(
    async (signal) => {
      const entries: Array<Entry> = [];
      const query = { include: chat.include, limit } as const;
      for await (const page of chat.session.client.history(chatId, query, { signal }).pages()) {
        entries.push(...page.data);
        if (entries.length >= maxSearched) return { entries, total: page.total };
      }
      return { entries, total: entries.length };
    },
    [chatId, chat.entries.value.size],
  );
  const text = search.trim().toLowerCase();
  const matches = (value?.entries ?? []).filter(
    ({ answer, question }) => text && `${question}\n${answer}`.toLowerCase().includes(text),
  );
  return (
    <div class="matches" role="region" aria-label={translate("Entries found")} tabIndex={0}>
      <Failure error={error} retry={retry} />
      <p class="quiet" role="status">
        {value === undefined
          ? translate("Reading the entries")
          : text &&
            translate("{} of {} entries contain this", matches.length, value.entries.length)}
        {value &&
          value.total > value.entries.length &&
          ` · ${translate("Only the newest {} of {} are searched", value.entries.length, value.total)}`}
      </p>
      {matches.slice(0, limit).map((entry) => (
        <Exchange key={entry.id} entry={entry} />
      ))}
    </div>
  );
};

/** A group of entries. When far out of view, it is an empty box of the same height, which keeps long chats fast. */
const Group = ({ entries }: { readonly entries: ReadonlyArray<Entry> }) => {
  const box = useRef<HTMLDivElement>(null);
  const [height, setHeight] = useState<number>();
  useEffect(() => {
    const options = { root: box.current!.closest(".scroller"), rootMargin: "1500px 0px" };
    const observer = new IntersectionObserver(([observation]) => {
      const mayHide =
        !observation!.isIntersecting && !box.current!.contains(document.activeElement);
      setHeight(mayHide ? observation!.boundingClientRect.height : undefined);
    }, options);
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, []);
  const isShown = height === undefined || chat.isPrinting.value;
  // Memoized, so that a new rendering of the chat does not render the exchanges again.
  const exchanges = useMemo(
    () => isShown && entries.map((entry) => <Exchange key={entry.id} entry={entry} />),
    [isShown],
  );
  return (
    <div ref={box} style={{ height: isShown ? "" : `${height}px` }}>
      {exchanges}
    </div>
  );
};

/** A stored entry, or an ask, which keeps its element when it becomes an entry. */
const Exchange = ({ ask, entry }: { readonly ask?: chat.Ask; readonly entry?: Entry }) => {
  const question = ask?.question ?? entry!.question;
  const text = ask?.text.value ?? entry!.answer;
  const isBusy = ask && chat.isRunning(ask);
  return (
    <article class={`stack ${ask ? `pending ${ask.state}` : "stored"}`} aria-busy={isBusy}>
      {hasQuestion({ question }) && (
        <p class="question" dir="auto">
          {question}
        </p>
      )}
      <div class={`stack ${entry?.flagged ? "flagged" : ""}`}>
        {entry?.flagged && chat.session.toFacts && (
          <strong class="bad">{translate("Flagged: {}", entry.moderation)}</strong>
        )}
        {entry && <Byline {...entry} />}
        {text && <Markdown text={text} toAddress={chat.session.toAddress} />}
      </div>
      {entry && <Sources {...entry} />}
      {entry?.metadata?.["found"] === false && chat.session.contact}
      {entry && (
        <div class="actions quiet">
          <CopyButton text={entry.answer} name={translate("Copy answer")} />
          {hasQuestion(entry) && <Rating {...entry} />}
          {chat.session.toFacts?.(entry)}
        </div>
      )}
      {isBusy && <Progress {...ask} />}
      {ask && !isBusy && (
        <Failure
          error={ask.error ?? translate(chat.states[ask.state])}
          retry={() => chat.retry(ask)}
        >
          <button onClick={() => chat.edit(ask)}>{translate("Edit")}</button>
        </Failure>
      )}
    </article>
  );
};

/** Shows what an ask is waiting for and, after two seconds, how long it has been waiting. */
const Progress = ({ chatId, since, state }: chat.Ask) => {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 500);
    return () => clearInterval(timer);
  }, []);
  const seconds = Math.floor((now - since) / 1000);
  return (
    <p class="quiet state">
      <span class="motion" />
      {translate(chat.states[state])}
      {state === "waiting" && chat.waitsElsewhere(chatId) && translate(" in another tab")}
      {state !== "streaming" && seconds >= 2 && ` · ${seconds} s`}
    </p>
  );
};

interface QuestionsProps {
  readonly ask: (question: string) => void;
  readonly questions: ReadonlyArray<string>;
}

/** Suggested questions to click, for a chat in which nothing has been asked. */
export const Questions = ({ ask, questions }: QuestionsProps) => {
  if (questions.length === 0) return null;
  return (
    <ul class="questions" aria-label={translate("Suggested questions")}>
      {questions.map((question) => (
        <li>
          <button dir="auto" onClick={() => ask(question)}>
            {question}
          </button>
        </li>
      ))}
    </ul>
  );
};
