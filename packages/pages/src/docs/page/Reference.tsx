/**
 * The operations of the API description, each with a sample that can be sent.
 */
import { render } from "preact";
import { useState } from "preact/hooks";
import { Code, Markdown } from "../../page/Markdown.tsx";
import { useRead } from "../../page/Parts.tsx";

type Json = Record<string, any>;

interface Operation extends Json {
  readonly method: string;
  readonly path: string;
}

let spec: Json;

/** A schema without its references. */
const follow = (schema: Json): Json =>
  schema["$ref"] ? follow(spec.components.schemas[schema["$ref"].split("/").at(-1)]) : schema;

const typeOf = (schema: Json): string => {
  const { anyOf, enum: values, items, type } = follow(schema);
  if (values) return values.map((one: unknown) => JSON.stringify(one)).join(" | ");
  if (anyOf) return anyOf.map(typeOf).join(" or ");
  return type === "array" ? `array of ${typeOf(items ?? {})}` : String(type ?? "any");
};

const rulesOf = (schema: Json): string => {
  const { default: initial, maximum, maxLength, minimum, minLength } = follow(schema);
  return [
    initial !== undefined && `default ${JSON.stringify(initial)}`,
    minimum !== undefined && `from ${minimum}`,
    maximum !== undefined && `to ${maximum}`,
    minLength && `from ${minLength} characters`,
    maxLength !== undefined && `to ${maxLength} characters`,
  ]
    .filter(Boolean)
    .join(", ");
};

interface Field {
  readonly name: string;
  readonly place: string;
  readonly schema: Json;
  readonly isRequired: boolean;
  readonly description?: string;
}

const bodyOf = (operation: Operation): Json | undefined =>
  operation.requestBody && follow(operation.requestBody.content["application/json"].schema);

const fieldsOf = (operation: Operation): ReadonlyArray<Field> => {
  const body = bodyOf(operation);
  const parameters = operation.parameters.map(
    ({ description, in: place, name, required, schema }: Json) => {
      return { name, place, schema, isRequired: required, description };
    },
  );
  const members = Object.entries<Json>(body?.properties ?? {}).map(([name, schema]) => {
    const isRequired = (body!.required ?? []).includes(name);
    return {
      name,
      place: "body",
      schema,
      isRequired,
      description: schema.description ?? follow(schema).description,
    };
  });
  return [...parameters, ...members];
};

const Fields = ({ fields }: { readonly fields: ReadonlyArray<Field> }) => (
  <div class="box" role="region" aria-label="Values" tabIndex={0}>
    <table>
      <thead>
        <tr>
          <th>Name</th>
          <th>In</th>
          <th>Type</th>
          <th>Meaning</th>
        </tr>
      </thead>
      <tbody>
        {fields.map(({ description, isRequired, name, place, schema }) => (
          <tr key={name}>
            <td>
              <code>{name}</code>
              {isRequired && <span class="bad"> required</span>}
            </td>
            <td>{place}</td>
            <td>{typeOf(schema)}</td>
            <td>
              <Markdown text={[description, rulesOf(schema)].filter(Boolean).join("; ")} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  </div>
);

/** Bodies to begin with. */
const samples: Json = {
  "general.create": { name: "First chat" },
  "answers.ask": { query: "What is a chat?" },
};

interface Sent {
  readonly status: number;
  readonly text: string;
  readonly millis: number;
  readonly requestId: string | null;
}

/** A request of the operation: values, the key of this tab, and the response. */
const Trial = ({ operation }: { readonly operation: Operation }) => {
  const { method, operationId, parameters, path } = operation;
  const [sent, setSent] = useState<Sent | string>();
  const send = async (form: FormData) => {
    const value = (name: string) => String(form.get(name) ?? "").trim();
    const query = parameters.filter((one: Json) => one.in === "query" && value(one.name) !== "");
    const search = new URLSearchParams(query.map((one: Json) => [one.name, value(one.name)]));
    const target = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(value(name)));
    const begin = performance.now();
    try {
      sessionStorage.setItem("parley-key", value("key"));
      const response = await fetch(search.size === 0 ? target : `${target}?${search}`, {
        method,
        headers: {
          "x-api-key": value("key"),
          ...(method === "POST" && { "content-type": "application/json" }),
        },
        body: method === "POST" ? value("body") : null,
      });
      const text = JSON.stringify(await response.json(), null, 2);
      const millis = Math.round(performance.now() - begin);
      setSent({
        status: response.status,
        text,
        millis,
        requestId: response.headers.get("x-request-id"),
      });
    } catch (error) {
      setSent(String(error));
    }
  };
  const inputs = parameters.filter((one: Json) => one.in !== "header");
  const id = (name: string) => `${operationId}.${name}`;
  return (
    <form
      class="stack trial"
      onSubmit={(event) => {
        event.preventDefault();
        void send(new FormData(event.currentTarget));
      }}
    >
      <label for={id("key")}>API key</label>
      <input
        id={id("key")}
        name="key"
        type="password"
        autoComplete="off"
        placeholder="prl_…"
        value={sessionStorage.getItem("parley-key") ?? ""}
        required
      />
      {inputs.map(({ in: place, name, schema }: Json) => (
        <>
          <label for={id(name)}>{name}</label>
          <input
            id={id(name)}
            name={name}
            required={place === "path"}
            value={place === "path" ? "1" : ""}
            placeholder={schema.default === undefined ? "" : JSON.stringify(schema.default)}
          />
        </>
      ))}
      {method === "POST" && (
        <>
          <label for={id("body")}>Body</label>
          <textarea id={id("body")} name="body" rows={3} spellcheck={false}>
            {JSON.stringify(samples[operationId] ?? {}, null, 2)}
          </textarea>
        </>
      )}
      <button class="primary">Send</button>
      {typeof sent === "string" && (
        <p class="failure" role="alert">
          There was no answer: {sent}
        </p>
      )}
      {typeof sent === "object" && (
        <div class="stack" role="status">
          <p>
            <strong class={sent.status < 300 ? "" : "bad"}>{sent.status}</strong>{" "}
            <span class="quiet">
              {sent.millis} ms · request id <code>{sent.requestId}</code>
            </span>
          </p>
          <Code language="json" text={sent.text} />
        </div>
      )}
    </form>
  );
};

const Responses = ({ responses }: { readonly responses: Json }) => (
  <>
    {Object.entries<Json>(responses).map(([status, { content, description }]) => {
      const [type, { examples = {}, schema }] = Object.entries<Json>(content)[0]!;
      const codes = Object.entries<Json>(examples).map(([message, { summary, value }]) => {
        const code = value.code ?? value.errors[0].code;
        return `| \`${message}\` | ${code} | ${summary ?? ""} |`;
      });
      const data = follow(schema).properties?.data;
      const members = data && follow(data.items ?? data).properties;
      return (
        <details>
          <summary>
            <strong class={Number(status) < 300 ? "" : "bad"}>{status}</strong> {description}{" "}
            <span class="quiet">{type}</span>
          </summary>
          {codes.length > 0 && (
            <Markdown text={`| message | code | |\n|---|---|---|\n${codes.join("\n")}`} />
          )}
          {members && (
            <Fields
              fields={Object.entries<Json>(members).map(([name, one]) => ({
                name,
                place: "data",
                schema: one,
                isRequired: false,
                description: one.description ?? follow(one).description,
              }))}
            />
          )}
        </details>
      );
    })}
  </>
);

const Reference = () => {
  const { error, value } = useRead(async () => (await fetch("/openapi.json")).json());
  if (error !== undefined) return <p class="failure">The description does not arrive.</p>;
  if (value === undefined) return null;
  spec = value;
  const operations = Object.entries<Json>(spec.paths).flatMap(([path, methods]) =>
    Object.entries<Json>(methods).map(
      ([method, one]) => ({ ...one, method: method.toUpperCase(), path }) as Operation,
    ),
  );
  return (
    <div class="guide">
      <nav class="side" aria-label="Operations">
        {spec.tags.map(({ description, name }: Json) => (
          <>
            <h2>{description}</h2>
            <ul>
              {operations
                .filter(({ tags }) => tags.includes(name))
                .map(({ operationId, summary }) => (
                  <li>
                    <a href={`#${operationId}`}>{summary}</a>
                  </li>
                ))}
            </ul>
          </>
        ))}
      </nav>
      <main class="stack markdown">
        <h1>The interface</h1>
        <p>
          {spec.info.description} Every request carries an API key in the header{" "}
          <code>x-api-key</code>. <a href="/openapi.json">OpenAPI description</a>
        </p>
        {operations.map((operation) => (
          <section class="stack operation" key={operation.operationId}>
            <h2 id={operation.operationId}>{operation.summary}</h2>
            <p>
              <code>
                <strong>{operation.method}</strong> {operation.path}
              </code>
            </p>
            <Markdown text={operation.description} />
            <Fields fields={fieldsOf(operation)} />
            <Trial operation={operation} />
            <Responses responses={operation.responses} />
          </section>
        ))}
      </main>
    </div>
  );
};

render(<Reference />, document.getElementById("page")!);
