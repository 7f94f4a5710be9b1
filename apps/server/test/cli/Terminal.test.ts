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

it("an answer on a terminal joins the lines of a paragraph, breaks lines between words and keeps code, however it is chunked", () => {
  for (const size of [1, 7, 1000]) {
    const { end, push } = makeTypesetter(28);
    let set = "";
    for (let at = 0; at < text.length; at += size) set += push(text.slice(at, at + size));
    set += end();
    expect(set, `in pieces of ${size}`).toBe(expected);
  }
});
