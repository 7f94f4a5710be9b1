/**
 * The field for the next question.
 */
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { draftOf, session, setDraft, stop, type Ask } from "./ChatSession.ts";
import { Icon, isPhone } from "./Parts.tsx";
import { translate } from "./words.ts";

interface ComposerProps {
  readonly chatId: number | null;
  /** The chat's ask in progress, if any, which the person can stop. */
  readonly runningAsk: Ask | undefined;
  readonly send: (question: string) => void;
  /** The previous question, which the up arrow brings back. */
  readonly last: string | undefined;
  /** The line below the field. */
  readonly children: ComponentChildren;
}

export const Composer = ({ chatId, children, last, runningAsk, send }: ComposerProps) => {
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    // The page around a frame may have the focus.
    if (!isPhone && document.hasFocus()) field.current!.focus();
  }, []);
  const text = draftOf(chatId);
  const length = [...text].length;
  const longest = session.questionLength;
  const isTooLong = length > longest;
  const canSend = text.trim() !== "" && !isTooLong && !runningAsk;
  const halt = () => {
    stop(runningAsk!);
    field.current!.focus();
  };
  // A form sends nothing in a frame whose sandbox forbids forms.
  const submit = (event: Event) => {
    event.preventDefault();
    if (!canSend) return;
    setDraft(chatId, "");
    send(text);
  };
  const press = (event: KeyboardEvent) => {
    // In some scripts, Enter completes a composed word. Safari indicates this only with the key code 229.
    if (event.isComposing || event.keyCode === 229) return;
    if (event.key === "Enter" && !event.shiftKey) submit(event);
    if (event.key === "Escape" && runningAsk) {
      // Escape must not also close a window around the page.
      event.preventDefault();
      halt();
    }
    if (event.key === "ArrowUp" && text === "" && last) setDraft(chatId, last);
  };
  return (
    <div class="composer">
      {isTooLong && (
        <p class="bad" role="alert">
          {translate(
            "A question can have at most {} characters; this one has {}.",
            longest,
            length,
          )}
        </p>
      )}
      <div class="field">
        <textarea
          dir="auto"
          rows={1}
          aria-label={translate("Your question")}
          placeholder={translate("Ask a question")}
          value={text}
          ref={field}
          onInput={(event) => setDraft(chatId, event.currentTarget.value)}
          onKeyDown={press}
        />
        {length > longest * 0.8 && <span class="quiet">{longest - length}</span>}
        {runningAsk ? (
          <button class="round" title={translate("Stop")} onClick={halt}>
            <Icon name="stop" />
          </button>
        ) : (
          <button
            class="round primary"
            title={translate("Ask")}
            disabled={!canSend}
            onClick={submit}
          >
            <Icon name="send" />
          </button>
        )}
      </div>
      <div class="note quiet" dir="auto">
        {children}
      </div>
    </div>
  );
};
