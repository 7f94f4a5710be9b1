/**
 * The state of the page: the key, the address, the requests so far, and the asks in progress.
 */
import { signal } from "@preact/signals";
import { makeClient, type Attempt, type Client } from "../../client/index.ts";
import type { PlaygroundConfig } from "../Playground.ts";

export const config: PlaygroundConfig = JSON.parse(document.body.dataset["config"]!);

const answersOrigin =
  config.answersPort === null
    ? location.origin
    : `${location.protocol}//${location.hostname}:${config.answersPort}`;

/** Whether this page may call the answers interface. */
export const mayAsk =
  answersOrigin === location.origin || config.corsOrigins.includes(location.origin);

export const addresses = {
  origin: location.origin,
  baseUrl: config.general,
  askUrl: answersOrigin === location.origin ? config.answers : answersOrigin + config.answers,
};

const storage = "parley-key";
/** The key of this tab: `sessionStorage` ends with it. */
export const key = signal(sessionStorage.getItem(storage));
/** Ends the requests of a key that is forgotten. */
let session = new AbortController();

export const setKey = (text: string | null): void => {
  if (text === null) sessionStorage.removeItem(storage);
  else sessionStorage.setItem(storage, text);
  session.abort();
  session = new AbortController();
  asks.value = new Map();
  attempts.value = [];
  key.value = text;
};

/** The part of the address that names a view: ``, `new` or `chat/<id>`. */
export const route = signal("");

/** Reads the address. A key in it leaves the address bar and the tab's history immediately. */
export const readAddress = (): void => {
  const found = /^#key=(.+)$/.exec(location.hash)?.[1];
  if (found !== undefined) {
    history.replaceState(null, "", location.pathname);
    setKey(decodeURIComponent(found));
  }
  route.value = location.hash.slice(1);
};

/** The latest requests, newest first. */
export const attempts = signal<ReadonlyArray<Attempt>>([]);

export const makeSessionClient = (apiKey: string): Client =>
  makeClient({
    ...addresses,
    apiKey,
    // A person who looks at failures wants to see them soon.
    retries: 3,
    onAttempt: (attempt) => {
      attempts.value = [attempt, ...attempts.value].slice(0, 50);
    },
  });

/** A question and the answer so far. */
export interface Ask {
  readonly question: string;
  readonly text: string;
  readonly state: "waiting" | "streaming" | "reconnecting" | "stopped" | "failed";
  readonly error?: unknown;
  readonly stop: () => void;
  readonly retry: () => void;
}

/** The asks whose entries are not stored yet, by chat. They go on when another chat is shown. */
export const asks = signal<ReadonlyMap<number, Ask>>(new Map());

/** The text that a screen reader announces next. */
export const spoken = signal("");

const setAsk = (chatId: number, ask: Ask | null): void => {
  const next = new Map(asks.value);
  if (ask === null) next.delete(chatId);
  else next.set(chatId, ask);
  asks.value = next;
};

/** Asks in a chat. `refresh` reads the newest entries; a repeated ask has the key of the first. */
export const startAsk = (
  client: Client,
  chatId: number,
  query: string,
  refresh: () => Promise<void>,
  idempotencyKey = [...crypto.getRandomValues(new Uint8Array(16))].join("-"),
): void => {
  const body = { chat_id: chatId, query };
  const hangUp = new AbortController();
  const signal = AbortSignal.any([hangUp.signal, session.signal]);
  let ask: Ask = {
    question: query,
    text: "",
    state: "waiting",
    stop: () => {
      hangUp.abort();
      change({ state: "stopped" });
      spoken.value = "Stopped.";
      void cancel(client, body, idempotencyKey).then(refresh);
    },
    retry: () => startAsk(client, chatId, query, refresh, idempotencyKey),
  };
  const change = (part: Partial<Ask>) => setAsk(chatId, (ask = { ...ask, ...part }));
  change({});
  spoken.value = "Waiting for the answer.";
  const read = async () => {
    // A lost connection must not end the answer.
    const options = { idempotencyKey, onDisconnect: "finish", signal } as const;
    for await (const event of client.stream(body, options)) {
      switch (event.type) {
        case "delta":
          change({ state: "streaming", text: ask.text + event.text });
          break;
        case "restart":
          change({ state: "waiting", text: "" });
          break;
        case "reconnecting":
          change({ state: "reconnecting" });
          spoken.value = "The connection is lost. Trying again.";
          break;
        case "reconnected":
          change({ state: "streaming" });
          break;
        case "entry":
          await refresh();
          setAsk(chatId, null);
          spoken.value = `Answer: ${event.entry.answer}`;
      }
    }
  };
  read().catch((error: unknown) => {
    if (!signal.aborted) change({ state: "failed", error });
  });
};

/**
 * Cancels an ask on which this page has hung up, by a request with its key that hangs up last. The server must have read
 * that request and noticed the first hang-up before.
 */
const cancel = async (client: Client, body: { query: string }, idempotencyKey: string) => {
  const signal = AbortSignal.timeout(3000);
  const options = { idempotencyKey, onDisconnect: "cancel", signal } as const;
  const events = client.stream(body, options)[Symbol.asyncIterator]();
  await events.next().catch(() => undefined);
  await new Promise((resume) => setTimeout(resume, 500));
  await events.return?.();
};
