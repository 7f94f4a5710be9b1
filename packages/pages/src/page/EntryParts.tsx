/**
 * What an entry has besides its question and its answer: who wrote it, its sources and its rating. Each part is empty
 * unless the session includes what it shows.
 */
import { useState } from "preact/hooks";
import { hasQuestion, type Entry, type FeedbackChange } from "@parley/client";
import { ratedEntries, refusedChanges, session, withdrawIfRefused } from "./ChatSession.ts";
import { Failure } from "./Failure.tsx";
import { Icon } from "./Parts.tsx";
import { translate } from "./words.ts";

/** Marks an entry that a person wrote, and any other entry that answers no question. */
export const Byline = (entry: Entry) => {
  if (entry.metadata === undefined) return null;
  const author = entry.metadata?.["author"];
  if (typeof author === "string" && author !== "") {
    return (
      <strong class="byline quiet" dir="auto">
        <Icon name="person" />
        {translate("Written by {}", author)}
      </strong>
    );
  }
  return hasQuestion(entry) ? null : <p class="quiet">{translate("Message without a question")}</p>;
};

/** Lists the sources of an answer. An address of any other kind than `http(s):` does not become a link. */
export const Sources = ({ metadata }: Entry) => {
  const sources = metadata?.["sources"];
  const items = (Array.isArray(sources) ? sources : []).flatMap((source) => {
    const { title, url } = source ?? {};
    const name = title || url;
    if (typeof name !== "string") return [];
    return [{ name, url: /^https?:\/\//i.test(url) ? String(url) : undefined }];
  });
  if (items.length === 0) return null;
  return (
    <div class="sources quiet">
      <span>{translate("Sources")}:</span>
      <ul aria-label={translate("Sources")}>
        {items.map(({ name, url }) => (
          <li dir="auto">
            {url === undefined ? (
              name
            ) : (
              <a href={url} target="_blank" rel="noopener noreferrer nofollow">
                {name}
              </a>
            )}
          </li>
        ))}
      </ul>
    </div>
  );
};

/** Two buttons, of which a second click clears the rating, and a form for a comment, which is optional. */
export const Rating = (entry: Entry) => {
  const { comment, rating } = ratedEntries.value.get(entry.id) ?? entry;
  const [isOpen, setOpen] = useState(false);
  const [error, setError] = useState<unknown>();
  if (rating === undefined) return null;
  if (refusedChanges.value.includes("rate")) return <Failure error={error} />;
  const change = async (feedback: FeedbackChange) => {
    const { client, include } = session;
    try {
      const changed = await client.rate(entry.chat_id, entry.id, feedback, { include });
      ratedEntries.value = new Map(ratedEntries.peek()).set(entry.id, changed);
      setError(undefined);
      setOpen(feedback.comment === undefined && changed.comment === null);
    } catch (error) {
      withdrawIfRefused("rate", error);
      setError(error);
    }
  };
  const thumb = (name: "good" | "bad", title: string) => {
    const isPressed = rating === name;
    const feedback = isPressed ? { rating: null, comment: null } : { rating: name };
    return (
      <button
        type="button"
        class="plain"
        title={title}
        aria-pressed={isPressed}
        onClick={() => change(feedback)}
      >
        <Icon name={name} />
      </button>
    );
  };
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const text = String(new FormData(event.currentTarget as HTMLFormElement).get("comment")).trim();
    void change({ comment: text || null });
  };
  return (
    <>
      {thumb("good", translate("Good answer"))}
      {thumb("bad", translate("Bad answer"))}
      {rating !== null && !isOpen && (
        <button type="button" class="plain" onClick={() => setOpen(true)}>
          {translate(comment ? "Edit comment" : "Comment")}
        </button>
      )}
      {isOpen && (
        <form class="row" onSubmit={submit}>
          <input
            name="comment"
            dir="auto"
            maxLength={1000}
            autoComplete="off"
            aria-label={translate("Comment")}
            placeholder={translate("Comment")}
            defaultValue={comment ?? ""}
          />
          <button>{translate("Save")}</button>
          <button type="button" onClick={() => setOpen(false)}>
            {translate("Cancel")}
          </button>
        </form>
      )}
      {comment && !isOpen && (
        <p class="comment" dir="auto">
          {comment}
        </p>
      )}
      <Failure error={error} />
    </>
  );
};
