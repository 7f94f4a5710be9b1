/** The page of the support desk: a chat for customers, and the list of chats for colleagues. */
import { useChat } from "@ai-sdk/react";
import { makeClient, type Entry } from "@parley/client";
import { makeChatTransport, toMessages, type ParleyMessage } from "@parley/client/ai-sdk";
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import Markdown from "react-markdown";

const parley = makeClient();
const include = ["metadata", "feedback"] as const;

/** The messages of the chat, in which entries that another page or a colleague added are messages, too. */
const flatten = (messages: ReadonlyArray<ParleyMessage>) =>
  messages.flatMap((message) => [
    ...message.parts.flatMap((part) => (part.type === "data-entry" ? toMessages([part.data]) : [])),
    message,
  ]);

const Thumbs = ({ entry }: { readonly entry: NonNullable<ParleyMessage["metadata"]> }) => {
  const [rating, setRating] = useState(entry.rating ?? null);
  const rate = (rating: "good" | "bad") =>
    parley.rate(entry.chat_id, entry.id, { rating }).then(() => setRating(rating));
  return (["good", "bad"] as const).map((name) => (
    <button key={name} aria-pressed={rating === name} onClick={() => rate(name)}>
      {name === "good" ? "Helpful" : "Not helpful"}
    </button>
  ));
};

const Message = ({ message }: { readonly message: ParleyMessage }) => (
  <li className={message.role}>
    {message.parts.map((part, index) => {
      if (part.type === "text" && message.role === "user") return <p key={index}>{part.text}</p>;
      if (part.type === "text") return <Markdown key={index}>{part.text}</Markdown>;
      if (part.type === "source-url")
        return (
          <a key={index} href={part.url}>
            {part.title}
          </a>
        );
      if ((part.type as string) === "data-author")
        return <cite key={index}>{String((part as { readonly data?: unknown }).data)}</cite>;
      return null;
    })}
    {message.role === "assistant" && message.metadata?.id !== undefined && (
      <Thumbs entry={message.metadata} />
    )}
  </li>
);

const Chat = ({ chatId, earlier }: { readonly chatId: number; readonly earlier: Array<Entry> }) => {
  const [transport] = useState(() => makeChatTransport({ client: parley, chatId }));
  const { error, messages, regenerate, sendMessage, setMessages, status, stop } =
    useChat<ParleyMessage>({ id: String(chatId), transport, messages: toMessages(earlier) });
  const isBusy = status === "submitted" || status === "streaming";
  const shown = flatten(messages);
  const at = messages.findLastIndex(({ role }) => role === "user");
  // The answer has the id of an entry, unless it failed or was stopped.
  const isOpen = at >= 0 && !isBusy && messages[at + 1]?.metadata?.id === undefined;
  const last = Math.max(0, ...shown.map(({ metadata }) => metadata?.id ?? 0));
  useEffect(() => {
    if (isBusy) return;
    const stop = new AbortController();
    const poll = async () => {
      const query = { after: last, orderBy: "id", include } as const;
      const { data } = await parley.history(chatId, query, stop).page();
      if (stop.signal.aborted) return;
      if (data.length === 0) timer = setTimeout(() => poll().catch(console.warn), 1_000);
      else setMessages((before) => [...before, ...toMessages(data)]);
    };
    let timer = setTimeout(() => poll().catch(console.warn), 1_000);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [chatId, isBusy, last, setMessages]);
  return (
    <>
      <ol aria-live="polite">
        {shown.map((message) => (
          <Message key={message.id} message={message} />
        ))}
      </ol>
      {isBusy && <button onClick={stop}>Stop</button>}
      {isOpen && (
        <p role="alert">
          {error ? `There is no answer: ${error.message}. ` : "Stopped. "}
          <button onClick={() => regenerate({ messageId: messages[at]!.id })}>Ask again</button>
        </p>
      )}
      <Field isBusy={isBusy} label="Your question" send={(text) => sendMessage({ text })} />
    </>
  );
};

const Field = (props: {
  readonly isBusy?: boolean;
  readonly label: string;
  readonly send: (text: string) => unknown;
}) => (
  <form
    action={(fields) => {
      props.send(String(fields.get("text")));
    }}
  >
    <label>
      {props.label} <input name="text" required />
    </label>
    <button disabled={props.isBusy}>Send</button>
  </form>
);

interface DeskChat {
  readonly id: number;
  readonly userRef: string;
  readonly entries: number;
}

const Desk = () => {
  const [chats, setChats] = useState<ReadonlyArray<DeskChat>>([]);
  const load = () => fetch("/desk").then(async (response) => setChats(await response.json()));
  useEffect(() => void load(), []);
  const post = async (id: number, text: string) => {
    const headers = { "content-type": "application/json" };
    await fetch(`/desk/${id}`, { method: "POST", headers, body: JSON.stringify({ text }) });
    await load();
  };
  return chats.map(({ entries, id, userRef }) => (
    <section key={id}>
      <h2>
        {userRef}: {entries} entries
      </h2>
      <Field label={`Answer ${userRef}`} send={(text) => post(id, text)} />
    </section>
  ));
};

const user = new URLSearchParams(location.search).get("user") ?? "ann";
const { isStaff } = await (await fetch(`/login/${user}`, { method: "POST" })).json();
const open = async () => {
  const [chat = await parley.createChat()] = (await parley.chats({ limit: 1 }).page()).data;
  const earlier = await Array.fromAsync(parley.history(chat.id, { orderBy: "id", include }));
  return <Chat chatId={chat.id} earlier={earlier} />;
};
createRoot(document.body).render(isStaff ? <Desk /> : await open());
