import { symlink } from "node:fs/promises";
import { join } from "node:path";
import * as NodeServices from "@effect/platform-node/NodeServices";
import { assert, it } from "@effect/vitest";
import { Effect, Logger } from "effect";
import { KnowledgeUnreadable, makeKnowledge, readKnowledge } from "../../src/index.ts";
import { passagesOf } from "../../src/documents/Passage.ts";
import { folderOf } from "../support/files.ts";

const warningsOf = <A, E, R>(effect: Effect.Effect<A, E, R>) => {
  const warnings: Array<string> = [];
  const logger = Logger.make(({ logLevel, message }) => {
    if (logLevel === "Warn") warnings.push(String(message));
  });
  return effect.pipe(
    Effect.provide(Logger.layer([logger])),
    Effect.map((value) => ({ value, warnings })),
  );
};

const read = (folder: string) => readKnowledge(folder).pipe(Effect.provide(NodeServices.layer));

it.effect("readKnowledge indexes Markdown and text files at any depth in the folder", () =>
  Effect.gen(function* () {
    const folder = yield* folderOf({
      "a.md": "# Apples\nThey are red.",
      "deep/down/B.TXT": "Bananas bend.",
      "c.html": "Cherries",
      ".git/d.md": "Dates",
      "node_modules/e/README.md": "Elderberries",
    });
    const knowledge = yield* read(folder);
    assert.strictEqual(knowledge.documents.size, 2);
    const matches = ["apples", "bananas", "cherries", "dates", "elderberries"].flatMap((word) =>
      knowledge.search(word, 5),
    );
    assert.deepStrictEqual(matches, [
      {
        source: "a.md",
        title: "Apples",
        headings: ["Apples"],
        anchor: "apples",
        text: "They are red.",
      },
      { source: "deep/down/B.TXT", title: "B", headings: [], anchor: "", text: "Bananas bend." },
    ]);
  }),
);

it.effect("readKnowledge skips files that are too large or not UTF-8 text, with a warning", () =>
  Effect.gen(function* () {
    const folder = yield* folderOf({
      "good.md": "good",
      "largest.txt": "a".repeat(5_000_000),
      "larger.txt": "b".repeat(5_000_001),
      "latin1.txt": Uint8Array.of(0x66, 0xfc, 0x72),
      "utf16.md": Uint8Array.of(0x23, 0, 0x20, 0, 0x48, 0, 0x69, 0),
    });
    const { value, warnings } = yield* warningsOf(read(folder));
    assert.strictEqual(value.documents.size, 2);
    assert.deepStrictEqual(warnings, [
      "Skipped the document larger.txt: it is larger than 5 MB",
      "Skipped the document latin1.txt: it is not UTF-8",
      "Skipped the document utf16.md: it is not UTF-8",
    ]);
  }),
);

it.effect(
  "readKnowledge follows a symbolic link to a file only if the file is inside the folder",
  () =>
    Effect.gen(function* () {
      const elsewhere = yield* folderOf({ "b.md": "Bananas bend.", "folder/c.md": "Cherries." });
      const folder = yield* folderOf({ "..data/a.md": "Apples are red.", "sub/d.md": "Dates." });
      yield* Effect.promise(async () => {
        await symlink(folder, join(folder, "sub", "up"));
        await symlink(join("..data", "a.md"), join(folder, "a.md"));
        await symlink(join(elsewhere, "b.md"), join(folder, "b.md"));
        await symlink(join(elsewhere, "folder"), join(folder, "c"));
        await symlink(join(folder, "nowhere"), join(folder, "lost.md"));
        await symlink(folder, join(elsewhere, "link"));
      });
      // The folder itself may be a link.
      for (const path of [folder, join(elsewhere, "link")]) {
        const { value, warnings } = yield* warningsOf(read(path));
        assert.deepStrictEqual(
          [...new Set(value.passages.map(({ source }) => source))],
          ["a.md", "sub/d.md"],
        );
        assert.deepStrictEqual(warnings, [
          "Skipped the document b.md: its symbolic link points outside the folder",
          "Skipped the document lost.md: NotFound",
        ]);
      }
    }),
);

it.effect("readKnowledge fails with the path of the folder if it is missing or is a file", () =>
  Effect.gen(function* () {
    const folder = yield* folderOf({ "a.md": "Apples" });
    for (const path of [join(folder, "nowhere"), join(folder, "a.md")]) {
      const error = yield* Effect.flip(read(path));
      assert.instanceOf(error, KnowledgeUnreadable);
      assert.strictEqual(error.folder, path);
      assert.include(error.message, path);
    }
  }),
);

it.effect("building an index lets other work run at least every tenth of a second", () =>
  Effect.gen(function* () {
    const section = `# Heading\n${"Some words of a text. ".repeat(40)}\n`;
    const passages = Array.from({ length: 20 }, () =>
      passagesOf("a.md", section.repeat(500)),
    ).flat();
    let [iterations, start] = [0, performance.now()];
    let immediate = setImmediate(function tick() {
      iterations++;
      immediate = setImmediate(tick);
    });
    yield* Effect.addFinalizer(() => Effect.sync(() => clearImmediate(immediate)));
    yield* makeKnowledge(passages);
    start = performance.now() - start;
    assert.isAtLeast(iterations, Math.floor(start / 200));
    assert.isAtLeast(iterations, 1);
  }),
);

it.effect("readKnowledge reads at most 50 MB, and warns of the documents that it leaves out", () =>
  Effect.gen(function* () {
    const text = `# Apples\n\n${"a".repeat(4_900_000)}`;
    const folder = yield* folderOf(
      Object.fromEntries(
        Array.from({ length: 12 }, (_, n) => [`${String.fromCharCode(97 + n)}.md`, text]),
      ),
    );
    const { value, warnings } = yield* warningsOf(read(folder));
    assert.strictEqual(value.documents.size, 10);
    assert.deepStrictEqual(warnings, [
      `Left out 2 of the documents in ${folder}, from k.md to l.md: at most 50 MB and 200,000 passages are read`,
    ]);
  }),
);

const guide = `
## Backups
Run the dump every night and keep seven of them.
## Chats
A chat belongs to a user. Use \`userRef\` to link chats to your own users.
## Limits
A page holds at most 100 items. Backups are not limited.
`;
const best = (question: string, document = guide) =>
  Effect.map(makeKnowledge(passagesOf("guide.md", document)), ({ search }) =>
    search(question, 10)[0]?.headings.at(-1),
  );

it.effect("a search ignores case and accents, and matches words that begin alike", () =>
  Effect.gen(function* () {
    for (const question of ["backup", "BACKUPS", "b\u00e1ckups", "dumping", "nights"]) {
      assert.strictEqual(yield* best(question), "Backups", question);
    }
    for (const question of ["userRef", "userref", "linking", "belong"]) {
      assert.strictEqual(yield* best(question), "Chats", question);
    }
  }),
);

it.effect(
  "a search finds a word in spite of one slip of the pen, and nothing for unknown words",
  () =>
    Effect.gen(function* () {
      for (const question of ["bakcups", "bacups", "backkups", "beckups"]) {
        assert.strictEqual(yield* best(question), "Backups", question);
      }
      for (const question of ["bkacpus", "", "?!", "\ud800"]) {
        assert.strictEqual(yield* best(question), undefined, question);
      }
    }),
);

it.effect("a search finds words in languages with other letters, or without spaces", () =>
  Effect.gen(function* () {
    const document =
      "# 退款\n收到商品后七天内可以申请退款。\n# 계정\n암호를 변경합니다.\n# Стоимость\nДоставка бесплатна.\n# Straße\nHausnummer";
    for (const [question, heading] of [
      ["怎么申请退款？", "退款"],
      ["암호는 어떻게 바꾸나요?", "계정"],
      ["сколько стоит доставка", "Стоимость"],
      ["STRASSE", "Straße"],
    ] as const) {
      assert.strictEqual(yield* best(question, document), heading);
    }
  }),
);

it.effect(
  "short words of a question count less than long ones, unless they are abbreviations",
  () =>
    Effect.gen(function* () {
      const password = "Das Kennwort ändern Sie hier.\n# Das Kennwort\nEs hat acht Zeichen.";
      const document = `# Vorwort\nWie ich dazu kam.\n# Kennwort\n${password}\n# VPN\nDas VPN der Firma. Ein Kennwort.`;
      for (const [question, heading] of [
        ["Wie kann ich mein Kennwort ändern?", "Kennwort"],
        ["Kennwort VPN", "VPN"],
      ] as const) {
        assert.strictEqual(yield* best(question, document), heading);
      }
    }),
);

it.effect("a search returns the best passage of each of three documents before others", () =>
  Effect.gen(function* () {
    const passages = ["a", "b", "c"].flatMap((name, at) =>
      passagesOf(
        `${name}.md`,
        `# ${name}\n## Apples\nred ${"filler ".repeat(at)}\n## Apples\ngreen`,
      ),
    );
    const { search } = yield* makeKnowledge(passages);
    const found = search("apples", 4).map(({ source }) => source);
    assert.sameMembers(found.slice(0, 3), ["a.md", "b.md", "c.md"]);
    assert.strictEqual(found.length, 4);
  }),
);
