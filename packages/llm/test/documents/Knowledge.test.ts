import { mkdir, rmdir, symlink } from "node:fs/promises";
import { join } from "node:path";
import * as NodeServices from "@effect/platform-node/NodeServices";
import { assert, describe, it } from "@effect/vitest";
import { Effect, FileSystem, Logger, PlatformError } from "effect";
import { KnowledgeUnreadable, readKnowledge } from "../../src/index.ts";
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

describe("readKnowledge", () => {
  it.effect("reads Markdown and text in the folders below", () =>
    Effect.gen(function* () {
      const folder = yield* folderOf({
        "a.md": "# Apples\nThey are red.",
        "deep/down/B.TXT": "Bananas bend.",
        "c.html": "Cherries",
        ".git/d.md": "Dates",
        "node_modules/e/README.md": "Elderberries",
      });
      const knowledge = yield* read(folder);
      assert.strictEqual(knowledge.documents, 2);
      const found = ["apples", "bananas", "cherries", "dates", "elderberries"].flatMap((word) =>
        knowledge.search(word, 5).map(({ passage }) => passage),
      );
      assert.deepStrictEqual(found, [
        { source: "a.md", headings: ["Apples"], text: "They are red." },
        { source: "deep/down/B.TXT", headings: [], text: "Bananas bend." },
      ]);
    }),
  );

  it.effect("skips what is too large or no text, and says so", () =>
    Effect.gen(function* () {
      const folder = yield* folderOf({
        "good.md": "good",
        "largest.txt": "a".repeat(5_000_000),
        "larger.txt": "b".repeat(5_000_001),
        "latin1.txt": Uint8Array.of(0x66, 0xfc, 0x72),
        "nul.txt": "a\0b",
      });
      const { value, warnings } = yield* warningsOf(read(folder));
      assert.strictEqual(value.documents, 2);
      assert.deepStrictEqual(warnings, [
        "Skipped the document larger.txt: it is over 5 MB",
        "Skipped the document latin1.txt: it is no UTF-8 text",
        "Skipped the document nul.txt: it is no UTF-8 text",
      ]);
    }),
  );

  it.effect("skips files and folders that cannot be read, and says so", () =>
    Effect.gen(function* () {
      const folder = yield* folderOf({ "a.md": "Apples", "b.md": "Bananas", "c/d.md": "Dates" });
      const refused = PlatformError.systemError({
        _tag: "PermissionDenied",
        module: "FileSystem",
        method: "read",
      });
      const denied = FileSystem.FileSystem.useSync((fs) => ({
        ...fs,
        readFile: (path: string) =>
          path.endsWith("a.md") ? Effect.fail(refused) : fs.readFile(path),
        readDirectory: (path: string) =>
          path.endsWith("c") ? Effect.fail(refused) : fs.readDirectory(path),
      }));
      const { value, warnings } = yield* readKnowledge(folder).pipe(
        Effect.provideServiceEffect(FileSystem.FileSystem, denied),
        Effect.provide(NodeServices.layer),
        warningsOf,
      );
      assert.strictEqual(value.documents, 1);
      assert.deepStrictEqual(warnings, [
        "Skipped the document a.md: PermissionDenied",
        "Skipped the document c: PermissionDenied",
      ]);
    }),
  );

  it.effect(
    "follows symbolic links to targets in the folder, each once, and none that lead out",
    () =>
      Effect.gen(function* () {
        const elsewhere = yield* folderOf({ "b.md": "Bananas bend.", "folder/c.md": "Cherries." });
        const folder = yield* folderOf({ "..data/a.md": "Apples are red.", "sub/d.md": "Dates." });
        yield* Effect.promise(async () => {
          await symlink(folder, join(folder, "sub", "up"));
          await symlink(join("..data", "a.md"), join(folder, "a.md"));
          await symlink(join(folder, "a.md"), join(folder, "z.md"));
          await symlink(join(elsewhere, "b.md"), join(folder, "b.md"));
          await symlink(join(elsewhere, "folder"), join(folder, "c"));
          await symlink(`${folder}-beside`, join(folder, "beside.md"));
          await mkdir(`${folder}-beside`);
          await symlink(join(folder, "nowhere"), join(folder, "lost.md"));
        });
        yield* Effect.addFinalizer(() => Effect.promise(() => rmdir(`${folder}-beside`)));
        const { value, warnings } = yield* warningsOf(read(folder));
        assert.strictEqual(value.documents, 2);
        assert.strictEqual(value.search("apples", 1)[0]?.passage.source, "a.md");
        assert.deepStrictEqual(warnings, [
          "Skipped the document b.md: its symbolic link leads out of the folder",
          "Skipped the document beside.md: its symbolic link leads out of the folder",
          "Skipped the document c: its symbolic link leads out of the folder",
          "Skipped the document lost.md: NotFound",
        ]);
        // The folder itself may be a link.
        yield* Effect.promise(() => symlink(folder, join(elsewhere, "link")));
        assert.strictEqual((yield* read(join(elsewhere, "link"))).documents, 2);
      }),
  );

  it.effect("a missing folder, or a file in its place, is told by name", () =>
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

  it.effect("lets others have their turn after each document and each passage", () =>
    Effect.gen(function* () {
      const section = `# Heading\n${"Some words of a text. ".repeat(40)}\n`;
      const folder = yield* folderOf({ "a.md": section.repeat(1000) });
      let turns = 0;
      let ticking = setImmediate(function tick() {
        turns++;
        ticking = setImmediate(tick);
      });
      yield* Effect.addFinalizer(() => Effect.sync(() => clearImmediate(ticking)));
      assert.strictEqual((yield* read(folder)).passages, 1000);
      assert.isAtLeast(turns, 1000);
    }),
  );
});

describe("search", () => {
  const documents = {
    "guide.md": [
      "# Guide",
      "## Backups",
      "Run the dump every night and keep seven of them.",
      "## Chats",
      "A chat belongs to a user. Use `userRef` to link chats to your own users.",
      "## Limits",
      "A page holds at most 100 items. Backups are not limited.",
    ].join("\n"),
  };
  const search = (question: string, limit = 10) =>
    Effect.gen(function* () {
      const knowledge = yield* read(yield* folderOf(documents));
      return knowledge.search(question, limit);
    });
  const headings = (question: string, limit?: number) =>
    Effect.map(search(question, limit), (matches) =>
      matches.map(({ passage }) => passage.headings.at(-1)),
    );

  it.effect("a heading counts for more than the text", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* headings("backups"), ["Backups", "Limits"]);
      assert.deepStrictEqual(yield* headings("backups", 1), ["Backups"]);
    }),
  );

  it.effect("finds plurals, endings, beginnings, accents, case and parts of names", () =>
    Effect.gen(function* () {
      for (const [heading, questions] of [
        ["Backups", ["backup", "BACKUPS", "báckups", "dumping", "nights"]],
        ["Chats", ["userRef", "userref", "linking", "belong"]],
      ] as const) {
        for (const question of questions) {
          const [best] = yield* search(question);
          assert.deepStrictEqual([best?.share, best?.passage.headings.at(-1)], [1, heading]);
        }
      }
    }),
  );

  it.effect("finds misspelt words without counting them as matched", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* search("bakcups"), []);
      const [close] = yield* search("backsups");
      assert.strictEqual(close?.passage.headings.at(-1), "Backups");
      assert.deepStrictEqual([close?.share, close?.known], [0, 0]);
    }),
  );

  it.effect("tells the share of the question that a passage and all documents hold", () =>
    Effect.gen(function* () {
      const [best] = yield* search("How many items are in a page of chats from Mars?");
      assert.strictEqual(best?.passage.headings.at(-1), "Limits");
      assert.strictEqual(best?.share, 2 / 4);
      assert.strictEqual(best?.known, 3 / 4);
    }),
  );

  it.effect("a question of stop words finds nothing", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* search("What is this, and how does it work?"), []);
      assert.deepStrictEqual(yield* search("?!"), []);
      assert.deepStrictEqual(yield* search("constructor __proto__"), []);
    }),
  );
});
