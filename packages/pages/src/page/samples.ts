/**
 * Requests as code to copy. Headers that only a page needs to stream, resume and retry are left out.
 */
interface Sample {
  readonly method: string;
  readonly url: string;
  readonly body?: string | undefined;
}

const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

export const toCurl = ({ body, method, url }: Sample): string =>
  [
    `curl -s ${/GET|POST/.test(method) ? "" : `-X ${method} `}${quote(url)} -H "x-api-key: $KEY"`,
    ...(body === undefined ? [] : ["-H 'content-type: application/json'", `-d ${quote(body)}`]),
  ].join(" \\\n  ");

export const toFetch = ({ body, method, url }: Sample): string => {
  const type = body === undefined ? "" : ', "content-type": "application/json"';
  const lines = [
    ...(method === "GET" ? [] : [`  method: "${method}",`]),
    `  headers: { "x-api-key": process.env.KEY${type} },`,
    ...(body === undefined ? [] : [`  body: JSON.stringify(${body}),`]),
  ];
  return `const response = await fetch(${JSON.stringify(url)}, {\n${lines.join("\n")}\n});\nconsole.log(await response.json());`;
};
