/**
 * The whole page: the question for a key, or the chats beside the one that is open.
 */
import { useSignalEffect } from "@preact/signals";
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Chat, Entry } from "@parley/client";
import { isRunning } from "../../page/ChatSession.ts";
import { Composer } from "../../page/Composer.tsx";
import { Conversation, Exchange } from "../../page/Conversation.tsx";
import { Failure } from "../../page/Failure.tsx";
import { focus, Icon, isPhone, useRead } from "../../page/Parts.tsx";
import { ChatList, nameChat, titleOf } from "./Chats.tsx";
import { Requests } from "./Requests.tsx";
import {
  addresses,
  client,
  config,
  forgetKey,
  isKey,
  key,
  mayAsk,
  rejection,
  route,
  session,
  setKey,
} from "./Session.ts";

/** `error`: why the last key was not accepted. */
const KeyForm = ({ error }: { readonly error?: unknown }) => {
  const [isWrong, setWrong] = useState(key !== null && !isKey(key));
  return (
    <main class="welcome">
      <form
        class="stack form"
        onSubmit={(event) => {
          event.preventDefault();
          const text = String(new FormData(event.currentTarget).get("key")).trim();
          if (isKey(text)) setKey(text);
          else setWrong(true);
        }}
      >
        <h1>Meet your chatbot</h1>
        <p>Read its chats, ask it questions, and see each request. An API key opens one chatbot.</p>
        <Failure error={error} />
        {isWrong && (
          <p class="failure" role="alert">
            That is not a key. Copy it again, without anything around it.
          </p>
        )}
        <label for="key">API key</label>
        <div class="row">
          <input
            id="key"
            name="key"
            type="password"
            autoComplete="off"
            placeholder="prl_…"
            required
            ref={focus}
          />
          <button class="primary">Open</button>
        </div>
        <p class="quiet">
          The first start prints a key, and <code>parley key create</code> makes another. This tab
          keeps it until you close the tab.
        </p>
      </form>
    </main>
  );
};

/** Who answers. */
const Note = () => {
  if (config.answerer === null) return null;
  if (config.answerer === "model") return <>A language model answers. It can be wrong.</>;
  return <>Quotes its documents. {config.guide && <a href="/docs/models">Connect a model →</a>}</>;
};

const Chatbot = () => {
  const { error, retry, value: details } = useRead(() => client.details());
  const chatId = Number(/^chat\/(\d+)$/.exec(route.value)?.[1]);
  const name = details?.chatBotName ?? "Playground";
  useEffect(() => {
    if (!(chatId > 0)) document.title = `${name} · Parley`;
  }, [chatId, name]);
  useEffect(() => {
    addEventListener("keydown", (event) => {
      if (!(event.ctrlKey || event.metaKey) || event.altKey) return;
      const pressed = `${event.shiftKey ? "shift " : ""}${event.key.toLowerCase()}`;
      if (pressed !== "k" && pressed !== "shift o") return;
      event.preventDefault();
      if (pressed === "shift o") location.hash = "";
      else document.getElementById("search")?.focus();
    });
  }, []);
  if (rejection.value !== undefined) return <KeyForm error={rejection.value} />;
  return (
    <main class={route.value === "chats" ? "app at-list" : "app"}>
      <h1 class="unseen">{name}</h1>
      <nav class="side column" aria-label="Chats">
        <header>
          <p dir="auto" class="name">
            {name}
          </p>
          <p dir="auto" class="quiet">
            {details?.workspaceName}
          </p>
        </header>
        <Failure error={error} retry={retry} forgetKey={forgetKey} />
        <ChatList />
        <footer class="row">
          <Requests />
          <button onClick={forgetKey}>Forget key</button>
        </footer>
      </nav>
      <section class="view" aria-label="Chat">
        {chatId > 0 ? (
          <OpenChat key={chatId} chatId={chatId} bot={name} />
        ) : (
          <NewChat name={name} description={details?.chatBotDescription} />
        )}
      </section>
    </main>
  );
};

/** A phone shows either the list or a chat. */
const Back = () => (
  <a class="back" href="#chats" aria-label="All chats">
    <Icon name="back" />
  </a>
);

const OpenChat = ({ bot, chatId }: { readonly bot: string; readonly chatId: number }) => {
  const { value: chat } = useRead(async () => {
    const [chat = { id: chatId, name: null }] = (await client.chats({ id: chatId }).page()).data;
    nameChat(chat).catch(() => undefined);
    return chat as Chat;
  });
  const title = titleOf(chat ?? { id: chatId, name: null });
  useEffect(() => {
    document.title = `${title} · ${bot}`;
  }, [title, bot]);
  const header = (total: number | undefined) => (
    <header class="row">
      <div class="heading">
        <Back />
        <div>
          <h2 dir="auto" tabIndex={-1} ref={isPhone ? focus : null}>
            {title}
          </h2>
          <p class="quiet facts">
            <span>Chat {chatId}</span>
            {chat?.userRef && <bdi>{chat.userRef}</bdi>}
            {total !== undefined && (
              <span>{total === 1 ? "1 entry" : `${total.toLocaleString("en")} entries`}</span>
            )}
          </p>
        </div>
      </div>
      <button
        class="plain"
        aria-label="Save as Markdown"
        title="Save as Markdown"
        onClick={() => void save(chatId, title)}
      >
        <Icon name="save" />
      </button>
    </header>
  );
  const instead = mayAsk ? undefined : <MayNotAsk />;
  return <Conversation {...{ chatId, forgetKey, header, instead, session }} note={<Note />} />;
};

/** Downloads a chat, oldest entry first. */
const save = async (chatId: number, title: string) => {
  let text = `# ${title}\n`;
  const toText = ({ _createTime, answer, question }: Entry) =>
    `\n${question && `> ${question.replaceAll("\n", "\n> ")}\n\n`}${answer}\n\n*${_createTime}*\n`;
  for await (const entry of client.history(chatId, { limit: 100, orderBy: "id" })) {
    text += toText(entry);
  }
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/markdown" }));
  link.download = `chat-${chatId}.md`;
  link.click();
  URL.revokeObjectURL(link.href);
};

interface NewChatProps {
  readonly name: string;
  readonly description: string | undefined;
}

/** The first question creates the chat. */
const NewChat = ({ description, name }: NewChatProps) => {
  const { value: questions = [] } = useRead(async (signal): Promise<ReadonlyArray<string>> => {
    const response = await fetch("/playground/questions", {
      headers: { "x-api-key": key! },
      signal,
    });
    return response.ok ? response.json() : [];
  });
  const fields = useRef<HTMLFormElement>(null);
  const field = (name: string) =>
    (fields.current && String(new FormData(fields.current).get(name))) || null;
  const [error, setError] = useState<unknown>();
  const create = async (event: Event) => {
    event.preventDefault();
    try {
      const { id } = await client.createChat({ name: field("name"), userRef: field("userRef") });
      session.created.value++;
      location.hash = `chat/${id}`;
    } catch (failed) {
      setError(failed);
    }
  };
  const ask = (question: string) =>
    session.start({
      chatId: null,
      newChat: {
        name: field("name") ?? [...question.trim()].slice(0, 60).join(""),
        userRef: field("userRef"),
      },
      question,
      after: 0,
    });
  const asks = session.asks.value.filter(({ chatId }) => chatId === null);
  const shown = useRef<ReadonlyArray<string>>([]);
  useSignalEffect(() => {
    const made = session.asks.value.find(
      ({ chatId, id }) => chatId !== null && shown.current.includes(id),
    );
    shown.current = session.asks.value.filter(({ chatId }) => chatId === null).map(({ id }) => id);
    if (made) location.replace(`#chat/${made.chatId}`);
  });
  return (
    <div class="column">
      <header class="heading back">
        <Back />
        <p class="quiet">New chat</p>
      </header>
      <div class="scroller">
        <div class={asks.length === 0 ? "stack welcome" : ""}>
          {asks.length === 0 && (
            <>
              <h2 dir="auto">Ask {name}</h2>
              {description && <p dir="auto">{description}</p>}
              {mayAsk && questions.length > 0 && (
                <ul class="questions" aria-label="Questions to begin with">
                  {questions.map((question) => (
                    <li key={question}>
                      <button dir="auto" onClick={() => ask(question)}>
                        {question}
                      </button>
                    </li>
                  ))}
                </ul>
              )}
              <details>
                <summary class="quiet">With a name or a user reference</summary>
                <form class="stack" ref={fields} onSubmit={create}>
                  <label for="name">Name</label>
                  <input id="name" name="name" dir="auto" />
                  <label for="user-ref">User reference</label>
                  <input id="user-ref" name="userRef" dir="auto" aria-describedby="user-ref-help" />
                  <p id="user-ref-help" class="quiet">
                    Your own name of the user. Both may be empty.
                  </p>
                  <button>Create chat</button>
                  <Failure error={error} forgetKey={forgetKey} />
                </form>
              </details>
            </>
          )}
          {asks.map((one) => (
            <Exchange key={one.id} ask={one} {...{ forgetKey, session }} />
          ))}
        </div>
      </div>
      <div class="below">
        {mayAsk ? (
          <Composer session={session} chat="new" running={asks.find(isRunning)} send={ask}>
            <Note />
          </Composer>
        ) : (
          <MayNotAsk />
        )}
      </div>
    </div>
  );
};

const MayNotAsk = () => (
  <p>
    The answers interface has port {new URL(addresses.askUrl).port}. Start the server with{" "}
    <code>PARLEY_CORS_ORIGINS={location.origin}</code>, so that this page may ask.
  </p>
);

const Page = () => (
  <>
    {key === null || !isKey(key) ? <KeyForm /> : <Chatbot />}
    <p class="unseen" role="status">
      {session.spoken.value}
    </p>
  </>
);

render(<Page />, document.getElementById("page")!);
