/**
 * Parts that several views share.
 */
import { signal, type Signal } from "@preact/signals";
import type { ComponentProps } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ConnectionError, ResponseError } from "@parley/client";
import { copy } from "./copy.ts";
import { readValue, storageOf } from "./storage.ts";
import { toLocale, translate } from "./words.ts";

export const storage = storageOf("sessionStorage");

/**
 * Creates a signal whose value this tab keeps across reloads of this page. A stored value for which `isValid` does not
 * hold is ignored.
 */
export const tabValue = <A,>(
  name: string,
  initial: A,
  isValid: (value: A) => boolean,
): Signal<A> => {
  const key = `parley-${name}${location.pathname.slice(1)}`;
  const value = signal<A>(readValue(storage, key, isValid) ?? initial);
  value.subscribe((now) => {
    if (JSON.stringify(now) === JSON.stringify(initial)) storage.removeItem(key);
    else storage.setItem(key, JSON.stringify(now));
  });
  return value;
};

export const pause = (millis: number): Promise<void> =>
  new Promise((resume) => setTimeout(resume, millis));

/**
 * Resolves when the connection may be back (the browser is online again, the tab is shown or hidden, or eight seconds
 * have passed), or when `stop` is aborted.
 */
export const untilBack = (stop: AbortSignal): Promise<unknown> => {
  const back = new AbortController();
  const signal = AbortSignal.any([stop, back.signal, AbortSignal.timeout(8000)]);
  for (const type of ["online", "visibilitychange"]) {
    addEventListener(type, () => back.abort(), { signal });
  }
  return new Promise((resolve) => signal.addEventListener("abort", resolve));
};

/**
 * Returns the result of `read`, which runs again when one of `inputs` changes, and is retried until the server
 * responds. The previous value is kept until there is a new one.
 */
export const useRead = <A,>(
  read: (signal: AbortSignal) => Promise<A>,
  inputs: ReadonlyArray<unknown> = [],
) => {
  const [result, setResult] = useState<{ value?: A | undefined; error?: unknown }>({});
  const [attempt, setAttempt] = useState(0);
  const retry = () => setAttempt((attempt) => attempt + 1);
  useEffect(() => {
    const disconnect = new AbortController();
    const { signal } = disconnect;
    const fail = async (error: unknown) => {
      if (signal.aborted) return;
      setResult(({ value }) => ({ value, error }));
      if (error instanceof ConnectionError) await untilBack(signal);
      if (error instanceof ConnectionError && !signal.aborted) retry();
    };
    read(signal).then((value) => setResult({ value }), fail);
    return () => disconnect.abort();
  }, [...inputs, attempt]);
  return { ...result, retry };
};

/** The changes that the key's scopes do not allow. The page offers them until the server has refused them once. */
const refusedChanges = signal<ReadonlyArray<string>>([]);

/** Returns a function that runs a change, the error of its last run, and whether the page offers the change. */
export const useChange = (name: "rename" | "delete" | "rate") => {
  const [error, setError] = useState<unknown>();
  const run = (change: () => Promise<void>) =>
    change().then(setError, (error) => {
      if (error instanceof ResponseError && error.message === "SCOPE_NOT_GRANTED") {
        refusedChanges.value = [...refusedChanges.peek(), name];
      }
      setError(error);
    });
  return { error, isOffered: !refusedChanges.value.includes(name), run };
};

/** Returns the `userRef` if the string is a visitor's token; `null` if it is not. */
export const visitorOf = (text: string): string | null => {
  try {
    const payload = atob(text.split(".")[1]!.replace(/-/g, "+").replace(/_/g, "/"));
    const bytes = Uint8Array.from(payload, (char) => char.charCodeAt(0));
    return JSON.parse(new TextDecoder().decode(bytes)).sub ?? null;
  } catch {
    return null;
  }
};

/** A `ref` callback that focuses its element when the element is mounted. */
export const focus = (element: HTMLElement | null): void => element?.focus();

/** On a phone, focusing a field would open the keyboard over the page. */
export const isPhone = !matchMedia("(hover: hover)").matches;

const paths = {
  back: "M15 5l-7 7 7 7",
  bad: "M7 14V4H4v10zM7 14l4 7c1.5 0 2.5-1 2.5-2.5L13 15h5.5a2 2 0 0 0 2-2.3l-1.2-7a2 2 0 0 0-2-1.7H7",
  check: "M5 13l4 4L19 7",
  close: "M6 6l12 12M18 6L6 18",
  copy: "M9 9h11v11H9zM15 9V4H4v11h5",
  delete: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13M10 11v5M14 11v5",
  down: "M12 5v14M6 13l6 6 6-6",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  good: "M7 10v10H4V10zM7 10l4-7c1.5 0 2.5 1 2.5 2.5L13 9h5.5a2 2 0 0 1 2 2.3l-1.2 7a2 2 0 0 1-2 1.7H7",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  next: "M9 5l7 7-7 7",
  person: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM5 20c1-4 4-5 7-5s6 1 7 5",
  plus: "M12 5v14M5 12h14",
  save: "M12 4v11M7 11l5 5 5-5M5 20h14",
  search: "M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM15 15l6 6",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
};

export const Icon = ({ name }: { readonly name: keyof typeof paths }) => (
  <svg class={`icon icon-${name}`} viewBox="0 0 24 24" aria-hidden="true">
    <path d={paths[name]} />
  </svg>
);

/** A button that its title names. */
export const IconButton = ({
  icon,
  ...props
}: ComponentProps<"button"> & { readonly icon: keyof typeof paths }) => (
  <button type="button" class="plain" {...props}>
    <Icon name={icon} />
  </button>
);

/** A time in the reader's time zone; hovering over it shows `iso`. */
export const Time = ({
  iso,
  dateStyle,
}: {
  readonly iso: string;
  readonly dateStyle?: "medium";
}) => (
  <time dateTime={iso} title={iso}>
    {new Date(iso).toLocaleString(toLocale(), { dateStyle, timeStyle: "short" })}
  </time>
);

/** A button that copies the text and briefly confirms it. */
export const CopyButton = ({ name, text }: { readonly name: string; readonly text: string }) => {
  const [isCopied, setCopied] = useState(false);
  const click = async () => {
    await copy(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 2000);
  };
  const title = isCopied ? translate("Copied") : name;
  return <IconButton icon={isCopied ? "check" : "copy"} title={title} onClick={click} />;
};
