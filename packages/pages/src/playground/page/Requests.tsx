/**
 * The latest requests, each as a command and as client code to copy.
 */
import { useRef, useState } from "preact/hooks";
import type { Attempt } from "@parley/client";
import { Reason } from "./Parts.tsx";
import { addresses, attempts } from "./Session.ts";

export const Requests = () => {
  const dialog = useRef<HTMLDialogElement>(null);
  const all = attempts.value;
  return (
    <>
      <button onClick={() => dialog.current?.showModal()}>Requests</button>
      <dialog ref={dialog} aria-labelledby="requests">
        <header class="row">
          <h2 id="requests">Requests</h2>
          <button onClick={() => dialog.current?.close()}>Close</button>
        </header>
        <p class="quiet">Newest first, without the key.</p>
        {all.map((attempt, at) => (
          <Request key={all.length - at} attempt={attempt} isOpen={at === 0} />
        ))}
      </dialog>
    </>
  );
};

const Request = ({ attempt, isOpen }: { readonly attempt: Attempt; readonly isOpen: boolean }) => {
  const { error, method, requestId, status, url } = attempt;
  return (
    <details open={isOpen}>
      <summary>
        <strong class={error === undefined ? "" : "bad"}>{status ?? "—"}</strong>{" "}
        <code>
          {method} {url.replace(location.origin, "")}
        </code>
      </summary>
      {error === undefined ? (
        <p class="quiet">
          Request id <code>{requestId}</code>
        </p>
      ) : (
        <Reason error={error} />
      )}
      <Copyable name="curl" text={toCurl(attempt)} />
      <Copyable name="client code" text={toCode(attempt)} />
    </details>
  );
};

const Copyable = ({ name, text }: { readonly name: string; readonly text: string }) => {
  const [isCopied, setCopied] = useState(false);
  return (
    <div class="stack">
      {/* Pages without TLS have no clipboard, except on this machine. */}
      {navigator.clipboard && (
        <button
          onClick={() => void navigator.clipboard.writeText(text).then(() => setCopied(true))}
        >
          {isCopied ? "Copied" : `Copy as ${name}`}
        </button>
      )}
      <pre tabIndex={0}>
        <code>{text}</code>
      </pre>
    </div>
  );
};

const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

/** Of the one request that they are for: another request must not have them. */
const ownHeaders = ["idempotency-key", "last-event-id"];

const toCurl = ({ body, headers, url }: Attempt): string =>
  [
    `curl -sN ${quote(url)} -H "x-api-key: $KEY"`,
    ...Object.entries(headers)
      .filter(([name]) => !ownHeaders.includes(name))
      .map(([name, value]) => `-H ${quote(`${name}: ${value}`)}`),
    ...(body === undefined ? [] : [`-d ${quote(body)}`]),
  ].join(" \\\n  ");

const toCode = (attempt: Attempt): string => {
  const options = Object.entries(addresses).map(
    ([name, url]) => `  ${name}: ${JSON.stringify(url)},`,
  );
  return `import { makeClient } from "@parley/client";

const client = makeClient({
  apiKey: process.env.KEY,
${options.join("\n")}
});
${toCall(attempt)}`;
};

const toCall = ({ body, method, url }: Attempt): string => {
  const { pathname, searchParams } = new URL(url);
  const query = JSON.stringify(
    Object.fromEntries(
      [...searchParams].map(([name, value]) => [name, name === "search" ? value : Number(value)]),
    ),
  );
  if (pathname.endsWith("/details")) return "console.log(await client.details());";
  const chatId = /\/chats\/(\d+)\/history$/.exec(pathname)?.[1];
  if (chatId) return `console.log(await client.history(${chatId}, ${query}).page());`;
  if (method === "GET") return `console.log(await client.chats(${query}).page());`;
  if (pathname.endsWith("/chats")) return `console.log(await client.createChat(${body}));`;
  return `for await (const event of client.stream(${body})) console.log(event);`;
};
