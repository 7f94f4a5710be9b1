/**
 * The latest requests, each as code to copy.
 */
import { useRef, useState } from "preact/hooks";
import type { Attempt } from "@parley/client";
import { entries } from "../../page/ChatSession.ts";
import { Failure } from "../../page/Failure.tsx";
import { IconButton, Time } from "../../page/Parts.tsx";
import { Samples } from "../../page/Samples.tsx";
import { translate, weave } from "../../page/words.ts";
import { attempts } from "./Session.ts";

export const Requests = () => {
  const dialog = useRef<HTMLDialogElement>(null);
  const [isOpen, setOpen] = useState(false);
  const all = isOpen ? attempts.value : [];
  const open = () => {
    setOpen(true);
    dialog.current!.showModal();
  };
  return (
    <>
      <button onClick={open}>{translate("Requests")}</button>
      <dialog ref={dialog} aria-labelledby="requests" onClose={() => setOpen(false)}>
        <header class="row">
          <h2 id="requests">{translate("Requests")}</h2>
          <IconButton
            icon="close"
            title={translate("Close")}
            onClick={() => dialog.current!.close()}
          />
        </header>
        <p class="quiet">{translate("Newest first. The API key is not shown.")}</p>
        {all.map((attempt, at) => (
          <Request key={`${attempt.beganAt} ${attempt.url}`} attempt={attempt} isOpen={at === 0} />
        ))}
      </dialog>
    </>
  );
};

const Request = ({ attempt, isOpen }: { readonly attempt: Attempt; readonly isOpen: boolean }) => {
  const { beganAt, body, error, durationMillis, headers, method, requestId, status, url } = attempt;
  const { query } = JSON.parse(body ?? "{}");
  const answer = [...entries.value.values()].find(
    ({ askId }) => askId !== undefined && askId === headers["idempotency-key"],
  );
  return (
    <details open={isOpen}>
      <summary class="row">
        <span>
          <strong class={error === undefined ? "" : "bad"}>{status ?? "—"}</strong>{" "}
          <code>
            {method} {url.replace(location.origin, "")}
          </code>
        </span>
        <span class="quiet">
          <Time iso={new Date(beganAt).toISOString()} /> ·{" "}
          {answer?.arrivedAt ? answer.arrivedAt - beganAt : durationMillis} ms
        </span>
      </summary>
      {query && <p class="question">{query}</p>}
      {answer && <p class="clipped">{answer.answer}</p>}
      <Failure error={error} />
      {requestId && <p class="quiet">{weave("Request id {}", <code>{requestId}</code>)}</p>}
      <Samples {...attempt} />
    </details>
  );
};
