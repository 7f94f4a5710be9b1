/**
 * The state of the page: the key, the address, the requests so far, and the asks in progress. Another key loads the
 * page anew, so that nothing of the last one remains.
 */
import { signal } from "@preact/signals";
import { makeClient, type Attempt, type Entry } from "@parley/client";
import type { PlaygroundConfig } from "../PlaygroundConfig.ts";

const config: PlaygroundConfig = JSON.parse(document.body.dataset["config"]!);

const answersOrigin =
  config.answersPort === null
    ? location.origin
    : `${location.protocol}//${location.hostname}:${config.answersPort}`;

/** Whether this page may call the answers interface. */
export const mayAsk =
  answersOrigin === location.origin || config.corsOrigins.includes(location.origin);

export const addresses = {
  baseUrl: location.origin + config.general,
  askUrl: answersOrigin + config.answers,
};

const storage = "parley-key";
const linked = /^#key=(.+)$/.exec(location.hash)?.[1];
if (linked !== undefined) {
  // A key leaves the address bar and the tab's history immediately.
  history.replaceState(null, "", location.pathname);
  sessionStorage.setItem(storage, decodeURIComponent(linked));
}

/** The key of this tab: `sessionStorage` ends with it. */
export const key = sessionStorage.getItem(storage);

export const setKey = (text: string): void => {
  sessionStorage.setItem(storage, text);
  location.reload();
};

export const forgetKey = (): void => {
  sessionStorage.removeItem(storage);
  location.reload();
};

/** The part of the address that names a view: ``, `new` or `chat/<id>`. */
export const route = signal(location.hash.slice(1));

addEventListener("hashchange", () => {
  if (location.hash.startsWith("#key=")) location.reload();
  else route.value = location.hash.slice(1);
});

/** The latest requests, newest first. */
export const attempts = signal<ReadonlyArray<Attempt>>([]);

export const client = makeClient({
  ...addresses,
  apiKey: key ?? undefined,
  // A person who looks at failures wants to see them soon.
  retries: 3,
  onAttempt: (attempt) => {
    attempts.value = [attempt, ...attempts.value].slice(0, 50);
  },
});

export const states = {
  waiting: "Waiting for the answer…",
  streaming: "Answering…",
  reconnecting: "The connection is lost. Trying again…",
  stopped: "Stopped. Nothing was stored.",
  failed: "",
};

/** A question and the answer so far. */
export interface Ask {
  readonly question: string;
  readonly text: string;
  readonly state: keyof typeof states;
  readonly error?: unknown;
  readonly stop: () => void;
  readonly retry: () => void;
}

/** The asks whose entries are not stored, by chat. They go on while another chat is shown. */
export const asks = signal<ReadonlyMap<number, Ask>>(new Map());

/** The entries that asks of this page have made, by id. */
export const made = signal<ReadonlyMap<number, Entry>>(new Map());

/** The text that a screen reader announces next. */
export const spoken = signal("");

/** Asks in a chat. A repeated ask has the idempotency key of the first. */
export const startAsk = (
  chatId: number,
  question: string,
  idempotencyKey = [...crypto.getRandomValues(new Uint8Array(16))].join("-"),
): void => {
  const body = { chat_id: chatId, query: question };
  const hangUp = new AbortController();
  let ask: Ask = {
    question,
    text: "",
    state: "waiting",
    stop: () => {
      hangUp.abort();
      change({ state: "stopped" });
      cancel().catch(() => undefined);
    },
    retry: () => startAsk(chatId, question, idempotencyKey),
  };
  const change = (part: Partial<Ask>) => {
    ask = { ...ask, ...part };
    asks.value = new Map(asks.value).set(chatId, ask);
    spoken.value = states[ask.state];
  };
  const finish = (entry: Entry) => {
    const rest = new Map(asks.value);
    if (rest.get(chatId) === ask) rest.delete(chatId);
    asks.value = rest;
    made.value = new Map(made.value).set(entry.id, entry);
    spoken.value = `Answer: ${entry.answer}`;
  };
  const read = async () => {
    // A lost connection must not end the answer.
    const options = { idempotencyKey, onDisconnect: "finish", signal: hangUp.signal } as const;
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
          break;
        case "reconnected":
          change({ state: "streaming" });
          break;
        case "entry":
          finish(event.entry);
      }
    }
  };
  /**
   * Repeats the request with `cancel`, and hangs up last: after a second, in which the server reads the request and
   * notices the first hang-up. The answer may be complete by then.
   */
  const cancel = async () => {
    const signal = AbortSignal.timeout(1000);
    const options = { idempotencyKey, onDisconnect: "cancel", signal } as const;
    for await (const event of client.stream(body, options)) {
      if (event.type === "entry") finish(event.entry);
    }
  };
  change({});
  read().catch((error: unknown) => {
    if (!hangUp.signal.aborted) change({ state: "failed", error });
  });
};
