/**
 * The chat window. It opens with the visitor's newest chat, and can switch to any of the visitor's other chats.
 */
import { signal } from "@preact/signals";
import { render } from "preact";
import { makeClient, ResponseError } from "@parley/client";
import { openSession, session, announcement, stale } from "../../page/ChatSession.ts";
import { Conversation, Questions } from "../../page/Conversation.tsx";
import { actions, Failure } from "../../page/Failure.tsx";
import { german } from "../../page/German.ts";
import { Icon, isPhone, Time, useRead } from "../../page/Parts.tsx";
import { nameChat, titleOf } from "../../page/titles.ts";
import { translate, setWords } from "../../page/words.ts";
import type { WidgetConfig } from "../WidgetConfig.ts";
import type { FromPage, FromWindow, Greeting, Token } from "./Messages.ts";
import { makeFetch } from "./Tokens.ts";

const config: WidgetConfig = JSON.parse(document.body.dataset["config"]!);
const unavailable = "This chat is not available at the moment.";
/** Replaces texts that address a key's holder or the operator, because the widget's readers are visitors. */
const english = {
  "The server needs an API key. Enter one.": unavailable,
  "The key is not valid, or no longer valid. Enter another one.": unavailable,
  "The server does not support this request. It may be running a different version.": unavailable,
  "This key does not allow that. Enter one that does.": "This chat does not allow that.",
  "Too many requests with this key.": "Too many requests.",
  "This key's budget for today is used up.": "No more questions can be answered today.",
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

/** The id of the open chat, or `chats` for the list of chats; `null` at first. */
const shownView = signal<number | "chats" | null>(null);
/** The error of the last request, if the request had no valid token. */
const rejection = signal<unknown>(undefined);
/** Why the last attempt to create a chat failed. */
const creationError = signal<unknown>(undefined);

const createChat = async () => {
  shownView.value = (await session.client.createChat()).id;
  creationError.value = undefined;
  stale.value++;
};
const create = () => createChat().catch((error) => (creationError.value = error));

/** Focuses the field or, on a phone, the heading, because a focused field would open the keyboard over the greeting. */
const focus = () => {
  const field = isPhone ? null : document.querySelector("textarea");
  (field ?? document.querySelector("h2"))?.focus();
};

interface WindowProps {
  /** Opens the visitor's newest chat, or creates one. */
  readonly start: () => Promise<void>;
  readonly readQuestions: (signal: AbortSignal) => Promise<ReadonlyArray<string>>;
}

const Window = ({ readQuestions, start }: WindowProps) => {
  const { error, retry } = useRead(start);
  const failure = error ?? rejection.value;
  const view = shownView.value;
  return (
    <main class="widget view">
      <h1 class="unseen">Chat</h1>
      <header class="row">
        <h2 dir="auto" tabIndex={-1}>
          {config.name}
        </h2>
        {view !== null && (
          <>
            <button
              class="plain"
              title={translate("Earlier chats")}
              onClick={() => (shownView.value = "chats")}
            >
              <Icon name="more" />
            </button>
            <button class="plain" title={translate("New chat")} onClick={create}>
              <Icon name="plus" />
            </button>
          </>
        )}
        <button class="plain" title={translate("Close the chat")} onClick={() => send("close")}>
          <Icon name="close" />
        </button>
      </header>
      <div>
        <Failure error={failure ?? creationError.value} retry={failure ? retry : create} />
      </div>
      {view === "chats" ? (
        <Chats />
      ) : (
        view && (
          <Conversation
            key={view}
            chatId={view}
            welcome={(ask) => <Questions ask={ask} read={readQuestions} />}
            note={config.model && translate("A language model answers. It can be wrong.")}
          />
        )
      )}
      <p class="unseen" role="status">
        {announcement.value}
      </p>
    </main>
  );
};

/** The visitor's chats, newest first. */
const Chats = () => {
  const { error, retry, value } = useRead(async () => {
    const { data } = await session.client.chats({ limit: 100 }).page();
    // Reading a title takes a request, and a visitor may send only a few.
    for (const chat of data.slice(0, 5)) void nameChat(chat);
    return data;
  }, [stale.value]);
  return (
    <nav class="chats" aria-label={translate("Earlier chats")}>
      <Failure error={error} retry={retry} />
      <ul>
        {value?.map((chat) => (
          <li>
            <button class="plain" onClick={() => (shownView.value = chat.id)}>
              <span class="name" dir="auto">
                {titleOf(chat)}
              </span>
              <span class="quiet">
                <Time iso={chat._createTime} />
              </span>
            </button>
          </li>
        ))}
      </ul>
    </nav>
  );
};

const begin = ({ colors, isKnown, locale }: Greeting) => {
  const root = document.documentElement;
  root.lang = locale;
  root.style.setProperty("--brand", colors[0]);
  root.style.setProperty("--on-brand", colors[1]);
  setWords(locale === "de" ? german : english);
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
  const start = async () => {
    // Runs before `openSession` resumes asks: the first request gets a token, and so removes another visitor's asks.
    const { data } = await client.chats().page();
    if (session === undefined)
      openSession({ client, name: location.pathname, questionLength: config.questionLength });
    if (data.length === 0) await createChat();
    else shownView.value = data[0]!.id;
  };
  const readQuestions = async (signal: AbortSignal) => {
    const response = await fetch("questions", { signal });
    return response.ok ? response.json() : [];
  };
  // Visitors have no key to enter. The default link to a new chat would add an entry to the browsing history of the
  // page around the window.
  delete actions["key"];
  actions["chat"] = <button onClick={create}>{translate("New chat")}</button>;
  render(<Window {...{ start, readQuestions }} />, document.body);
  send("ready");
};

addEventListener("message", ({ data, origin, ports, source }) => {
  if (port !== undefined || source !== parent || !config.origins.includes(origin)) return;
  port = ports[0]!;
  port.onmessage = ({ data }: MessageEvent<FromPage>) =>
    data === "open" ? focus() : resolve(data.token);
  begin(data);
});
// The focused element may handle the key first.
addEventListener("keydown", ({ defaultPrevented, isComposing, key }) => {
  if (key === "Escape" && !defaultPrevented && !isComposing) send("close");
});
