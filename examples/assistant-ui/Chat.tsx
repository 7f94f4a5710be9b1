import {
  AssistantRuntimeProvider,
  ComposerPrimitive,
  MessagePrimitive,
  ThreadPrimitive,
  useExternalStoreRuntime,
  type AppendMessage,
} from "@assistant-ui/react";
import { hasQuestion, makeClient, type Entry } from "@parley/client";
import { useEffect, useRef, useState } from "react";

const parley = makeClient(); // uses the page's origin, where your proxy adds the key

interface Message {
  readonly id: string;
  readonly role: "user" | "assistant";
  readonly content: string;
}

/** An entry as two messages, or as one if it has no question, such as the hello message. */
const toMessages = (entry: Entry): ReadonlyArray<Message> => {
  const answer = { id: `${entry.id}`, role: "assistant", content: entry.answer } as const;
  if (!hasQuestion(entry)) return [answer];
  return [{ id: `${entry.id}-question`, role: "user", content: entry.question }, answer];
};

/** The chat as a store for assistant-ui, with the entries in its history and the answer in progress. */
const useParley = (chatId: number) => {
  const [entries, setEntries] = useState<ReadonlyArray<Entry>>([]);
  const [asked, setAsked] = useState<Pick<Entry, "question" | "answer"> | null>(null);
  const hangUp = useRef<AbortController | null>(null);

  useEffect(() => {
    const unmount = new AbortController();
    const load = async () => {
      const read: Array<Entry> = [];
      const history = parley.history(chatId, { orderBy: "id" }, { signal: unmount.signal });
      for await (const entry of history) read.push(entry);
      setEntries(read);
    };
    load().catch((error) => unmount.signal.aborted || console.error(error));
    return () => unmount.abort();
  }, [chatId]);

  const onNew = async ({ content }: AppendMessage) => {
    const question = content.map((part) => (part.type === "text" ? part.text : "")).join("");
    const { signal } = (hangUp.current = new AbortController());
    let answer = "";
    const show = (text: string) => setAsked({ question, answer: (answer = text) });
    show("");
    try {
      const ask = { chat_id: chatId, query: question };
      for await (const event of parley.stream(ask, { signal, onDisconnect: "cancel" })) {
        if (event.type === "delta") show(answer + event.text);
        if (event.type === "restart") show("");
        if (event.type === "entry") setEntries((before) => [...before, event.entry]);
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      setAsked(null);
    }
  };

  const inProgress: ReadonlyArray<Message> =
    asked === null
      ? []
      : [
          { id: "question", role: "user", content: asked.question },
          { id: "answer", role: "assistant", content: asked.answer },
        ];
  return useExternalStoreRuntime({
    isRunning: asked !== null,
    messages: [...entries.flatMap(toMessages), ...inProgress],
    convertMessage: (message: Message) => message,
    onNew,
    onCancel: async () => hangUp.current?.abort(),
  });
};

const TextMessage = () => (
  <MessagePrimitive.Root>
    <MessagePrimitive.Parts />
  </MessagePrimitive.Root>
);

/** The chat, with a composer whose Stop button ends the model's request. */
export const Chat = ({ chatId }: { readonly chatId: number }) => (
  <AssistantRuntimeProvider runtime={useParley(chatId)}>
    <ThreadPrimitive.Root>
      <ThreadPrimitive.Viewport>
        <ThreadPrimitive.Messages components={{ Message: TextMessage }} />
      </ThreadPrimitive.Viewport>
      <ComposerPrimitive.Root>
        <ComposerPrimitive.Input placeholder="Ask a question" />
        <ComposerPrimitive.Send>Send</ComposerPrimitive.Send>
        <ComposerPrimitive.Cancel>Stop</ComposerPrimitive.Cancel>
      </ComposerPrimitive.Root>
    </ThreadPrimitive.Root>
  </AssistantRuntimeProvider>
);
