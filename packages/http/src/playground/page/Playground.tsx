/**
 * The whole page: the question for a key, or the chats beside the one that is open.
 */
import { signal } from "@preact/signals";
import { useEffect, useMemo, useState } from "preact/hooks";
import { ResponseError, type ChatbotDetails, type Client } from "../../client/index.ts";
import { ChatList } from "./ChatList.tsx";
import { Conversation } from "./Conversation.tsx";
import { Failure } from "./Failure.tsx";
import { NewChat } from "./NewChat.tsx";
import { Requests } from "./Requests.tsx";
import { key, makeSessionClient, route, setKey, spoken } from "./Session.ts";

/** Why the last key was not accepted. */
const rejection = signal<unknown>(null);

export const Playground = () => (
  <>
    {key.value === null ? <KeyForm /> : <Chatbot key={key.value} apiKey={key.value} />}
    <p class="unseen" role="status">
      {spoken.value}
    </p>
  </>
);

const KeyForm = () => {
  useEffect(() => document.getElementById("key")?.focus(), []);
  return (
    <main class="welcome">
      <img src="/playground/icon.svg" alt="" width="48" height="48" />
      <h1>Parley playground</h1>
      <p>Meet a chatbot: read its chats, ask it questions, and see each request.</p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const text = String(new FormData(event.currentTarget).get("key")).trim();
          if (text !== "") setKey(text);
        }}
      >
        <label for="key">API key</label>
        <input
          id="key"
          name="key"
          type="password"
          autoComplete="off"
          spellcheck={false}
          placeholder="prl_…"
        />
        <button class="primary">Open</button>
      </form>
      <Failure error={rejection.value} />
      <p class="quiet">
        The first start prints a key, and <code>parley key create</code> makes another. This tab
        keeps it until you close the tab.
      </p>
    </main>
  );
};

const Chatbot = ({ apiKey }: { readonly apiKey: string }) => {
  const client = useMemo(() => makeSessionClient(apiKey), [apiKey]);
  const [details, setDetails] = useState<ChatbotDetails | null>(null);
  const [error, setError] = useState<unknown>(null);
  const load = () => {
    setError(null);
    client.details().then(
      (found) => {
        rejection.value = null;
        setDetails(found);
      },
      (failed: unknown) => {
        if (!(failed instanceof ResponseError) || failed.status !== 401) return setError(failed);
        rejection.value = failed;
        setKey(null);
      },
    );
  };
  useEffect(load, [client]);
  useEffect(() => {
    document.title = details === null ? "Parley playground" : `${details.chatBotName} · Parley`;
  }, [details]);

  return (
    <main class={route.value === "" ? "app at-list" : "app"}>
      <h1 class="unseen">Parley playground</h1>
      <section class="side" aria-label="Chats">
        <header>
          <p class="quiet" dir="auto">
            {details?.workspaceName ?? "Parley"}
          </p>
          <h2 dir="auto">{details?.chatBotName ?? "Playground"}</h2>
          <p class="quiet" dir="auto">
            {details?.chatBotDescription}
          </p>
          <Failure error={error} retry={load} />
        </header>
        <ChatList client={client} />
        <footer>
          <Requests />
          <button onClick={() => setKey(null)}>Forget key</button>
        </footer>
      </section>
      <section class="view" aria-label="Chat">
        <View client={client} />
      </section>
    </main>
  );
};

const View = ({ client }: { readonly client: Client }) => {
  if (route.value === "new") return <NewChat client={client} />;
  const chatId = Number(/^chat\/(\d+)$/.exec(route.value)?.[1]);
  if (chatId > 0) return <Conversation key={chatId} client={client} chatId={chatId} />;
  return (
    <div class="empty">
      <p>Choose a chat, or begin a new one.</p>
      <a class="button primary" href="#new">
        New chat
      </a>
    </div>
  );
};
