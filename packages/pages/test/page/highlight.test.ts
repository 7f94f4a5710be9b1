import { expect, it } from "vitest";
import { tokensOf } from "../../src/page/highlight.ts";

/** The code with the first letter of each token's kind before the token. */
const mark = (language: string, code: string) =>
  tokensOf(code, language)
    .map(({ end, kind, start }) => `${kind[0]}:${code.slice(start, end)}`)
    .join(" ");

it.each([
  ["js", "const a1 = 'it\\'s' // no", "k:const s:'it\\'s' c:// no"],
  ["TS", "/* a\nb */ return `x\ny` + 1.5e3", "c:/* a\nb */ k:return s:`x\ny` n:1.5e3"],
  ["rust", "fn f<'a>(x: &'a str) { 'c' }", "k:fn s:'c'"],
  ["python", "def f(): # it's\n  '''a'''", "k:def c:# it's s:'''a'''"],
  ["sh", "curl -d '{\n}' http://a/#b # c", "k:curl s:'{\n}' c:# c"],
  ["sql", "SELECT 'a''b' -- c", "k:SELECT s:'a' s:'b' c:-- c"],
  ["json", '{ "a": "b", "c": 1, "d": true }', 'k:"a" s:"b" k:"c" n:1 k:"d" k:true'],
  ["yaml", "a-b: don't # c", "k:a-b c:# c"],
  ["css", "a { color: '#fff' } /* c */", "k:color s:'#fff' c:/* c */"],
  ["html", `<a href="b">don't</a> <!-- c -->`, `k:<a s:"b" k:> k:</a k:> c:<!-- c -->`],
  ["diff", "@@ 1 @@\n-a\n+b", "k:@@ 1 @@ c:-a s:+b"],
  ["brainfuck", "const 1", ""],
  ["constructor", "const 1", ""],
])("in %s, comments, strings, numbers and keywords are found: %s", (language, code, expected) => {
  expect(mark(language, code)).toBe(expected);
});

const starts = [
  '"',
  "'",
  "`",
  "/*",
  "<!--",
  '"""',
  '\\"',
  "a ",
  "a-",
  "a.",
  "  ",
  "1.",
  "=\"'",
  "<a ",
];
it.each(starts)("the time is in proportion to the length of code made of %j", (start) => {
  const languages = ["js", "py", "sh", "sql", "json", "css", "html", "diff"];
  for (const language of languages) {
    const begin = performance.now();
    tokensOf(start.repeat(100_000 / start.length), language);
    expect(performance.now() - begin, language).toBeLessThan(500);
  }
});
