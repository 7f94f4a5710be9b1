import { assert, it } from "@effect/vitest";
import { firstSentences, passagesOf } from "../../src/documents/Passage.ts";

const split = (document: string) =>
  passagesOf("x.md", document).map(({ headings, text }) => [headings.join(" > "), text]);

const longest = (passages: ReadonlyArray<{ readonly text: string }>) =>
  Math.max(...passages.map(({ text }) => [...text].length));

it("passagesOf gives each passage the headings above it", () => {
  const document = `Before.
# One
## Two ##
a

b
#### Four
c
## \`Five\` and [six](y.md)
d

Eight
---
e`;
  assert.deepStrictEqual(split(document), [
    ["", "Before."],
    ["One > Two", "a\n\nb"],
    ["One > Two > Four", "c"],
    ["One > Five and six", "d"],
    ["One > Eight", "e"],
  ]);
});

it("passagesOf leaves out front matter except for the title, and treats horizontal rules and #tags as text", () => {
  const document = "---\ntitle: x\n---\n#tag\n\n---\n\nb";
  assert.deepStrictEqual(split(document), [["", "#tag\n\n---\n\nb"]]);
});

it("passagesOf cuts long sections between paragraphs", () => {
  const passages = passagesOf("x.md", `# A\n${`${"word ".repeat(100)}\n\n`.repeat(10)}`);
  assert.isAtMost(longest(passages), 1200);
  assert.strictEqual(passages.length, 5);
  assert.isTrue(passages.every(({ headings }) => headings[0] === "A"));
});

it("passagesOf cuts long paragraphs between sentences", () => {
  const passages = passagesOf("x.md", "A sentence of six words here. ".repeat(100));
  assert.isAtMost(longest(passages), 1200);
  for (const { text } of passages) assert.match(text, /^A.*here\.$/);
});

it("when passagesOf cuts a table or code block, each piece repeats the header or the fences", () => {
  const rows = Array.from({ length: 60 }, (_, n) => `| PARLEY_${n} | what it does, at length |`);
  const table = passagesOf("x.md", ["| name | what |", "|---|:-:|", ...rows].join("\n"));
  assert.isAbove(table.length, 1);
  assert.isAtMost(longest(table), 1200);
  for (const { text } of table) assert.match(text, /^\| name \| what \|\n\|---\|:-:\|\n\| PARLEY/);

  const code = passagesOf("x.md", ["```ts", ...rows, "```"].join("\n\n"));
  assert.isAbove(code.length, 1);
  for (const { text } of code) assert.match(text, /^```ts\n[^]*h \|\n\n\|[^]*\n```$/);
});

it("passagesOf takes the title from the front matter, the first heading or the name of the file", () => {
  const titleOf = (document: string) => passagesOf("a/red-apples.md", document)[0]?.title;
  assert.strictEqual(titleOf("---\nid: 1\ntitle: 'About us'\n---\n# Other\na"), "About us");
  assert.strictEqual(titleOf('+++\ntitle = "About us"\n+++\na'), "About us");
  assert.strictEqual(titleOf("a\n## *Our* `team`\nb"), "Our team");
  assert.strictEqual(titleOf("a"), "red apples");
  // A byte order mark and Windows line endings.
  assert.strictEqual(titleOf("\ufeff# Apples\r\n\r\nThey are red.\r\n"), "Apples");
});

it("passagesOf strips HTML to its text, and code keeps it", () => {
  const document = `<a id="x"></a>
# <a name="y"></a>Apples {#fruit}
<!-- hidden
words -->
<div align="center"><b>Red</b> and<br>green<img src="a.png"/></div>
<ul><li>one</li><li>two</li></ul>

<h2>Pears</h2>
Enter \`<b>\` or <server>.

\`\`\`html
<b>bold</b>
\`\`\`
<style>
b { color: red }
</style>`;
  assert.deepStrictEqual(split(document), [
    ["Apples", "Red and\ngreen\n- one\n- two"],
    ["Apples > Pears", "Enter `<b>` or <server>.\n\n```html\n<b>bold</b>\n```"],
  ]);
  assert.strictEqual(passagesOf("x.md", document)[0]?.anchor, "fruit");
});

it("passagesOf numbers the anchors of equal headings", () => {
  const anchors = passagesOf("x.md", "# A b!\na\n# A b!\nb\n# Ü_c\nc").map(({ anchor }) => anchor);
  assert.deepStrictEqual(anchors, ["a-b", "a-b-1", "ü_c"]);
});

it("passagesOf reads hostile documents within a second each", () => {
  const hostile = {
    lists: "- ".repeat(2_500) + "end",
    deeper: Array.from({ length: 1_500 }, (_, n) => `${"  ".repeat(n)}- item`).join("\n"),
    quotes: "> ".repeat(100_000),
    word: "a".repeat(5_000_000),
    backticks: "` `` ".repeat(50_000),
    tags: "<a ".repeat(50_000),
    comments: "<!--".repeat(50_000),
    brackets: "[".repeat(50_000),
    heading: `# ${"[".repeat(50_000)}`,
    spaces: `x${" ".repeat(50_000)}x`,
    fences: "```\n".repeat(50_001),
    colons: "a:\n\n".repeat(50_000),
  };
  for (const [name, document] of Object.entries(hostile)) {
    const start = performance.now();
    const passages = passagesOf("x.md", document);
    assert.isBelow(performance.now() - start, 5_000, name);
    assert.isAtMost(Math.max(0, ...passages.map(({ text }) => text.length)), 1300, name);
  }
  assert.strictEqual(passagesOf("x.md", hostile.lists)[0]?.text, "- end");
});

it("passagesOf returns no passages for a document that is empty or has only headings", () => {
  for (const document of ["", "# A\n## B\n  ", "---\n---\n"]) {
    assert.deepStrictEqual(split(document), []);
  }
});

it("passagesOf keeps a paragraph that ends with a colon together with the start of what it introduces", () => {
  const steps = Array.from({ length: 40 }, (_, n) => `${n + 1}. Turn the screw number ${n + 1}.`);
  const rows = Array.from({ length: 90 }, (_, n) => `| ${n} | screw |`);
  const code = Array.from({ length: 200 }, (_, n) => `turn ${n};`);
  for (const block of [steps, ["| a | b |", "| - | - |", ...rows], ["```", ...code, "```"]]) {
    const text = `Loose parts rattle.\n\nTake these steps:\n\n${block.join("\n")}`;
    const texts = passagesOf("a.md", text).map((passage) => passage.text);
    assert.isAbove(texts.length, 1);
    const [introduction] = texts.filter((text) => text.includes("Take these steps:"));
    assert.include(introduction, `Take these steps:\n\n${block[0]}\n${block[1]}\n${block[2]}\n`);
    for (const { length } of texts) assert.isAtMost(length, 1200);
  }
});

it("passagesOf keeps every paragraph of a document whose paragraphs all end with a colon", () => {
  const text = Array.from({ length: 500 }, (_, n) => `Number ${n}:`).join("\n\n");
  const passages = passagesOf("a.md", text);
  assert.isAtMost(longest(passages), 1200);
  assert.strictEqual(passages.map((passage) => passage.text).join("\n\n"), text);
});

it("passagesOf keeps the rest of a long paragraph whose first line ends with a colon", () => {
  const rest = Array.from({ length: 400 }, (_, n) => `word${n}`).join(" ");
  for (const before of ["", "Read this:\n\n"]) {
    const text = `${before}Take these steps:\n${rest}\n\nThe end.`;
    const texts = passagesOf("a.md", text).map((passage) => passage.text);
    assert.deepStrictEqual(texts.join("\n").split(/\s+/), text.split(/\s+/));
  }
});

it("firstSentences returns whole sentences from the first paragraph, even after code, and nothing from a table, list or code", () => {
  const beginnings = {
    "One. Two is longer than that. Three.\n\nFour.": "One. Two is longer than that.",
    "一つ目。二つ目です。三つ目はもっとずっととても長い文になっています。": "一つ目。二つ目です。",
    "One. Two is\nlonger than that.\nThree\nis too much.": "One. Two is longer than that.",
    "Without a full stop": "Without a full stop",
    "One. Run this:\n\n```sh\nls\n```": "One.",
    "One.\n- Two.": "One.",
    "One.\n```\nTwo.\n```": "One.",
    "- One.": "",
    "| one |\n|---|\n| Two. |": "",
    "```\nOne.\n```": "",
    "```\nOne.\n```\n\nTwo.\n\nThree.": "Two.",
    "```\nOne.\n```\n- Two.": "",
    "> One.": "",
    "A single sentence that has more characters.": "",
    "": "",
  };
  for (const [text, expected] of Object.entries(beginnings)) {
    assert.strictEqual(firstSentences(text, 31), expected, text);
  }
});
