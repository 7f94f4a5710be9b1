/**
 * The latest requests, each shown as a curl command and as client code to copy.
 */
import { useRef, useState } from "preact/hooks";
import type { Attempt } from "@parley/client";
import { entries } from "../../page/ChatSession.ts";
import { Failure } from "../../page/Failure.tsx";
import { Code } from "../../page/Markdown.tsx";
import { Icon, Time } from "../../page/Parts.tsx";
import { translate, weave } from "../../page/words.ts";
import { addresses, attempts } from "./Session.ts";

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
          <button class="plain" title={translate("Close")} onClick={() => dialog.current!.close()}>
            <Icon name="close" />
          </button>
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
      <Code language="curl" text={toCurl(attempt)} />
      <Code language="@parley/client" text={toCode(attempt)} />
    </details>
  );
};

const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

/** Formats a request as a command, without the headers that only this page needs to stream, resume and retry. */
const toCurl = ({ body, method, url }: Attempt): string =>
  [
    `curl -s ${/GET|POST/.test(method) ? "" : `-X ${method} `}${quote(url)} -H "x-api-key: $KEY"`,
    ...(body === undefined ? [] : ["-H 'content-type: application/json'", `-d ${quote(body)}`]),
  ].join(" \\\n  ");

const toCode = (attempt: Attempt): string => `import { makeClient } from "@parley/client";

const client = makeClient({
  apiKey: process.env.KEY,
  baseUrl: ${JSON.stringify(addresses.baseUrl)},
  askUrl: ${JSON.stringify(addresses.askUrl)},
});
${toCall(attempt)}`;

const toCall = ({ body, method, url }: Attempt): string => {
  const { pathname, searchParams } = new URL(url);
  const toValue = (name: string, text: string) =>
    name === "include"
      ? text.split(",")
      : /^(after|desc|id|limit|page)$/.test(name)
        ? JSON.parse(text)
        : text;
  const entries = [...searchParams].map(([name, text]) => [name, toValue(name, text)]);
  const query = JSON.stringify(Object.fromEntries(entries));
  const options = entries.length === 0 ? "" : `, ${query}`;
  if (pathname.endsWith("/details")) return "console.log(await client.details());";
  const [, chatId, history, entryId] =
    /\/chats\/(\d+)(\/history)?(?:\/(\d+))?$/.exec(pathname) ?? [];
  const call = (name: string, ...values: ReadonlyArray<unknown>) =>
    `console.log(await client.${name}(${values.join(", ")}${options}));`;
  if (method === "DELETE") return call("delete", chatId);
  if (entryId) return call("rate", chatId, entryId, body);
  if (method === "PATCH") return call("rename", chatId, JSON.stringify(JSON.parse(body!).name));
  if (history) return `console.log(await client.history(${chatId}, ${query}).page());`;
  if (method === "GET") return `console.log(await client.chats(${query}).page());`;
  if (pathname.endsWith("/chats")) return call("createChat", body);
  return `for await (const event of client.stream(${body}${options})) console.log(event);`;
};
