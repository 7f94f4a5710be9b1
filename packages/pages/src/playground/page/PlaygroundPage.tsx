/**
 * The whole page: either the form for a key, or the list of chats beside the open chat.
 */
import { render } from "preact";
import { useRef, useState } from "preact/hooks";
import type { Entry } from "@parley/client";
import { announcement, openSession, stale } from "../../page/ChatSession.ts";
import { Conversation, Questions } from "../../page/Conversation.tsx";
import { Failure } from "../../page/Failure.tsx";
import { focus, Icon, Time, useRead } from "../../page/Parts.tsx";
import { translate, weave, type Phrase } from "../../page/words.ts";
import { ChatList } from "./ChatList.tsx";
import { Back, OpenChat } from "./OpenChat.tsx";
import { Requests } from "./Requests.tsx";
import { addresses, client, config, forgetKey } from "./Session.ts";
import { key, mayAsk, rejection, route, setKey, visitor } from "./Session.ts";

/** `error` is the error with which the server rejected the previous key. */
const KeyForm = ({ error }: { readonly error?: unknown }) => {
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    setKey(String(new FormData(event.currentTarget as HTMLFormElement).get("key")).trim());
  };
  return (
    <main>
      <form class="stack form" onSubmit={submit}>
        <h1>{translate("Meet your chatbot")}</h1>
        <p>
          {translate(
            "Read its chats, ask it questions, and see each request. An API key gives access to one chatbot.",
          )}
        </p>
        <Failure error={error} />
        <label for="key">{translate("API key or visitor token")}</label>
        <div class="row">
          <input
            id="key"
            name="key"
            type="password"
            autoComplete="off"
            placeholder="prl_…"
            pattern="\s*[!-~]+\s*"
            title={translate("A key has no spaces or accented letters")}
            required
            ref={focus}
          />
          <button class="primary">{translate("Open")}</button>
        </div>
        <p class="quiet">
          {weave(
            "The server prints a key, or the path of the key file, when it first starts, and {} creates another. The key stays in this tab until you close it. To see what a visitor sees, enter a visitor token from {}.",
            <code>parley key create</code>,
            <code>parley key token</code>,
          )}
        </p>
      </form>
    </main>
  );
};

const Chatbot = () => {
  const { error, retry, value: details } = useRead(() => client.details());
  if (rejection.value !== undefined || route.value === "key") {
    return <KeyForm error={rejection.value} />;
  }
  const chatId = Number(/^chat\/(\d+)$/.exec(route.value)?.[1]);
  const name = details?.chatBotName ?? translate("Playground");
  return (
    <main class={route.value === "chats" ? "app at-list" : "app"}>
      <h1 class="unseen">{name}</h1>
      <nav class="side column" aria-label={translate("Chats")}>
        <header dir="auto">
          <p class="name">{name}</p>
          <p class="quiet">{details?.workspaceName}</p>
          {visitor !== null && <p class="quiet">{weave("Visitor {}", <bdi>{visitor}</bdi>)}</p>}
        </header>
        <Failure error={error} retry={retry} />
        <ChatList />
        <footer class="row">
          <Requests />
          <button onClick={forgetKey}>{translate("Forget key")}</button>
        </footer>
      </nav>
      <section class="view" aria-label={translate("Chat")}>
        {chatId > 0 ? (
          <OpenChat key={chatId} {...{ chatId, note, replacement }} bot={name} />
        ) : (
          <NewChat name={name} description={details?.chatBotDescription} />
        )}
      </section>
    </main>
  );
};

addEventListener("keydown", (event) => {
  const shortcut = `${event.shiftKey ? "shift " : ""}${event.key.toLowerCase()}`;
  if (!(event.ctrlKey || event.metaKey) || !["k", "shift o"].includes(shortcut)) return;
  event.preventDefault();
  if (shortcut === "k") document.getElementById("search")?.focus();
  else location.hash = "";
});

const note =
  config.answerer === "model" ? (
    translate("A language model answers. It can be wrong.")
  ) : config.answerer === null ? null : (
    <>
      {translate("The chatbot answers with quotes from its documents.")}{" "}
      {config.guide && <a href="/docs/models">{translate("Connect a model →")}</a>}
    </>
  );

/** Replaces the question field if this page may not ask; otherwise `undefined`. */
const replacement = mayAsk ? undefined : (
  <p>
    {weave(
      "The answers interface is at {}. Add {} to {} and restart the server, so that this page can ask questions.",
      new URL(addresses.askUrl).host,
      <code>{location.origin}</code>,
      <code>PARLEY_CORS_ORIGINS</code>,
    )}
  </p>
);

const readQuestions = async (signal: AbortSignal) => {
  const response = await fetch("/playground/questions", { headers: { "x-api-key": key }, signal });
  return response.ok && mayAsk ? (await response.json()).questions : [];
};

interface NewChatProps {
  readonly name: string;
  readonly description?: string | undefined;
}

/** The view of a new chat, which the first question or the form creates. */
const NewChat = ({ description, name }: NewChatProps) => {
  const fields = useRef<HTMLFormElement>(null);
  const [error, setError] = useState<unknown>();
  const { value: questions = [] } = useRead(readQuestions);
  document.title = `${name} · Parley`;
  const toNewChat = (question: string) => {
    const form = new FormData(fields.current ?? undefined);
    const first = [...question.trim()].slice(0, 60).join("");
    return {
      name: String(form.get("name") || first) || null,
      userRef: String(form.get("userRef") ?? "") || null,
    };
  };
  const create = (event: Event) => {
    event.preventDefault();
    client.createChat(toNewChat("")).then(({ id }) => {
      stale.value++;
      location.hash = `chat/${id}`;
    }, setError);
  };
  const header = () => (
    <header class="heading phone">
      <Back /> {translate("New chat")}
    </header>
  );
  const welcome = (ask: (question: string) => void) => (
    <div class="stack welcome">
      <h2 dir="auto">{translate("Ask {}", name)}</h2>
      <p dir="auto">{description}</p>
      <Questions {...{ ask, questions }} />
      <details>
        <summary class="quiet">
          {translate("Create a chat with a name or a user reference")}
        </summary>
        <form class="stack" ref={fields} onSubmit={create}>
          <label for="name">{translate("Name")}</label>
          <input id="name" name="name" dir="auto" />
          <label for="user-ref">{translate("User reference: your own id for the user")}</label>
          <input id="user-ref" name="userRef" dir="auto" />
          <button>{translate("Create chat")}</button>
          <Failure error={error} retry={() => fields.current!.requestSubmit()} />
        </form>
      </details>
    </div>
  );
  return <Conversation chatId={null} {...{ header, replacement, note, toNewChat, welcome }} />;
};

const Page = () => (
  <>
    {key ? <Chatbot /> : <KeyForm />}
    <p class="unseen" role="status">
      {announcement.value}
    </p>
  </>
);

/** The details of an entry, which expand below it. */
const Facts = ({ _createTime, flagged, id, moderation }: Entry) => (
  <details>
    <summary title={translate("Details")}>
      <Icon name="more" />
    </summary>
    <span class="facts">
      <Time iso={_createTime} dateStyle="medium" />
      <span>{translate("Entry {}", id)}</span>
      <span>{translate("Moderation: {}", moderation)}</span>
      <span>{translate(flagged ? "Flagged" : "Not flagged")}</span>
    </span>
  </details>
);

/** Translates a link in one of the guide's documents to its address in the guide; `undefined` for any other link. */
const toGuide = (href: string): string | undefined => {
  const document = /^(?:\/|\.\.\/|\.\/|docs\/)*([\w/-]+?)(?:\.md)?(#.*)?$/.exec(href);
  return document === null ? undefined : `/docs/${document[1]}${document[2] ?? ""}`;
};

// The bar above the page is English until this script runs.
for (const link of document.querySelectorAll(".bar nav a")) {
  link.textContent = translate(link.textContent as Phrase);
}
openSession({
  client,
  name: key,
  questionLength: config.questionLength,
  onCreated: (id) => {
    if (route.peek() !== "") return;
    location.replace(`#chat/${id}`);
    // Without this, the page would show the welcome of a new chat again until `hashchange` fires.
    route.value = `chat/${id}`;
  },
  toFacts: Facts,
  toAddress: (href) => (config.answerer === "guide" && config.guide ? toGuide(href) : undefined),
});
render(<Page />, document.getElementById("page")!);
