/**
 * The latest requests, each as a command or as client code to copy.
 */
import { useRef, useState } from "preact/hooks";
import { ResponseError, type Attempt } from "../../client/index.ts";
import { addresses, attempts } from "./Session.ts";

export const Requests = () => {
  const dialog = useRef<HTMLDialogElement>(null);
  const all = attempts.value;
  return (
    <>
      <button onClick={() => dialog.current?.showModal()}>Requests</button>
      <dialog ref={dialog} aria-labelledby="requests">
        <header>
          <h2 id="requests">Requests</h2>
          <button onClick={() => dialog.current?.close()}>Close</button>
        </header>
        <p class="quiet">Newest first, without the key.</p>
        <ol>
          {all.map((attempt, at) => (
            <Request key={all.length - at} attempt={attempt} isOpen={at === 0} />
          ))}
        </ol>
      </dialog>
    </>
  );
};

const Request = ({ attempt, isOpen }: { readonly attempt: Attempt; readonly isOpen: boolean }) => {
  const { error, method, requestId, status, url } = attempt;
  const { pathname, search } = new URL(url);
  return (
    <li>
      <details open={isOpen}>
        <summary>
          <span class={error === undefined ? "status" : "status bad"}>{status ?? "—"}</span>{" "}
          <code>
            {method} {pathname + search}
          </code>
        </summary>
        <p class="quiet">
          {error instanceof ResponseError && `${error.message}, code ${error.code}. `}
          {error !== undefined && !(error instanceof ResponseError) && `${String(error)}. `}
          {requestId !== undefined && (
            <>
              Request id <code>{requestId}</code>
            </>
          )}
        </p>
        <Copyable label="curl" text={toCurl(attempt)} />
        <Copyable label="Client code" text={toCode(attempt)} />
      </details>
    </li>
  );
};

const Copyable = ({ label, text }: { readonly label: string; readonly text: string }) => {
  const [isCopied, setCopied] = useState(false);
  return (
    <div class="copyable">
      <h3>{label}</h3>
      {/* Pages without TLS have no clipboard, except on this machine. */}
      {navigator.clipboard && (
        <button
          onClick={() => void navigator.clipboard.writeText(text).then(() => setCopied(true))}
        >
          {isCopied ? "Copied" : `Copy ${label === "curl" ? "as curl" : "as client code"}`}
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

const toCode = ({ body, method, url }: Attempt): string => {
  const { pathname, searchParams } = new URL(url);
  const query = Object.fromEntries(
    [...searchParams].map(([name, value]) => [name, name === "search" ? value : Number(value)]),
  );
  const [, kind, chatId] = /\/(details|chats)(?:\/(\d+)\/history)?$/.exec(pathname) ?? [];
  const call =
    kind === undefined
      ? `for await (const event of client.stream(${body})) console.log(event);`
      : kind === "details"
        ? "console.log(await client.details());"
        : method === "POST"
          ? `console.log(await client.createChat(${body}));`
          : chatId === undefined
            ? `console.log(await client.chats(${toLiteral(query)}).page());`
            : `console.log(await client.history(${chatId}, ${toLiteral(query)}).page());`;
  const options = toLiteral({ ...addresses, apiKey: "KEY" }, 2).replace('"KEY"', "process.env.KEY");
  return `import { makeClient } from "@parley/http/client";\n\nconst client = makeClient(${options});\n${call}`;
};

const toLiteral = (value: object, indent = 0): string =>
  JSON.stringify(value, null, indent).replace(/"(\w+)":/g, "$1:");
