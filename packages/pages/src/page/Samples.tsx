/**
 * Requests as code to copy. Headers that only a page needs to stream, resume and retry are left out. A stop needs the
 * idempotency key of its ask.
 */
import { Code } from "./Markdown.tsx";

interface Sample {
  readonly method: string;
  readonly url: string;
  /** By name in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | undefined;
}

const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

const headersOf = ({ headers, method }: Sample): ReadonlyArray<readonly [string, string]> =>
  Object.entries(headers).filter(
    ([name]) => name === "content-type" || (name === "idempotency-key" && method === "DELETE"),
  );

const toCurl = (sample: Sample): string => {
  const { body, method, url } = sample;
  return [
    `curl -s ${/GET|POST/.test(method) ? "" : `-X ${method} `}${quote(url)} -H "x-api-key: $KEY"`,
    ...headersOf(sample).map(([name, value]) => `-H ${quote(`${name}: ${value}`)}`),
    ...(body === undefined ? [] : [`-d ${quote(body)}`]),
  ].join(" \\\n  ");
};

const toFetch = (sample: Sample): string => {
  const { body, method, url } = sample;
  const headers = headersOf(sample).map(([name, value]) => `, "${name}": ${JSON.stringify(value)}`);
  const lines = [
    ...(method === "GET" ? [] : [`  method: "${method}",`]),
    `  headers: { "x-api-key": process.env.KEY${headers.join("")} },`,
    ...(body === undefined ? [] : [`  body: JSON.stringify(${body}),`]),
  ];
  return `const response = await fetch(${JSON.stringify(url)}, {\n${lines.join("\n")}\n});\nconsole.log(await response.json());`;
};

export const Samples = (sample: Sample) => (
  <>
    <Code language="curl" text={toCurl(sample)} />
    <Code language="JavaScript" text={toFetch(sample)} />
  </>
);
