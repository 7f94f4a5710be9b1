import { expect, it } from "vitest";
import { makeTypesetter } from "../../src/cli/Terminal.ts";

const text = `A paragraph with [a link](https://example.com/a) that is longer than a line of the terminal.

| When | Price |
| --- | ---: |
| 日本語 | 3.90 € |

| Setting | What it does in so many words that they do not fit |
| --- | --- |
| PORT | listens |

\`\`\`sh
echo [this](is-code) which stays in one line, however narrow the terminal may be
\`\`\``;

const expected = `A paragraph with a link
(https://example.com/a) that is
longer than a line of the
terminal.

When    Price
------  ------
日本語  3.90 €

Setting: PORT
What it does in so many words that they do not fit: listens

\`\`\`sh
echo [this](is-code) which stays in one line, however narrow the terminal may be
\`\`\`
`;

it("an answer on a terminal wraps between words and has readable tables and links, however it is chunked", () => {
  for (const size of [1, 7, 1000]) {
    const { end, push } = makeTypesetter(32);
    let set = "";
    for (let at = 0; at < text.length; at += size) set += push(text.slice(at, at + size));
    set += end();
    expect(set.replace(/ +$/gm, ""), `in pieces of ${size}`).toBe(expected);
  }
});
