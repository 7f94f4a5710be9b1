/**
 * The state that a tab keeps besides the server's: the asks in progress, the entries that arrived, and the drafts. A
 * page opens one session, which notifies the other tabs.
 */
import { signal, type Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { ConnectionError, ResponseError } from "@parley/client";
import type { Client, Entry, NewChat } from "@parley/client";
import { pause, tabValue, untilBack } from "./Parts.tsx";
import { say, type Word } from "./words.ts";

export const states = {
  waiting: "Waiting for the answer",
  streaming: "Answering",
  reconnecting: "Connection lost. Reconnecting",
  busy: "The server cannot answer at the moment. Trying again",
  stopping: "Stopping",
  stopped: "Stopped. If the server finishes the answer anyway, it appears here.",
  cancelled: "Stopped. Nothing was stored.",
  failed: "There is no answer yet.",
} satisfies Record<string, Word>;

/** A question, and the answer so far. */
export interface Ask {
  /** Its idempotency key. */
  readonly id: string;
  /** `null`: the chat is still being created, with the fields of `newChat`. */
  readonly chatId: number | null;
  readonly newChat?: NewChat | undefined;
  readonly question: string;
  readonly text: Signal<string>;
  readonly state: keyof typeof states;
  /** When it started or was last retried, in milliseconds since 1970. */
  readonly since: number;
  /** The id of the newest entry of the chat when the question was asked. */
  readonly after: number;
  /** Why it failed; missing after a reload. */
  readonly error?: unknown;
}

export interface ChatSession {
  readonly client: Client;
  /** Tabs with the same name notify each other. */
  readonly name: string;
  /** Called when a first question has created its chat. */
  readonly onCreated?: (chatId: number) => void;
  /** Shows what operators want to know about an entry; `undefined` on pages for visitors. */
  readonly toFacts?: (entry: Entry) => ComponentChildren;
  /**
   * The address of a link in an answer that is neither `http(s):` nor `mailto:`. If this is missing or returns
   * `undefined`, the link stays text.
   */
  readonly toAddress?: (href: string) => string | undefined;
}

export let session: ChatSession;

export const asks = signal<ReadonlyArray<Ask>>([]);
/** The entries that arrived while the page was open, by id, with the asks of this tab that they answer. */
export const entries = signal<ReadonlyMap<number, Entry & { readonly askId?: string }>>(new Map());
/** Increases each time the server may have chats or entries that this tab does not know. */
export const stale = signal(0);
/** The chats in which other tabs wait for an answer, by tab. */
const elsewhere = signal<ReadonlyMap<string, ReadonlyArray<number>>>(new Map());
/** By the chat's id, or `new`. */
const drafts = tabValue<Readonly<Record<string, string>>>("drafts", {});
const savedAsks = tabValue<ReadonlyArray<Omit<Ask, "text" | "error">>>("asks", []);
/** The text that a screen reader announces next. */
export const announcement = signal("");
const disconnects = new Map<string, AbortController>();

const randomId = () => [...crypto.getRandomValues(new Uint8Array(16))].join("-");

export const isRunning = ({ state }: Pick<Ask, "state">): boolean =>
  !["stopped", "cancelled", "failed"].includes(state);
export const waitsElsewhere = (chatId: number | null): boolean =>
  [...elsewhere.value.values()].flat().includes(chatId!);

export const draftOf = (chatId: number | null): string => drafts.value[chatId ?? "new"] ?? "";
export const setDraft = (chatId: number | null, text: string): void => {
  const { [chatId ?? "new"]: _, ...others } = drafts.peek();
  drafts.value = text === "" ? others : { ...others, [chatId ?? "new"]: text };
};

/** Browsers that block the storage of a frame block its channel to other tabs, too. */
const openChannel = (name: string): BroadcastChannel | MessagePort => {
  try {
    return new BroadcastChannel(name);
  } catch {
    return new MessageChannel().port1;
  }
};

/** Opens the page's session, and resumes the asks that were in progress when this tab was reloaded. */
export const openSession = (options: ChatSession): void => {
  session = options;
  asks.value = savedAsks.peek().map((ask) => ({ ...ask, text: signal("") }));
  const tab = randomId();
  const channel = openChannel(`parley-${options.name}`);
  const tell = () =>
    channel.postMessage({
      tab,
      chats: asks
        .peek()
        .filter(isRunning)
        .map(({ chatId }) => chatId),
    });
  channel.onmessage = ({ data }) => {
    // A new tab asks for the chats of the others.
    if (data.chats === undefined) return tell();
    if (String(elsewhere.peek().get(data.tab)) === String(data.chats)) return;
    elsewhere.value = new Map(elsewhere.peek()).set(data.tab, data.chats);
    stale.value++;
  };
  channel.postMessage({ tab });
  addEventListener("pagehide", () => channel.postMessage({ tab, chats: [] }));
  // Not in a frame, which may lose and regain the focus often: a visitor may send only a few requests a minute.
  if (parent === window) addEventListener("focus", () => stale.value++);
  asks.subscribe((now) => {
    savedAsks.value = now.map(({ error: _, text: __, ...ask }) => ask);
    tell();
  });
  for (const ask of asks.peek().filter(isRunning)) {
    if (ask.state === "stopping") stop(ask);
    else void run(ask.id);
  }
};

export const start = (ask: Pick<Ask, "chatId" | "newChat" | "question" | "after">): void => {
  const [id, text, since] = [randomId(), signal(""), Date.now()];
  asks.value = [...asks.peek(), { ...ask, id, text, state: "waiting", since }];
  void run(id);
};

/** Repeats an ask that failed or was stopped. */
export const retry = ({ id }: Ask): void => {
  change(id, { state: "waiting", since: Date.now(), error: undefined });
  void run(id);
};

export const stop = (ask: Ask): void => {
  disconnects.get(ask.id)?.abort();
  change(ask.id, { state: ask.chatId === null ? "stopped" : "stopping" });
  if (ask.chatId !== null) void cancel(ask);
};

/** Turns a question back into a draft. */
export const edit = ({ chatId, id, question }: Ask): void => {
  setDraft(chatId, question);
  asks.value = asks.peek().filter((ask) => ask.id !== id);
};

/** Adds the entries with ids above `last`. Each entry of the list may answer a stopped or failed ask after all. */
export const add = (list: ReadonlyArray<Entry>, last: number): void => {
  for (const entry of list) {
    const ask = asks.peek().find(({ after, chatId, question, state }) => {
      const isAnswer = entry.chat_id === chatId && entry.id > after && entry.question === question;
      return isAnswer && !isRunning({ state });
    });
    if (ask !== undefined) finish(ask.id, entry);
    else if (entry.id > last && !entries.peek().has(entry.id)) {
      entries.value = new Map(entries.peek()).set(entry.id, entry);
    }
  }
};

const find = (id: string) => asks.peek().find((ask) => ask.id === id)!;
const change = (id: string, part: Partial<Ask>) => {
  asks.value = asks.peek().map((ask) => (ask.id === id ? { ...ask, ...part } : ask));
};
const finish = (askId: string, entry: Entry) => {
  entries.value = new Map(entries.peek()).set(entry.id, { ...entry, askId });
  asks.value = asks.peek().filter(({ id }) => id !== askId);
  announcement.value = say("Answer: {}", entry.answer);
};

const run = async (id: string) => {
  const disconnect = new AbortController();
  const { signal } = disconnect;
  disconnects.set(id, disconnect);
  while (!signal.aborted) {
    const { chatId, newChat } = find(id);
    try {
      if (chatId !== null) return await read(id, chatId, signal);
      const options = { idempotencyKey: `${id}-chat`, signal };
      const chat = await session.client.createChat(newChat, options);
      change(id, { chatId: chat.id });
      stale.value++;
      session.onCreated?.(chat.id);
    } catch (error) {
      if (signal.aborted) return;
      // The page asks for another key, which may belong to another chatbot.
      if (error instanceof ResponseError && error.status === 401) return edit(find(id));
      if (!(error instanceof ConnectionError)) return change(id, { state: "failed", error });
      change(id, { state: "reconnecting" });
      await untilBack(signal);
    }
  }
};

const read = async (id: string, chat_id: number, signal: AbortSignal) => {
  const { question: query, text: shownText } = find(id);
  const write = makeWriter(shownText);
  // A lost connection must not end the answer.
  const options = { idempotencyKey: id, onDisconnect: "finish", signal } as const;
  let text = "";
  for await (const event of session.client.stream({ chat_id, query }, options)) {
    if (event.type === "entry") return finish(id, event.entry);
    if (event.type === "delta") text += event.text;
    if (event.type === "restart") text = "";
    let state: Ask["state"] = text === "" ? "waiting" : "streaming";
    if (event.type === "reconnecting") {
      state = event.error instanceof ConnectionError ? "reconnecting" : "busy";
    }
    if (find(id).state !== state) change(id, { state });
    void write(text);
  }
};

/**
 * Repeats the request with `cancel`, and disconnects a second later, when the server has read the request and noticed
 * the first disconnect. If deltas of the answer arrive in that second, the request has reached the server that answers,
 * which cancels the answer. From another server nothing arrives, and the answer continues.
 */
const cancel = async ({ chatId, id, question }: Ask) => {
  const signal = AbortSignal.timeout(1000);
  const options = { idempotencyKey: id, onDisconnect: "cancel", signal } as const;
  let hasContinued = false;
  try {
    const events = session.client.stream({ chat_id: chatId, query: question }, options);
    for await (const event of events) {
      if (event.type === "entry") return finish(id, event.entry);
      hasContinued ||= event.type === "delta";
    }
  } catch {
    hasContinued &&= signal.aborted;
  }
  change(id, { state: hasContinued ? "cancelled" : "stopped" });
  stale.value++;
  if (!hasContinued) setTimeout(() => stale.value++, 20_000);
};

/** Shows a growing text at most twenty times a second, and spends at most a sixth of the time on it. */
const makeWriter = (shownText: Signal<string>) => {
  let text = "";
  let isPending = false;
  const write = async (newText: string) => {
    text = newText;
    if (isPending) return;
    isPending = true;
    await new Promise(requestAnimationFrame);
    const begin = performance.now();
    shownText.value = text;
    // The first timer fires after the frame is painted.
    await pause(0);
    await pause(Math.max(50, 5 * (performance.now() - begin)));
    isPending = false;
    if (shownText.peek() !== text) void write(text);
  };
  return write;
};
