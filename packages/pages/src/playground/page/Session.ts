/**
 * The state of the playground: the key, the addresses, the view, and the latest requests. A new key reloads the page,
 * so that it shows nothing that was read with the previous key.
 */
import { signal } from "@preact/signals";
import { makeClient, ResponseError, type Attempt } from "@parley/client";
import { openSession } from "../../page/ChatSession.ts";
import { storage, tabValue, visitorOf } from "../../page/Parts.tsx";
import { Facts } from "./Facts.tsx";
import type { PlaygroundConfig } from "../PlaygroundConfig.ts";

export const config: PlaygroundConfig = JSON.parse(document.body.dataset["config"]!);

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

const decode = (text: string): string => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

const linkedKey = /^#key=(.+)$/.exec(location.hash)?.[1];
if (linkedKey !== undefined) {
  // A key leaves the address bar and the tab's history immediately.
  history.replaceState(null, "", location.pathname);
  storage.setItem("parley-key", decode(linkedKey));
}

/** The key of this tab: `sessionStorage` ends with the tab. */
export const key = storage.getItem("parley-key");

export const visitor = visitorOf(key ?? "");

/** Whether an HTTP header can carry the text. */
export const isKey = (text: string): boolean => /^[!-~]+$/.test(text);

/** Stores the key of this tab and reloads the page. Drafts remain. */
export const setKey = (text: string): void => {
  storage.setItem("parley-key", text);
  // Only the address survives the reload where the browser blocks the storage.
  const hash = storage instanceof Storage ? "" : `#key=${encodeURIComponent(text)}`;
  if (hash || location.hash === "#key") history.replaceState(null, "", location.pathname + hash);
  location.reload();
};

export const forgetKey = (): void => {
  storage.clear();
  location.reload();
};

/** The part of the address that names a view: empty, `chats`, `chat/<id>` or `key`. */
export const route = signal(location.hash.slice(1));

addEventListener("hashchange", () => {
  if (location.hash.startsWith("#key=")) location.reload();
  else route.value = location.hash.slice(1);
});

/** The page and the search of the list. */
export const list = tabValue("list", { page: 1, search: "" });

/** The latest requests, newest first. */
export const attempts = signal<ReadonlyArray<Attempt>>([]);

/** Why the server rejected the key. */
export const rejection = signal<unknown>(undefined);

export const client = makeClient({
  ...addresses,
  apiKey: key ?? undefined,
  // A person who looks at failures wants to see them soon.
  retries: 3,
  onAttempt: (attempt) => {
    attempts.value = [attempt, ...attempts.value].slice(0, 50);
    if (attempt.error instanceof ResponseError && attempt.status === 401) {
      rejection.value = attempt.error;
    }
  },
});

/** A hash of the key, the same in all tabs with that key. It does not reveal the key. */
const name = [...(key ?? "")].reduce((hash, char) => (hash * 31 + char.codePointAt(0)!) | 0, 0);

/** The address in the guide to which a link in one of its documents leads. */
const toGuide = (href: string): string | undefined => {
  const document = /^(?:\.\.\/|\.\/|docs\/)*([\w/-]+)\.md(#.*)?$/.exec(href);
  return document === null ? undefined : `/docs/${document[1]}${document[2] ?? ""}`;
};

openSession({
  client,
  name: String(name),
  onCreated: (id) => {
    if (route.peek() === "") location.replace(`#chat/${id}`);
  },
  toFacts: Facts,
  toAddress: (href) => (config.answerer === "guide" && config.guide ? toGuide(href) : undefined),
});
