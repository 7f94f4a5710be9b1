import { rename, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import * as NodeServices from "@effect/platform-node/NodeServices";
import { assert, it } from "@effect/vitest";
import { Effect, Logger } from "effect";
import { KnowledgeUnreadable, makeKnowledge, readKnowledge } from "../../src/index.ts";
import { passagesOf } from "../../src/documents/Passage.ts";
import { folderOf } from "../support/files.ts";

const warningsOf = <A, E, R>(effect: Effect.Effect<A, E, R>) => {
  const warnings: Array<string> = [];
  const logger = Logger.make(({ message }) => {
    warnings.push(String(message));
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
    assert.deepStrictEqual(knowledge.topics, ["Apples", "deep/down/B"]);
    const matches = ["apples", "bananas", "cherries", "dates", "elderberries"].flatMap((word) =>
      knowledge.search(word, 5),
    );
    assert.deepStrictEqual(matches, [
      { source: "a.md", headings: ["Apples"], text: "They are red.", certain: true },
      { source: "deep/down/B.TXT", headings: [], text: "Bananas bend.", certain: false },
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
    assert.strictEqual(value.topics.length, 2);
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
        assert.deepStrictEqual(value.topics, ["a", "sub/d"]);
        assert.deepStrictEqual(warnings, [
          "Skipped the document b.md: its symbolic link points outside the folder",
          "Skipped the document lost.md: NotFound",
        ]);
      }
    }),
);

it.effect(
  "readKnowledge finds the first heading after a byte order mark and with Windows line endings",
  () =>
    Effect.gen(function* () {
      const folder = yield* folderOf({ "a.md": "\ufeff# Apples\r\n\r\nThey are red.\r\n" });
      assert.deepStrictEqual((yield* read(folder)).topics, ["Apples"]);
    }),
);

it.effect(
  "readKnowledge keeps a document's previous passages if it cannot be read again, for example behind a dangling link",
  () =>
    Effect.gen(function* () {
      const folder = yield* folderOf({
        "..one/a.md": "Apples are red.",
        "..two/a.md": "Apples are green.",
        "b.md": "Bananas bend.",
      });
      const lead = (to: string) =>
        Effect.promise(async () => {
          await symlink(to, join(folder, "..next"));
          await rename(join(folder, "..next"), join(folder, "..data"));
        });
      yield* lead("..one");
      yield* Effect.promise(() => symlink(join("..data", "a.md"), join(folder, "a.md")));
      let knowledge = yield* read(folder);
      const readAgain = Effect.gen(function* () {
        const again = readKnowledge(folder, [], knowledge).pipe(Effect.provide(NodeServices.layer));
        const { value, warnings } = yield* warningsOf(again);
        knowledge = value;
        return warnings;
      });
      yield* lead("..nowhere");
      yield* Effect.promise(() => writeFile(join(folder, "b.md"), "Bananas are yellow."));
      for (const _ of [1, 2]) {
        assert.deepStrictEqual(yield* readAgain, [
          "Kept the previous version of the document a.md: NotFound",
        ]);
        const texts = knowledge.passages.map(({ text }) => text);
        assert.sameMembers(texts, ["Apples are red.", "Bananas are yellow."]);
      }
      yield* lead("..two");
      assert.deepStrictEqual(yield* readAgain, []);
      assert.strictEqual(knowledge.search("apples", 1)[0]?.text, "Apples are green.");
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

it.effect("readKnowledge lets other work run between passages", () =>
  Effect.gen(function* () {
    const section = `# Heading\n${"Some words of a text. ".repeat(40)}\n`;
    const folder = yield* folderOf({ "a.md": section.repeat(1000) });
    let iterations = 0;
    let immediate = setImmediate(function tick() {
      iterations++;
      immediate = setImmediate(tick);
    });
    yield* Effect.addFinalizer(() => Effect.sync(() => clearImmediate(immediate)));
    yield* read(folder);
    assert.isAtLeast(iterations, 1000);
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
const headings = (question: string) =>
  Effect.map(makeKnowledge(passagesOf("guide.md", guide)), ({ search }) =>
    search(question, 10).map((passage) => passage.headings.at(-1)),
  );

it.effect(
  "a search ignores case, accents, plurals and endings, and matches the beginnings of words",
  () =>
    Effect.gen(function* () {
      for (const question of ["backup", "BACKUPS", "b\u00e1ckups", "dumping", "nights"]) {
        assert.strictEqual((yield* headings(question))[0], "Backups", question);
      }
      for (const question of ["userRef", "userref", "linking", "belong", "people"]) {
        assert.strictEqual((yield* headings(question))[0], "Chats", question);
      }
    }),
);

it.effect("a search finds a passage only if it covers a third of what the question is about", () =>
  Effect.gen(function* () {
    assert.deepStrictEqual(yield* headings("items of chats from Mars, Venus and Pluto"), []);
    assert.deepStrictEqual((yield* headings("items of chats and users"))[0], "Chats");
    assert.deepStrictEqual(yield* headings("dumps on Mars"), []);
    assert.deepStrictEqual((yield* headings("dumps of chats"))[0], "Chats");
  }),
);

it.effect("a search finds the subject of a long question that also tells a story", () =>
  Effect.gen(function* () {
    const story =
      "Our old server crashed yesterday morning after a power failure and my boss is really angry.";
    assert.deepStrictEqual(yield* headings(story), []);
    assert.strictEqual(
      (yield* headings(`${story} Do you keep backups of each night?`))[0],
      "Backups",
    );
  }),
);

it.effect(
  "a search prefers a heading that the question contains to a passage with other words from the question",
  () =>
    Effect.gen(function* () {
      const text = `# Where is the database?
<!-- password · environment · variable -->
In a folder.
# Secrets from files
Add a suffix to the name.`;
      const { search } = yield* makeKnowledge(passagesOf("a.md", text));
      const question =
        "Can secrets such as the password of the database come from files instead of environment variables?";
      assert.strictEqual(search(question, 1)[0]?.headings.at(-1), "Secrets from files");
    }),
);

it.effect("a search corrects the spelling of a word that no document contains", () =>
  Effect.gen(function* () {
    for (const question of ["bakcups", "bacups", "backkups", "beckups"]) {
      assert.strictEqual((yield* headings(question))[0], "Backups", question);
    }
    assert.deepStrictEqual(yield* headings("bkacpus"), []);
  }),
);
