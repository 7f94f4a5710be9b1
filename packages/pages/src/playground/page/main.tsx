/**
 * The whole page: the question for a key, or the chats beside the one that is open.
 */
import { render } from "preact";
import { ResponseError } from "@parley/client";
import { ChatList, NewChat, NewChatButton } from "./Chats.tsx";
import { Conversation } from "./Conversation.tsx";
import { Failure, focus, useRead } from "./Parts.tsx";
import { Requests } from "./Requests.tsx";
import { client, forgetKey, key, route, setKey, spoken } from "./Session.ts";

/** `error`: why the last key was not accepted. */
const KeyForm = ({ error }: { readonly error?: unknown }) => (
  <main>
    <form
      class="stack form welcome"
      onSubmit={(event) => {
        event.preventDefault();
        setKey(String(new FormData(event.currentTarget).get("key")).trim());
      }}
    >
      <img src="/playground/icon.svg" alt="" width="48" height="48" />
      <h1>Parley playground</h1>
      <p>Meet a chatbot: read its chats, ask it questions, and see each request.</p>
      <label for="key">API key</label>
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
      <Failure error={error} />
      <p class="quiet">
        The first start prints a key, and <code>parley key create</code> makes another. This tab
        keeps it until you close the tab.
      </p>
    </form>
  </main>
);

const Chatbot = () => {
  const { error, retry, value: details } = useRead(() => client.details());
  if (error instanceof ResponseError && error.status === 401) return <KeyForm error={error} />;
  return (
    <main class={route.value === "" ? "app at-list" : "app"}>
      <h1 class="unseen">Parley playground</h1>
      <section class="side column" aria-label="Chats">
        <header>
          <p dir="auto" class="quiet">
            {details?.workspaceName ?? "Parley"}
          </p>
          <h2 dir="auto">{details?.chatBotName ?? "Playground"}</h2>
          <p dir="auto" class="quiet">
            {details?.chatBotDescription}
          </p>
          <Failure error={error} retry={retry} />
        </header>
        <ChatList />
        <footer class="row">
          <Requests />
          <button onClick={forgetKey}>Forget key</button>
        </footer>
      </section>
      <section class="view" aria-label="Chat">
        <View />
      </section>
    </main>
  );
};

const View = () => {
  if (route.value === "new") return <NewChat />;
  const chatId = Number(/^chat\/(\d+)$/.exec(route.value)?.[1]);
  if (chatId > 0) return <Conversation key={chatId} chatId={chatId} />;
  return (
    <div class="stack form welcome">
      <p>Choose a chat, or begin a new one.</p>
      <NewChatButton />
    </div>
  );
};

const Page = () => (
  <>
    {key === null ? <KeyForm /> : <Chatbot />}
    <p class="unseen" role="status">
      {spoken.value}
    </p>
  </>
);

render(<Page />, document.body);
