import { expect, it } from "vitest";
import { makeTypesetter } from "../../src/cli/Terminal.ts";

const text = `# A heading
A paragraph
with [a link](https://example.com/a) that is longer than a line.

1. One
2. Two, which
   continues
- Three
| Setting | What it does in words |
| --- | --- |

\`\`\`sh
echo a line which stays as it is
  indented
\`\`\`
The end  
of it.`;

const expected = `# A heading
A paragraph with [a
link](https://example.com/a)
that is longer than a line.

1. One
2. Two, which continues
- Three
| Setting | What it does in
words |
| --- | --- |

\`\`\`sh
echo a line which stays as it is
  indented
\`\`\`
The end  
of it.
`;

const typeset = (width: number | undefined, size: number) => {
  const { end, push } = makeTypesetter(width);
  let set = "";
  for (let at = 0; at < text.length; at += size) set += push(text.slice(at, at + size));
  return set + end();
};

it("an answer on a terminal joins the lines of a paragraph, breaks lines between words and keeps code, however it is chunked", () => {
  for (const size of [1, 7, 1000]) expect(typeset(28, size), `in pieces of ${size}`).toBe(expected);
});

it("an answer that is piped stays as it is", () => {
  expect(typeset(undefined, 7)).toBe(`${text}\n`);
});
