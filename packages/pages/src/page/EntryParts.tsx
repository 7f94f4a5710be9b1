/**
 * What an entry has besides its question and its answer: who wrote it, its sources and its rating.
 */
import { signal } from "@preact/signals";
import { useRef, useState } from "preact/hooks";
import { hasQuestion, type Entry, type FeedbackChange } from "@parley/client";
import { include, session } from "./ChatSession.ts";
import { Failure } from "./Failure.tsx";
import { Icon, IconButton, useChange } from "./Parts.tsx";
import { translate } from "./words.ts";

/** Marks an entry that a person wrote, and any other entry that answers no question. */
export const Byline = (entry: Entry) => {
  const author = entry.metadata?.["author"];
  if (typeof author !== "string" || author.trim() === "") {
    // Visitors take a greeting for what it is.
    return hasQuestion(entry) || !session.toFacts ? null : (
      <p class="quiet">{translate("Message without a question")}</p>
    );
  }
  return (
    <strong class="quiet state" dir="auto">
      <Icon name="person" />
      {translate("Written by {}", author)}
    </strong>
  );
};

/** Lists the sources of an answer. Only an address with `http(s):` becomes a link. */
export const Sources = ({ metadata }: Entry) => {
  const sources = metadata?.["sources"];
  if (!Array.isArray(sources) || sources.length === 0) return null;
  return (
    <div class="sources quiet">
      {translate("Sources:")}
      <ul>
        {sources.map((source) => {
          const { title, url } = source ?? {};
          const props = { target: "_blank", rel: "noopener noreferrer nofollow" };
          const name = String(title || url || "");
          return (
            <li dir="auto">
              {/^https?:\/\//i.test(url) ? (
                <a href={url} {...props}>
                  {name}
                </a>
              ) : (
                name
              )}
            </li>
          );
        })}
      </ul>
    </div>
  );
};

/** The entries that this tab has rated, by id. */
const ratedEntries = signal<ReadonlyMap<number, Entry>>(new Map());

/** Two buttons, of which a second click clears the rating, and a field for a comment, which is optional. */
export const Rating = (entry: Entry) => {
  const { comment, rating } = ratedEntries.value.get(entry.id) ?? entry;
  const [isOpen, setOpen] = useState(false);
  const { error, isOffered, run } = useChange("rate");
  if (!isOffered) return <Failure error={error} />;
  const change = (feedback: FeedbackChange) =>
    run(async () => {
      const changed = await session.client.rate(entry.chat_id, entry.id, feedback, { include });
      ratedEntries.value = new Map(ratedEntries.peek()).set(entry.id, changed);
      setOpen(feedback.comment === undefined && !changed.comment);
    });
  const thumb = (name: "good" | "bad", title: string) => {
    const isPressed = rating === name;
    const feedback = isPressed ? { rating: null, comment: null } : { rating: name };
    const props = { icon: name, title, "aria-pressed": isPressed };
    return <IconButton {...props} onClick={() => change(feedback)} />;
  };
  const field = useRef<HTMLInputElement>(null);
  // A form sends nothing in a frame whose sandbox forbids forms.
  const save = () => void change({ comment: field.current!.value.trim() || null });
  return (
    <>
      {thumb("good", translate("Good answer"))}
      {thumb("bad", translate("Bad answer"))}
      {rating && !isOpen && (
        <button class="plain" onClick={() => setOpen(true)}>
          {translate(comment ? "Edit comment" : "Comment")}
        </button>
      )}
      {isOpen ? (
        <div class="row">
          <input
            ref={field}
            dir="auto"
            maxLength={1000}
            aria-label={translate("Comment")}
            placeholder={translate("Comment")}
            defaultValue={comment ?? ""}
            onKeyDown={({ isComposing, key }) => key === "Enter" && !isComposing && save()}
          />
          <button onClick={save}>{translate("Save")}</button>
          <button onClick={() => setOpen(false)}>{translate("Cancel")}</button>
        </div>
      ) : (
        comment && (
          <p class="comment" dir="auto">
            {comment}
          </p>
        )
      )}
      <Failure error={error} />
    </>
  );
};
