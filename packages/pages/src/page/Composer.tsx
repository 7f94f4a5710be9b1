/**
 * The field for the next question.
 */
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { useState } from "preact/hooks";
import type { Ask, ChatSession } from "./ChatSession.ts";
import { Icon, isPhone } from "./Parts.tsx";

const longest = 200;

interface ComposerProps {
  readonly session: ChatSession;
  /** The chat whose draft it holds. */
  readonly chat: number | "new";
  /** The ask that can be stopped. */
  readonly running: Ask | undefined;
  readonly send: (question: string) => void;
  /** The question before, which the arrow up brings back. */
  readonly last?: string | undefined;
  /** The line below. */
  readonly children?: ComponentChildren;
}

export const Composer = ({ chat, children, last, running, send, session }: ComposerProps) => {
  const field = useRef<HTMLTextAreaElement>(null);
  const [isRefused, setRefused] = useState(false);
  const text = session.drafts.value[chat] ?? "";
  const length = [...text].length;
  const isTooLong = length > longest;
  const stop = () => {
    session.stop(running!);
    field.current!.focus();
  };
  const submit = (event: Event) => {
    event.preventDefault();
    setRefused(isTooLong);
    if (text.trim() === "" || isTooLong || running) return;
    session.setDraft(chat, "");
    send(text);
  };
  const press = (event: KeyboardEvent) => {
    // Enter, and in Safari the code 229, ends the composition of a word in some scripts.
    if (event.isComposing || event.keyCode === 229) return;
    if (event.key === "Enter" && !event.shiftKey) submit(event);
    if (event.key === "Escape" && running) stop();
    if (event.key === "ArrowUp" && text === "" && last) {
      event.preventDefault();
      session.setDraft(chat, last);
    }
  };
  return (
    <form class="composer" onSubmit={submit}>
      {isRefused && isTooLong && (
        <p class="bad" role="alert">
          A question has at most {longest} characters; this one has {length}.
        </p>
      )}
      <div class="field">
        <textarea
          dir="auto"
          rows={1}
          aria-label="Your question"
          aria-invalid={isTooLong}
          placeholder="Ask a question"
          value={text}
          ref={(element) => {
            if (field.current === null && !isPhone) element?.focus();
            field.current = element;
          }}
          onInput={(event) => session.setDraft(chat, event.currentTarget.value)}
          onKeyDown={press}
        />
        {length > longest - 40 && (
          <span class={isTooLong ? "bad" : "quiet"}>
            {length}/{longest}
            <span class="unseen"> characters</span>
          </span>
        )}
        {running ? (
          <button
            type="button"
            class="round"
            aria-label="Stop"
            title="Stop (Escape)"
            onClick={stop}
          >
            <Icon name="stop" />
          </button>
        ) : (
          <button
            class="round primary"
            aria-label="Ask"
            title="Ask (Enter)"
            disabled={text.trim() === "" || isTooLong}
          >
            <Icon name="send" />
          </button>
        )}
      </div>
      <div class="note quiet">{children}</div>
    </form>
  );
};
