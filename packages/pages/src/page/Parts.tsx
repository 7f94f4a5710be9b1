/**
 * Parts of several views.
 */
import { signal, type Signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { ConnectionError } from "@parley/client";
import { copy } from "./copy.ts";

/** A value that this tab keeps over a reload. */
export const kept = <A,>(name: string, initial: A): Signal<A> => {
  const key = `parley-${name}`;
  const text = sessionStorage.getItem(key);
  const value = signal<A>(text === null ? initial : JSON.parse(text));
  const empty = JSON.stringify(initial);
  value.subscribe((now) => {
    const text = JSON.stringify(now);
    if (text === empty) sessionStorage.removeItem(key);
    else sessionStorage.setItem(key, text);
  });
  return value;
};

/** Resolves when the connection may be back: the browser says so, the person returns, or some seconds have passed. */
export const untilBack = (signal?: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const ended = new AbortController();
    const end = () => {
      ended.abort();
      clearTimeout(timer);
      resolve();
    };
    const timer = setTimeout(end, 8000);
    addEventListener("online", end, { signal: ended.signal });
    addEventListener("visibilitychange", end, { signal: ended.signal });
    signal?.addEventListener("abort", end, { signal: ended.signal });
  });

/**
 * The result of `read`, which runs again when one of `inputs` changes, and until the server answers. The last result
 * stays until then.
 */
export const useRead = <A,>(
  read: (signal: AbortSignal) => Promise<A>,
  inputs: ReadonlyArray<unknown> = [],
) => {
  const [result, setResult] = useState<{ value?: A | undefined; error?: unknown }>({});
  const [attempt, setAttempt] = useState(0);
  const retry = () => setAttempt((attempt) => attempt + 1);
  useEffect(() => {
    const { abort, signal } = makeAbort();
    read(signal).then(
      (value) => setResult({ value }),
      async (error: unknown) => {
        if (signal.aborted) return;
        setResult(({ value }) => ({ value, error }));
        if (!(error instanceof ConnectionError)) return;
        await untilBack(signal);
        if (!signal.aborted) retry();
      },
    );
    return abort;
  }, [...inputs, attempt]);
  return { ...result, retry };
};

const makeAbort = () => {
  const controller = new AbortController();
  return { abort: () => controller.abort(), signal: controller.signal };
};

/** Takes the focus when its element is shown. */
export const focus = (element: HTMLElement | null): void => element?.focus();

/** On a phone, the focus would open the keyboard over the page. */
export const isPhone = !matchMedia("(hover: hover)").matches;

const paths = {
  back: "M15 5l-7 7 7 7",
  check: "M5 13l4 4L19 7",
  close: "M6 6l12 12M18 6L6 18",
  copy: "M9 9h11v11H9zM15 9V4H4v11h5",
  down: "M12 5v14M6 13l6 6 6-6",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  next: "M9 5l7 7-7 7",
  plus: "M12 5v14M5 12h14",
  save: "M12 4v11M7 11l5 5 5-5M5 20h14",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
} as const;

export const Icon = ({ name }: { readonly name: keyof typeof paths }) => (
  <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
    <path d={paths[name]} stroke-width={name === "more" ? 4 : 2} />
  </svg>
);

/** A time in the reader's zone; pointing at it shows the time as the server sent it. */
export const Time = ({
  iso,
  dateStyle,
}: {
  readonly iso: string;
  readonly dateStyle?: "medium";
}) => (
  <time dateTime={iso} title={iso}>
    {new Date(iso).toLocaleString("en", { dateStyle, timeStyle: "short" })}
  </time>
);

interface CopyButtonProps {
  readonly text: string;
  readonly name: string;
  readonly isNamed?: boolean;
}

/** Copies the text, and says so for a while. */
export const CopyButton = ({ isNamed, name, text }: CopyButtonProps) => {
  const [isCopied, setCopied] = useState(false);
  const label = isCopied ? "Copied" : name;
  return (
    <button
      class={isNamed ? "" : "plain"}
      aria-label={label}
      title={label}
      onClick={async () => {
        await copy(text);
        setCopied(true);
        setTimeout(() => setCopied(false), 2000);
      }}
    >
      <Icon name={isCopied ? "check" : "copy"} />
      {isNamed && label}
    </button>
  );
};
