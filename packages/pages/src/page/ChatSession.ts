/**
 * The state that a tab keeps in addition to the server's: the asks in progress, the entries that have arrived, and the
 * drafts. A page opens one session, which tells the other tabs about its asks.
 */
import { signal, type Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { ConnectionError, ResponseError } from "@parley/client";
import type { Client, Entry, NewChat } from "@parley/client";
import { toSpeech } from "./Markdown.tsx";
import { pause, tabValue, untilBack } from "./Parts.tsx";
import { translate, type Phrase } from "./words.ts";

const isText = (value: unknown): boolean => typeof value === "string";

export const states = {
  waiting: "Waiting for the answer",
  streaming: "Answering",
  reconnecting: "Connection lost. Reconnecting",
  busy: "The server cannot answer at the moment. Trying again",
  limited: "Too many requests. Trying again",
  stopping: "Stopping",
  stopped: "Stopped. If an answer still arrives, it will appear here.",
  cancelled: "Stopped. Nothing was stored.",
  failed: "There is no answer yet.",
} satisfies Record<string, Phrase>;

/** A question and the answer to it so far. */
export interface Ask {
  /** The idempotency key of the ask. */
  readonly id: string;
  /** `null` until the chat has been created, with the fields of `newChat`. */
  readonly chatId: number | null;
  readonly newChat?: NewChat | undefined;
  readonly question: string;
  readonly text: Signal<string>;
  readonly state: keyof typeof states;
  /** The time at which the ask started or was last retried, in milliseconds since the Unix epoch. */
  readonly since: number;
  /** The id of the chat's newest entry when the question was asked. */
  readonly after: number;
  /** The error with which the ask failed; missing after a reload. */
  readonly error?: unknown;
}

export interface ChatSession {
  readonly client: Client;
  /** The maximum length of a question, in code points. */
  readonly questionLength: number;
  /** Renders what is below an answer for which nothing was found. */
  readonly contact?: ComponentChildren;
  /** Tabs whose sessions have the same name notify each other. */
  readonly name: string;
  /** Called when the first question in a new chat has created the chat. */
  readonly onCreated?: (chatId: number) => void;
  /** Called when a question is asked, and with the entry when it is answered. */
  readonly onExchange?: (entry?: Entry) => void;
  /** Renders what operators do with an entry and want to know about it; `undefined` on pages for visitors. */
  readonly toFacts?: (entry: Entry) => ComponentChildren;
  /**
   * Returns the address for a link in an answer that is neither `http(s):` nor `mailto:`. The link stays text if this
   * function is missing or returns `undefined`.
   */
  readonly toAddress?: (href: string) => string | undefined;
}

/** The additional fields of entries that the pages show. */
export const include = ["metadata", "feedback"] as const;

export let session: ChatSession;

export const asks = signal<ReadonlyArray<Ask>>([]);
/** An entry, with the ask of this tab that it answers and the time when it arrived. */
type NewEntry = Entry & { readonly askId?: string; readonly arrivedAt?: number };
/** The entries that have arrived since the page was opened, by id. */
export const entries = signal<ReadonlyMap<number, NewEntry>>(new Map());
/** Whether the page is being printed, and so shows all that it has read. */
export const isPrinting = signal(false);
for (const name of ["beforeprint", "afterprint"]) {
  addEventListener(name, () => (isPrinting.value = name === "beforeprint"));
}
/** A counter that increases whenever the server may have chats or entries that are new to this tab. */
export const stale = signal(0);
/** The chats in which other tabs are waiting for an answer, by tab. */
const elsewhere = signal<ReadonlyMap<string, ReadonlyArray<number>>>(new Map());
/** A question from outside the conversation, which the open one asks next. */
export const nextQuestion = signal<string | undefined>(undefined);
/** Unsent questions, by chat id, or under `new` for a chat that does not exist yet. */
const drafts = tabValue<Readonly<Record<string, string>>>(
  "drafts",
  {},
  (texts) => Object(texts) === texts && Object.values(texts).every(isText),
);
const savedAsks = tabValue<ReadonlyArray<Omit<Ask, "text" | "error">>>("asks", [], (asks) =>
  asks.every(
    ({ after, chatId, id, question, since, state }) =>
      [id, question].every(isText) &&
      [after, since, chatId ?? 0].every(Number.isFinite) &&
      Object.hasOwn(states, state),
  ),
);
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

/** Opens the channel to other tabs. Browsers that block a frame's storage also block its channel. */
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
    // A message without `chats` is from a new tab, which needs the chats of the other tabs.
    if (data.chats === undefined) return tell();
    if (String(elsewhere.peek().get(data.tab)) === String(data.chats)) return;
    elsewhere.value = new Map(elsewhere.peek()).set(data.tab, data.chats);
    stale.value++;
  };
  channel.postMessage({ tab });
  addEventListener("pagehide", () => channel.postMessage({ tab, chats: [] }));
  // Frames are excluded: a frame may gain focus often, but a visitor may send only a few requests a minute.
  if (parent === window) addEventListener("focus", () => stale.value++);
  asks.subscribe((now) => {
    savedAsks.value = now.map(({ error: _, text: __, ...ask }) => ask);
    tell();
  });
  for (const ask of asks.peek().filter(isRunning)) {
    void run(ask.id);
    if (ask.state === "stopping") stop(ask);
  }
};

export const start = (ask: Pick<Ask, "chatId" | "newChat" | "question" | "after">): void => {
  const [id, text, since] = [randomId(), signal(""), Date.now()];
  asks.value = [...asks.peek(), { ...ask, id, text, state: "waiting", since }];
  session.onExchange?.();
  void run(id);
};

/** Retries an ask that failed or was stopped. The key of a stopped ask stays stopped, so the retry is a new ask. */
export const retry = (ask: Ask): void => {
  const { id } = ask;
  if (ask.state === "cancelled") {
    const { after, chatId, newChat, question } = ask;
    asks.value = asks.peek().filter((other) => other.id !== id);
    return start({ after, chatId, newChat, question });
  }
  change(id, { state: "waiting", since: Date.now(), error: undefined });
  void run(id);
};

export const stop = ({ chatId, id }: Ask): void => {
  change(id, { state: chatId === null ? "stopped" : "stopping" });
  if (chatId === null) disconnects.get(id)?.abort();
  else void cancel(id);
};

/** Turns a question back into a draft. */
export const edit = ({ chatId, id, question }: Ask): void => {
  setDraft(chatId, question);
  asks.value = asks.peek().filter((ask) => ask.id !== id);
};

/** Adds the entries with ids above `last`. Any entry in the list may answer an ask that was stopped or failed. */
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

/** Drops what this tab keeps of a chat that was deleted. */
export const forget = (chatId: number): void => {
  const ofChat = asks.peek().filter((ask) => ask.chatId === chatId);
  for (const { id } of ofChat) disconnects.get(id)?.abort();
  asks.value = asks.peek().filter((ask) => !ofChat.includes(ask));
  setDraft(chatId, "");
  stale.value++;
};

const find = (id: string) => asks.peek().find((ask) => ask.id === id)!;
const change = (id: string, part: Partial<Ask>) => {
  asks.value = asks.peek().map((ask) => (ask.id === id ? { ...ask, ...part } : ask));
};
const finish = (askId: string, entry: Entry) => {
  entries.value = new Map(entries.peek()).set(entry.id, {
    ...entry,
    askId,
    arrivedAt: Date.now(),
  });
  asks.value = asks.peek().filter(({ id }) => id !== askId);
  announcement.value = translate("Answer: {}", toSpeech(entry.answer));
  session.onExchange?.(entry);
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
      if (isStopped(error)) return endStopped(id);
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
  const options = { idempotencyKey: id, include, onDisconnect: "finish", signal } as const;
  let text = "";
  for await (const event of session.client.stream({ chat_id, query }, options)) {
    if (event.type === "entry") return finish(id, event.entry);
    if (event.type === "delta") text += event.text;
    if (event.type === "restart") text = "";
    let state: Ask["state"] = text === "" ? "waiting" : "streaming";
    if (event.type === "reconnecting") {
      const isLimited = event.error.message === "RATE_EXCEEDED";
      const other = isLimited ? "limited" : "busy";
      state = event.error instanceof ConnectionError ? "reconnecting" : other;
    }
    const current = find(id).state;
    if (current !== state && current !== "stopping") change(id, { state });
    void write(text);
  }
};

const endStopped = (id: string) => {
  change(id, { state: "cancelled" });
  stale.value++;
};

const isStopped = (error: unknown) =>
  error instanceof ResponseError && error.message === "ANSWER_STOPPED";

/**
 * Asks the server to stop the ask, once more after a second, because the ask may not have reached it yet. The request
 * for the answer stays open meanwhile: it shows the entry if that was stored first, or if the ask cannot be stopped.
 */
const cancel = async (id: string) => {
  const isStopping = () => asks.peek().some((ask) => ask.id === id && ask.state === "stopping");
  for (const isLast of [false, true]) {
    try {
      const { stopped } = await session.client.stop(id);
      if (!stopped || !isStopping()) break;
      disconnects.get(id)?.abort();
      return endStopped(id);
    } catch (error) {
      if (isLast || !(error instanceof ResponseError && error.status === 404)) break;
      await pause(1000);
    }
  }
  if (isStopping()) change(id, { state: "waiting" });
};

/** Returns a function that updates the shown text up to twenty times a second, for at most a sixth of the time. */
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
    // This timer fires after the frame has been painted.
    await pause(0);
    await pause(Math.max(50, 5 * (performance.now() - begin)));
    isPending = false;
    if (shownText.peek() !== text) void write(text);
  };
  return write;
};
