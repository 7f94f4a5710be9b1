/**
 * The state of the playground: the key, the addresses, the view, and the latest requests. Setting a new key reloads the
 * page, so that nothing remains that was read with the previous key.
 */
import { signal } from "@preact/signals";
import { makeClient, ResponseError, type Attempt } from "@parley/client";
import { storage, tabValue, visitorOf } from "../../page/Parts.tsx";
import { german } from "../../page/German.ts";
import { setWords } from "../../page/words.ts";
import { germanOfPlayground } from "../../page/GermanOfPlayground.ts";
import type { PlaygroundConfig } from "../PlaygroundConfig.ts";

export const config: PlaygroundConfig = JSON.parse(document.body.dataset["config"]!);

// The page is in the reader's language if that is built in, or else in English.
const isGerman = /^de\b/i.test(navigator.language);
document.documentElement.lang = config.lang ?? (isGerman ? "de" : "en");
setWords({ ...(isGerman && { ...german, ...germanOfPlayground }), ...config.texts });

const { origin } = location;
const askUrl = new URL(config.answers, origin);
if (config.answersPort !== null) askUrl.port = String(config.answersPort);

export const addresses = { baseUrl: origin + config.general, askUrl: askUrl.href };

/** Whether this page may call the answers interface. */
export const mayAsk = askUrl.origin === origin || config.corsOrigins.includes(origin);

const decode = (text: string): string => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

const linkedKey = /^#key=(.+)$/.exec(location.hash)?.[1];
if (linkedKey !== undefined) {
  // The key is removed from the address bar and the tab's history immediately.
  history.replaceState(null, "", location.pathname);
  storage.setItem("parley-key", decode(linkedKey));
}

const storedKey = storage.getItem("parley-key") ?? "";
/** This tab's key; empty if an HTTP header cannot carry it. `sessionStorage` is cleared when the tab is closed. */
export const key = /^[!-~]+$/.test(storedKey) ? storedKey : "";

export const visitor = visitorOf(key);

/** Stores this tab's key and reloads the page. Drafts are kept. */
export const setKey = (text: string): void => {
  // If the browser does not keep the key, only the address survives the reload.
  const hash = storage.setItem("parley-key", text) ? "" : `#key=${encodeURIComponent(text)}`;
  if (hash || location.hash === "#key") history.replaceState(null, "", location.pathname + hash);
  location.reload();
};

export const forgetKey = (): void => {
  storage.clear();
  location.reload();
};

/** The fragment of the address, which names a view: empty, `chats`, `chat/<id>` or `key`. */
export const route = signal(location.hash.slice(1));

addEventListener("hashchange", () => {
  if (location.hash.startsWith("#key=")) location.reload();
  else route.value = location.hash.slice(1);
});

/** The page number and the search text of the chat list. */
export const list = tabValue(
  "list",
  { page: 1, search: "" },
  ({ page, search }) => Number.isInteger(page) && page > 0 && typeof search === "string",
);

/** The latest requests, newest first. */
export const attempts = signal<ReadonlyArray<Attempt>>([]);

/** The error with which the server rejected the key, if it did. */
export const rejection = signal<unknown>(undefined);

export const client = makeClient({
  ...addresses,
  apiKey: key,
  // Fewer than the default, so that people who are looking at failures see them soon.
  retries: 3,
  onAttempt: (attempt) => {
    attempts.value = [attempt, ...attempts.value].slice(0, 50);
    if (attempt.error instanceof ResponseError && attempt.status === 401) {
      rejection.value = attempt.error;
    }
  },
});
