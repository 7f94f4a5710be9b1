/**
 * What a tab knows beside the server: the asks in progress, the entries that came of them, and the drafts. It belongs
 * to a client, and tells the other tabs of the same origin.
 */
import { signal, type Signal } from "@preact/signals";
import {
  ConnectionError,
  ResponseError,
  type Client,
  type Entry,
  type NewChat,
} from "@parley/client";
import type { ToAddress } from "./Markdown.tsx";
import { kept, untilBack } from "./Parts.tsx";

/** A question, and the answer so far. */
export interface Ask {
  /** Its idempotency key. */
  readonly id: string;
  /** `null`: the chat is still being created, with the fields of `newChat`. */
  readonly chatId: number | null;
  readonly newChat?: NewChat | undefined;
  readonly question: string;
  readonly text: Signal<string>;
  readonly state:
    | "waiting"
    | "streaming"
    | "reconnecting"
    | "busy"
    | "stopping"
    | "stopped"
    | "failed";
  /** In milliseconds of the epoch. */
  readonly since: number;
  /** The newest entry of the chat when it was asked. */
  readonly after: number;
  /** Why it failed; missing after a reload. */
  readonly error?: unknown;
  /** A stopped ask is known to have stored nothing. */
  readonly isCancelled?: boolean;
}

export const isRunning = ({ state }: Ask): boolean => state !== "stopped" && state !== "failed";

/** An entry that arrived while the page was open, and the ask of this tab that it answers. */
export interface NewEntry extends Entry {
  readonly askId?: string | undefined;
}

/** What a tab tells the others. */
type Message =
  | { readonly type: "opened" }
  | { readonly type: "created" }
  | { readonly type: "ask"; readonly id: string; readonly chatId: number | null }
  | { readonly type: "entry"; readonly entry: Entry };

export interface ChatSessionOptions {
  readonly client: Client;
  /** Tabs with the same name see each other's entries. */
  readonly name: string;
  /** Where the links of answers lead that are neither on the web nor mail. */
  readonly toAddress?: ToAddress | undefined;
}

export type ChatSession = ReturnType<typeof makeChatSession>;

export const makeChatSession = ({ client, name, toAddress }: ChatSessionOptions) => {
  const asks = signal<ReadonlyArray<Ask>>([]);
  /** By id. */
  const entries = signal<ReadonlyMap<number, NewEntry>>(new Map());
  /** Counts the chats that were created while the page was open. */
  const created = signal(0);
  /** The chats in which other tabs wait for an answer, by the id of the ask. */
  const elsewhere = signal<ReadonlyMap<string, number>>(new Map());
  /** By the chat's id, or `new`. */
  const drafts = kept<Readonly<Record<string, string>>>("drafts", {});
  /** Counts the moments in which the server may have entries that this tab does not know. */
  const stale = signal(0);
  /** The text that a screen reader announces next. */
  const spoken = signal("");
  const hangUps = new Map<string, AbortController>();

  const channel = new BroadcastChannel(`parley-${name}`);
  const tell = (message: Message) => channel.postMessage(message);
  const tellAsk = ({ chatId, id }: Ask, isOver = false) =>
    tell({ type: "ask", id, chatId: isOver ? null : chatId });
  channel.onmessage = ({ data }: MessageEvent<Message>) => {
    if (data.type === "opened")
      asks
        .peek()
        .filter(isRunning)
        .forEach((ask) => tellAsk(ask));
    if (data.type === "created") created.value++;
    if (data.type === "entry") add(data.entry);
    if (data.type === "ask") {
      const others = new Map(elsewhere.peek());
      if (data.chatId === null) others.delete(data.id);
      else others.set(data.id, data.chatId);
      elsewhere.value = others;
    }
  };
  tell({ type: "opened" });
  addEventListener("pagehide", () => asks.peek().forEach((ask) => tellAsk(ask, true)));

  const setDraft = (chat: number | "new", text: string) => {
    const { [chat]: _, ...others } = drafts.peek();
    drafts.value = text === "" ? others : { ...others, [chat]: text };
  };

  const add = (entry: Entry, askId?: string) => {
    entries.value = new Map(entries.peek()).set(entry.id, { ...entry, askId });
  };
  const find = (id: string) => asks.peek().find((ask) => ask.id === id);
  const change = (id: string, part: Partial<Ask>) => {
    const ask = find(id);
    if (ask === undefined) return;
    const changed = { ...ask, ...part };
    asks.value = asks.peek().map((one) => (one === ask ? changed : one));
    tellAsk(changed, !isRunning(changed));
  };
  /** Removes an ask. */
  const drop = (id: string) => {
    const ask = find(id);
    if (ask !== undefined) tellAsk(ask, true);
    asks.value = asks.peek().filter((one) => one !== ask);
  };
  const finish = (id: string, entry: Entry) => {
    find(id)!.text.value = entry.answer;
    add(entry, id);
    drop(id);
    tell({ type: "entry", entry });
    spoken.value = `Answer: ${entry.answer}`;
  };

  const run = async (id: string) => {
    const hangUp = new AbortController();
    const { signal } = hangUp;
    hangUps.set(id, hangUp);
    const write = makeWriter(find(id)!.text);
    while (!signal.aborted) {
      try {
        const { chatId, newChat, question } = find(id)!;
        if (chatId === null) {
          const key = { idempotencyKey: `${id}-chat`, signal };
          change(id, { chatId: (await client.createChat(newChat, key)).id });
          created.value++;
          tell({ type: "created" });
          continue;
        }
        // A lost connection must not end the answer.
        const options = { idempotencyKey: id, onDisconnect: "finish", signal } as const;
        let text = "";
        for await (const event of client.stream({ chat_id: chatId, query: question }, options)) {
          if (event.type === "entry") return finish(id, event.entry);
          if (event.type === "reconnecting") {
            change(id, { state: event.error instanceof ConnectionError ? "reconnecting" : "busy" });
          } else {
            text =
              event.type === "delta" ? text + event.text : event.type === "restart" ? "" : text;
            const state = text === "" ? "waiting" : "streaming";
            if (find(id)!.state !== state) change(id, { state });
            write(text);
          }
        }
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof ConnectionError) {
          change(id, { state: "reconnecting" });
          await untilBack(signal);
        } else if (error instanceof ResponseError && error.status === 401) {
          // The page asks for another key, which may belong to another chatbot.
          const { chatId, question } = find(id)!;
          setDraft(chatId ?? "new", question);
          return drop(id);
        } else return change(id, { state: "failed", error });
      }
    }
  };

  /**
   * Repeats the request with `cancel`, and hangs up last: after a second, in which the server reads the request and
   * notices the first hang-up. If the answer went on meanwhile, it was on the same server, which then cancels it. From
   * another server nothing arrives, and the one that answers goes on.
   */
  const cancel = async ({ chatId, id, question }: Ask) => {
    const options = {
      idempotencyKey: id,
      onDisconnect: "cancel",
      signal: AbortSignal.timeout(1000),
    } as const;
    let goesOn = false;
    try {
      for await (const event of client.stream({ chat_id: chatId, query: question }, options)) {
        if (event.type === "entry") return finish(id, event.entry);
        goesOn ||= event.type === "delta";
      }
    } catch {
      goesOn &&= options.signal.aborted;
    }
    change(id, { state: "stopped", isCancelled: goesOn });
    stale.value++;
    if (!goesOn) setTimeout(() => stale.value++, 20_000);
  };

  const start = (ask: Pick<Ask, "chatId" | "newChat" | "question" | "after">) => {
    const id = [...crypto.getRandomValues(new Uint8Array(16))].join("-");
    asks.value = [
      ...asks.peek(),
      { ...ask, id, text: signal(""), state: "waiting", since: Date.now() },
    ];
    tellAsk(find(id)!);
    void run(id);
    return id;
  };
  const stop = (ask: Ask) => {
    hangUps.get(ask.id)?.abort();
    change(ask.id, { state: "stopping" });
    if (ask.chatId === null) change(ask.id, { state: "stopped" });
    else void cancel(ask);
  };
  /** Asks a question again that failed or was stopped. */
  const again = ({ id }: Ask) => {
    change(id, { state: "waiting", since: Date.now(), error: undefined, isCancelled: false });
    void run(id);
  };
  /** Finds that a stopped or failed ask was answered after all. */
  const settle = (stored: ReadonlyArray<Entry>) => {
    for (const { after, chatId, id, question, ...ask } of asks.peek()) {
      if (isRunning({ ...ask, after, chatId, id, question })) continue;
      const entry = stored.find(
        (one) => one.id > after && one.chat_id === chatId && one.question === question,
      );
      if (entry !== undefined) finish(id, entry);
    }
  };

  const stored = kept<ReadonlyArray<Omit<Ask, "text" | "error">>>("asks", []);
  asks.value = stored.peek().map((ask) => ({ ...ask, text: signal("") }));
  asks.subscribe((now) => {
    stored.value = now.map(({ error: _, text: __, ...ask }) => ask);
  });
  addEventListener("focus", () => stale.value++);
  for (const ask of asks.peek().filter(isRunning)) {
    if (ask.state === "stopping") stop(ask);
    else void run(ask.id);
  }

  return {
    again,
    asks,
    client,
    created,
    drafts,
    drop,
    elsewhere,
    entries,
    setDraft,
    settle,
    spoken,
    stale,
    start,
    stop,
    toAddress,
  };
};

/** Shows a text that grows: twenty times a second at most, and for a sixth of the time where that takes long. */
const makeWriter = (shown: Signal<string>) => {
  let text = "";
  let isPending = false;
  const show = () => {
    if (isPending) return;
    isPending = true;
    requestAnimationFrame(() => {
      const begin = performance.now();
      shown.value = text;
      // After the frame is painted.
      setTimeout(() => {
        setTimeout(
          () => {
            isPending = false;
            if (shown.peek() !== text) show();
          },
          Math.max(50, 5 * (performance.now() - begin)),
        );
      });
    });
  };
  return (now: string) => {
    text = now;
    show();
  };
};
