/**
 * The operations in the API description, each with a form that sends a request.
 */
import { render } from "preact";
import { useState } from "preact/hooks";
import { Code, Markdown } from "../../page/Markdown.tsx";
import { storage, useRead } from "../../page/Parts.tsx";
import { Samples } from "../../page/Samples.tsx";

type Json = Record<string, any>;

let spec: Json;

/** Returns the schema that a reference points to. Any other schema is returned as it is. */
const follow = (schema: Json): Json =>
  schema["$ref"] ? follow(spec["components"].schemas[schema["$ref"].split("/").at(-1)]) : schema;

const typeOf = (schema: Json): string => {
  const { anyOf, enum: values, items, type } = follow(schema);
  if (values) return values.map((value: unknown) => JSON.stringify(value)).join(" or ");
  if (anyOf) return anyOf.map(typeOf).join(" or ");
  return type === "array" ? `array of ${typeOf(items ?? {})}` : (type ?? "any");
};

const rulesOf = (schema: Json): ReadonlyArray<string> =>
  Object.entries(follow(schema))
    .filter(([name]) => /^(default|m(in|ax)(imum|Length))$/.test(name))
    .map(([name, value]) => `${name.replace("Length", "imum length")} ${JSON.stringify(value)}`);

const toTable = (head: string, rows: ReadonlyArray<ReadonlyArray<string>>): string => {
  const lines = rows.map((cells) => cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | "));
  return rows.length === 0 ? "" : `${head}\n${head.replace(/[^|]+/g, "---")}\n${lines.join("\n")}`;
};

const toRow = (
  name: string,
  place: string,
  schema: Json,
  isRequired: boolean,
  description = "",
) => {
  const meaning = [description || follow(schema)["description"] || "", ...rulesOf(schema)];
  const title = `\`${name}\`${isRequired ? " **required**" : ""}`;
  return [title, place, typeOf(schema), meaning.filter(Boolean).join("; ")];
};

const membersOf = (schema: Json, place: string) => {
  const { properties = {}, required = [] } = follow(schema);
  return Object.entries<Json>(properties).map(([name, member]) =>
    toRow(name, place, member, place === "body" && required.includes(name)),
  );
};

/** Returns a table of a request's parameters and body fields. */
const describeValues = ({ parameters, requestBody }: Json): string =>
  toTable("Name | In | Type | Meaning", [
    ...parameters.map(({ description, in: place, name, required, schema }: Json) =>
      toRow(name, place, schema, required, description),
    ),
    ...(requestBody ? membersOf(requestBody.content["application/json"].schema, "body") : []),
  ]);

/** Returns a table of a response's fields, or of a failure's codes. */
const describeResponse = ({ examples = {}, schema }: Json): string => {
  const codes = Object.entries<Json>(examples).map(([message, { summary = "", value }]) => [
    `\`${message}\``,
    String(value.code ?? value.errors[0].code),
    summary,
  ]);
  if (codes.length > 0) return toTable("Message | Code | Meaning", codes);
  const data = follow(schema)["properties"]?.data;
  const item = data && (follow(data)["items"] ?? data);
  return item ? toTable("Name | In | Type | Meaning", membersOf(item, "data")) : "";
};

/** The initial request bodies in the forms, by operation id. */
const bodies: Json = {
  "general.createChat": { name: "First chat" },
  "general.changeChat": { name: "Another name" },
  "general.changeEntry": { rating: "good" },
  "general.postEntry": { text: "A colleague's answer" },
  "answers.ask": { query: "What is a chat?" },
};

/** The operation as code to copy. */
const OperationSamples = ({ method, operationId, parameters, path, requestBody }: Json) => {
  const url = new URL(path.replace(/\{\w+\}/g, "1"), location.origin);
  const body = requestBody && JSON.stringify(bodies[operationId] ?? {});
  const headers: Record<string, string> = body ? { "content-type": "application/json" } : {};
  for (const { in: place, name, required } of parameters) {
    if (place === "header" && required) headers[name.toLowerCase()] = "key-1";
  }
  return <Samples {...{ method, url: url.href, headers, body }} />;
};

/** A form that sends a request to the operation and shows the response. The API key is kept in this tab. */
const Trial = ({ method, operationId, parameters, path, requestBody }: Json) => {
  const [[summary, text], setResponse] = useState<readonly [string, string]>(["", ""]);
  const send = async (form: FormData) => {
    const value = (name: string) => String(form.get(name) ?? "").trim();
    const key = value("x-api-key");
    storage.setItem("parley-key", key);
    const target = path.replace(/\{(\w+)\}/g, (_: string, name: string) =>
      encodeURIComponent(value(name)),
    );
    const url = new URL(target, location.origin);
    const headers: Record<string, string> = {
      "x-api-key": key,
      "content-type": "application/json",
      ...(form.has("stream") && { accept: "text/event-stream" }),
    };
    for (const { in: place, name } of parameters) {
      if (value(name) === "") continue;
      if (place === "query") url.searchParams.set(name, value(name));
      if (place === "header") headers[name] = value(name);
    }
    const begin = performance.now();
    const response = await fetch(url, {
      method,
      headers,
      body: requestBody ? value("body") : null,
    });
    let body = "";
    const show = () => {
      const millis = Math.round(performance.now() - begin);
      setResponse([`Status ${response.status} · ${millis} ms · request id ${id}`, body]);
    };
    const id = response.headers.get("x-request-id");
    if (/event-stream/.test(response.headers.get("content-type") ?? "")) {
      for await (const piece of response.body!.pipeThrough(new TextDecoderStream())) {
        body += piece;
        show();
      }
    } else body = JSON.stringify(await response.json(), null, 2);
    show();
  };
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    send(new FormData(event.currentTarget as HTMLFormElement)).catch((error) =>
      setResponse([`The request failed: ${error}`, ""]),
    );
  };
  const field = (name: string, value = "", hint = "", type = "text") => (
    <>
      <label for={`${operationId}.${name}`}>{name}</label>
      <input
        id={`${operationId}.${name}`}
        name={name}
        defaultValue={value}
        {...({ type, placeholder: hint } as object)}
      />
    </>
  );
  return (
    <form class="stack trial" onSubmit={submit}>
      {field("x-api-key", storage.getItem("parley-key") ?? "", "prl_…", "password")}
      {parameters
        .filter((parameter: Json) => parameter["in"] !== "header" || parameter["required"])
        .map(({ in: place, name, schema }: Json) =>
          // A deletion is for good, so its form suggests no chat.
          field(
            name,
            place === "path" && method !== "DELETE" ? "1" : "",
            JSON.stringify(schema.default) ?? "",
          ),
        )}
      {requestBody && (
        <>
          <label for={`${operationId}.body`}>body</label>
          <textarea id={`${operationId}.body`} name="body" rows={3}>
            {JSON.stringify(bodies[operationId] ?? {}, null, 2)}
          </textarea>
        </>
      )}
      {operationId === "answers.ask" && (
        <label>
          <input type="checkbox" name="stream" /> Stream the answer
        </label>
      )}
      <button class="primary">Send</button>
      <div role="status">
        <p>{summary}</p>
        {text && <Code language="json" text={text} />}
      </div>
    </form>
  );
};

const Operation = (operation: Json) => (
  <section class="stack operation">
    <h2 id={operation["operationId"]}>{operation["summary"]}</h2>
    <p>
      <strong class="method">{operation["method"]}</strong> <code>{operation["path"]}</code>
    </p>
    <Markdown text={`${operation["description"]}\n\n${describeValues(operation)}`} />
    <OperationSamples {...operation} />
    <Trial {...operation} />
    {Object.entries<Json>(operation["responses"]).flatMap(([status, { content, description }]) =>
      Object.entries<Json>(content).map(([type, response]) => (
        <details open={Number(status) < 300}>
          <summary>
            <strong class={Number(status) < 300 ? "" : "bad"}>{status}</strong> {description}{" "}
            <span class="quiet">{type}</span>
          </summary>
          <Markdown text={describeResponse(response)} />
        </details>
      )),
    )}
  </section>
);

const Reference = () => {
  const { error, value } = useRead(async () => (await fetch("/openapi.json")).json());
  if (value === undefined)
    return <main>{error !== undefined && "Could not load the API description."}</main>;
  spec = value;
  const operations = Object.entries<Json>(spec["paths"]).flatMap(([path, methods]) =>
    Object.entries<Json>(methods).map(([method, operation]): Json => {
      return { ...operation, method: method.toUpperCase(), path };
    }),
  );
  return (
    <div class="guide">
      <nav class="side" aria-label="Operations">
        <ul>
          {operations.map(({ operationId, summary }) => (
            <li>
              <a href={`#${operationId}`}>{summary}</a>
            </li>
          ))}
        </ul>
      </nav>
      <main class="stack markdown">
        <h1>API reference</h1>
        <p>
          {spec["info"].description} Every request needs an API key in the header{" "}
          <code>x-api-key</code>. This page is generated from{" "}
          <a href="/openapi.json">the OpenAPI description</a>.
        </p>
        {operations.map((operation) => (
          <Operation key={operation["operationId"]} {...operation} />
        ))}
      </main>
    </div>
  );
};

render(<Reference />, document.getElementById("page")!);
