/**
 * The chat window. It opens with the chat that this tab showed last or else the visitor's newest chat, and can switch
 * to any of the visitor's other chats. The first question creates a chat.
 */
import { effect, signal } from "@preact/signals";
import { render } from "preact";
import { useState } from "preact/hooks";
import { makeClient, ResponseError } from "@parley/client";
import * as chat from "../../page/ChatSession.ts";
import { Conversation, Questions } from "../../page/Conversation.tsx";
import { actions, Failure } from "../../page/Failure.tsx";
import { german } from "../../page/German.ts";
import { Markdown } from "../../page/Markdown.tsx";
import { IconButton, isPhone, tabValue, Time, useRead } from "../../page/Parts.tsx";
import { nameChat, titleOf } from "../../page/titles.ts";
import { setWords, translate } from "../../page/words.ts";
import type { Welcome, WidgetConfig } from "../WidgetConfig.ts";
import { toTheme } from "./colors.ts";
import type { FromPage, FromWindow, Greeting, Token } from "./Messages.ts";
import { makeFetch } from "./Tokens.ts";

const config: WidgetConfig = JSON.parse(document.body.dataset["config"]!);
const unavailable = "This chat is not available at the moment.";
/** Replaces texts that address a key's holder or the operator, because the widget's readers are visitors. */
const forVisitors: Readonly<Record<string, keyof typeof german>> = {
  "The server needs an API key. Enter one.": unavailable,
  "The key is not valid, or no longer valid. Enter another one.": unavailable,
  "The server does not support this request. It may be running a different version.": unavailable,
  "This key does not allow that. Enter one that does.": "This chat does not allow that.",
  "Too many requests with this key.": "Too many requests.",
  "This key's daily budget is used up.": "No more questions can be answered for now.",
};

let port: MessagePort | undefined;
const send = (message: FromWindow) => port?.postMessage(message);
/** Resolves the promise for the token that the window requested. */
let resolve: (token: Partial<Token> | null) => void = () => undefined;
const requestToken = () =>
  new Promise<Partial<Token> | null>((settle) => {
    resolve = settle;
    send("token");
  });

/** The id of the open chat, `new` for one that the first question creates, or `chats` for the list; at first `null`. */
const shownView = signal<number | "new" | "chats" | null>(null);
/** The chat that this tab showed last. */
const lastView = tabValue<number | "new" | null>(
  "view",
  null,
  (view) => view === "new" || Number.isInteger(view),
);
/** The error of the last request, if the request had no valid token. */
const rejection = signal<unknown>(undefined);

const show = (view: number | "new") => {
  lastView.value = view;
  shownView.value = view;
};

/** Focuses the field or, on a phone, the heading, because a focused field would open the keyboard over the greeting. */
const focus = () => {
  const field = isPhone ? null : document.querySelector("textarea");
  (field ?? document.querySelector("h2"))?.focus();
};

interface WindowProps extends Pick<Greeting, "logo"> {
  readonly title: string;
  /** Opens a chat of the visitor's, if there is one. */
  readonly start: () => Promise<void>;
  readonly readWelcome: (signal: AbortSignal) => Promise<Welcome | undefined>;
}

const Window = ({ logo, readWelcome, start, title }: WindowProps) => {
  const { error, retry } = useRead(start, [chat.stale.value]);
  const { value: welcome } = useRead(readWelcome);
  const view = shownView.value;
  const newChat = (ask: (question: string) => void) => (
    <>
      {view === "new" && welcome?.greeting && <Markdown text={welcome.greeting} />}
      <Questions ask={ask} questions={welcome?.questions ?? []} />
    </>
  );
  return (
    <main class="widget view">
      <h1 class="unseen">Chat</h1>
      <header class="row">
        <div class="heading">
          {logo && <img src={logo} alt="" height="32" onError={hideLogo} />}
          <h2 dir="auto" tabIndex={-1}>
            {title}
          </h2>
        </div>
        {view !== null && (
          <>
            <IconButton
              icon="more"
              title={translate("Earlier chats")}
              onClick={() => (shownView.value = "chats")}
            />
            <IconButton icon="plus" title={translate("New chat")} onClick={() => show("new")} />
          </>
        )}
        <IconButton
          icon="close"
          title={translate("Close the chat")}
          onClick={() => send("close")}
        />
      </header>
      <div>
        <Failure error={error ?? rejection.value} retry={retry} />
      </div>
      {view === "chats" ? (
        <Chats mayDelete={welcome?.mayDelete ?? false} />
      ) : (
        view && (
          <Conversation
            key={view}
            chatId={view === "new" ? null : view}
            welcome={newChat}
            note={config.model && translate("A language model answers. It can be wrong.")}
          />
        )
      )}
      <p class="unseen" role="status">
        {chat.announcement.value}
      </p>
    </main>
  );
};

const hideLogo = ({ currentTarget }: { readonly currentTarget: HTMLImageElement }) => {
  currentTarget.hidden = true;
  console.warn(
    `Parley widget: the image ${currentTarget.src} of data-logo does not load. It must be of one of the key's origins: ${config.origins.join(", ")}`,
  );
};

/** The visitor's chats, newest first. */
const Chats = ({ mayDelete }: Pick<Welcome, "mayDelete">) => {
  const { error, retry, value } = useRead(async () => {
    const { data } = await chat.session.client.chats({ limit: 100 }).page();
    // Reading a title takes a request, and a visitor may send only a few.
    for (const each of data.slice(0, 5)) void nameChat(each);
    return data;
  }, [chat.stale.value]);
  return (
    <nav class="chats" aria-label={translate("Earlier chats")}>
      <Failure error={error} retry={retry} />
      <ul>
        {value?.map((each) => (
          <li>
            <button class="plain" onClick={() => show(each.id)}>
              <span class="name" dir="auto">
                {titleOf(each)}
              </span>
              <span class="quiet">
                <Time iso={each._createTime} />
              </span>
            </button>
          </li>
        ))}
      </ul>
      {mayDelete && value && value.length > 0 && <Deletion />}
    </nav>
  );
};

/** A button that, once confirmed, deletes all of the visitor's chats. */
const Deletion = () => {
  const [isOpen, setOpen] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const erase = async () => {
    const { client } = chat.session;
    setBusy(true);
    try {
      for (;;) {
        const { data } = await client.chats().page();
        if (data.length === 0) break;
        for (const { id } of data) {
          await client.delete(id);
          chat.forget(id);
        }
      }
      show("new");
    } catch (error) {
      setError(error);
    }
    setBusy(false);
  };
  return (
    <div class="stack">
      <Failure error={error} />
      {isOpen && <p>{translate("Delete all of your chats for good?")}</p>}
      <div class="actions">
        <button disabled={isBusy} onClick={() => (isOpen ? erase() : setOpen(true))}>
          {translate(isOpen ? "Delete" : "Delete my chats")}
        </button>
        {isOpen && <button onClick={() => setOpen(false)}>{translate("Cancel")}</button>}
      </div>
    </div>
  );
};

const begin = ({ colors, contact, isKnown, logo, texts, title, ...page }: Greeting) => {
  const root = document.documentElement;
  const hasTexts = Object.keys(texts).length > 0;
  // Without the owner's texts, the window speaks one of its own languages.
  root.lang = hasTexts ? page.lang : page.locale;
  root.dir = page.dir;
  if (page.theme === "light" || page.theme === "dark") root.dataset["theme"] = page.theme;
  const [accent, tint] = toTheme(colors[0]);
  const values = { brand: colors[0], "on-brand": colors[1], accent, tint };
  for (const [name, value] of Object.entries(values)) root.style.setProperty(`--${name}`, value);
  const words: Record<string, string> = { ...(page.locale === "de" && german), ...texts };
  for (const [phrase, other] of Object.entries(forVisitors)) {
    words[phrase] = texts[phrase] ?? words[other] ?? other;
  }
  setWords(words);
  const { answers, answersPort, general } = config;
  const fetch = makeFetch(isKnown ? requestToken : undefined);
  const client = makeClient({
    baseUrl: general,
    askUrl: answersPort === null ? answers : `//${location.hostname}:${answersPort}${answers}`,
    fetch,
    onAttempt: ({ error }) => {
      rejection.value = error instanceof ResponseError && error.status === 401 ? error : undefined;
    },
  });
  /** The id of the visitor's newest chat that this tab knows. */
  let newest = 0;
  const start = async () => {
    const isFirst = chat.session === undefined;
    const isIdle = chat.draftOf(null) === "" && chat.asks.peek().every(({ chatId }) => chatId);
    if (!isFirst && (shownView.peek() !== "new" || !isIdle)) return;
    // Runs before `openSession` resumes asks: the first request gets a token, and so removes another visitor's asks.
    const { data } = await client.chats().page();
    const ids = data.map(({ id }) => id);
    const last = lastView.peek();
    if (isFirst) {
      openSession();
      show(last === "new" || ids.includes(last!) ? last! : (ids[0] ?? "new"));
    } else if (shownView.peek() === "new" && ids[0]! > newest) {
      // Another tab has created a chat, and this one shows none.
      show(ids[0]!);
    }
    newest = Math.max(newest, ...ids);
  };
  const openSession = () => {
    chat.openSession({
      client,
      name: location.pathname,
      questionLength: config.questionLength,
      onCreated: (id) => {
        newest = id;
        if (shownView.peek() === "new") show(id);
      },
      onExchange: (entry) =>
        send(
          entry === undefined
            ? { event: "question" }
            : { event: "answer", detail: { chatId: entry.chat_id, entryId: entry.id } },
        ),
      contact: contact && /^(https?|mailto|tel):/i.test(contact) && (
        <p>
          <a href={contact} target="_blank" rel="noopener noreferrer">
            {translate("Contact us")}
          </a>
        </p>
      ),
    });
    effect(() => send({ asking: chat.asks.value.some(chat.isRunning) }));
  };
  const readWelcome = async (signal: AbortSignal) => {
    const response = await fetch("questions", { signal, cache: "no-store" });
    return response.ok ? response.json() : undefined;
  };
  // Visitors have no key to enter. The default link to a new chat would add an entry to the browsing history of the
  // page around the window.
  delete actions["key"];
  actions["chat"] = () => <button onClick={() => show("new")}>{translate("New chat")}</button>;
  const props = { logo, readWelcome, start, title: title || config.name };
  render(<Window {...props} />, document.body);
  send("ready");
};

addEventListener("message", ({ data, origin, ports, source }) => {
  if (port !== undefined || source !== parent || !config.origins.includes(origin)) return;
  port = ports[0]!;
  port.onmessage = ({ data }: MessageEvent<FromPage>) => {
    if (data === "open") focus();
    else if ("token" in data) resolve(data.token);
    else {
      if (shownView.peek() === "chats") show(lastView.peek() ?? "new");
      chat.nextQuestion.value = data.ask;
    }
  };
  begin(data);
});
// The focused element may handle the key first.
addEventListener("keydown", ({ defaultPrevented, isComposing, key }) => {
  if (key === "Escape" && !defaultPrevented && !isComposing) send("close");
});
