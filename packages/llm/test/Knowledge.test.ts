import { mkdir, symlink } from "node:fs/promises";
import { join } from "node:path";
import { assert, describe, it } from "@effect/vitest";
import { Effect, FileSystem, Layer, Logger, PlatformError } from "effect";
import { KnowledgeUnreadable, readKnowledge } from "../src/index.ts";
import { folderOf, layerFiles } from "./files.ts";

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

const read = (folder: string) => readKnowledge(folder).pipe(Effect.provide(layerFiles));

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
      assert.strictEqual(knowledge.passages, 2);
      assert.deepStrictEqual(
        knowledge.search("apples", 5).map(({ passage }) => passage),
        [{ source: "a.md", headings: ["Apples"], text: "They are red." }],
      );
      assert.deepStrictEqual(
        knowledge.search("bananas", 5).map(({ passage }) => passage),
        [{ source: "deep/down/B.TXT", headings: [], text: "Bananas bend." }],
      );
      for (const word of ["cherries", "dates", "elderberries"]) {
        assert.deepStrictEqual(knowledge.search(word, 5), []);
      }
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
      const refuse = (method: string) =>
        Effect.fail(
          PlatformError.systemError({ _tag: "PermissionDenied", module: "FileSystem", method }),
        );
      const denied = Layer.effect(
        FileSystem.FileSystem,
        Effect.map(FileSystem.FileSystem, (fs) =>
          FileSystem.makeNoop({
            ...fs,
            readFile: (path) => (path.endsWith("a.md") ? refuse("readFile") : fs.readFile(path)),
            readDirectory: (path) =>
              path.endsWith("c") ? refuse("readDirectory") : fs.readDirectory(path),
          }),
        ),
      );
      const { value, warnings } = yield* readKnowledge(folder).pipe(
        Effect.provide(Layer.provideMerge(denied, layerFiles)),
        warningsOf,
      );
      assert.strictEqual(value.documents, 1);
      assert.deepStrictEqual(warnings, [
        "Skipped c: PermissionDenied",
        "Skipped the document a.md: PermissionDenied",
      ]);
    }),
  );

  it.effect("follows symbolic links, each target once, loops and dangling ones too", () =>
    Effect.gen(function* () {
      const elsewhere = yield* folderOf({ "b.md": "Bananas bend." });
      const folder = yield* folderOf({ "a.md": "Apples are red." });
      yield* Effect.promise(async () => {
        await mkdir(join(folder, "sub"));
        await symlink(folder, join(folder, "sub", "up"));
        await symlink(join(folder, "a.md"), join(folder, "z.md"));
        await symlink(elsewhere, join(folder, "out"));
        await symlink(join(folder, "nowhere"), join(folder, "lost.md"));
        await symlink(join(folder, "self.md"), join(folder, "self.md"));
      });
      const { value, warnings } = yield* warningsOf(read(folder));
      assert.strictEqual(value.documents, 2);
      assert.strictEqual(value.search("bananas", 1)[0]?.passage.source, "out/b.md");
      assert.strictEqual(warnings.length, 2);
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
      const document = new TextEncoder().encode(section.repeat(100));
      let turns = 0;
      const turnsAtReads: Array<number> = [];
      // Real files would give turns of their own.
      const inMemory = Layer.effect(
        FileSystem.FileSystem,
        Effect.gen(function* () {
          const fs = yield* FileSystem.FileSystem;
          const folder = yield* folderOf({ "a.md": "a" });
          const [directory, file] = [yield* fs.stat(folder), yield* fs.stat(join(folder, "a.md"))];
          return FileSystem.makeNoop({
            realPath: Effect.succeed,
            readDirectory: () => Effect.succeed(Array.from({ length: 20 }, (_, n) => `${n}.md`)),
            stat: (path) => Effect.succeed(path.endsWith(".md") ? file : directory),
            readFile: () =>
              Effect.sync(() => {
                turnsAtReads.push(turns);
                return document;
              }),
          });
        }),
      ).pipe(Layer.provideMerge(layerFiles));
      let ticking = setImmediate(function tick() {
        turns++;
        ticking = setImmediate(tick);
      });
      yield* Effect.addFinalizer(() => Effect.sync(() => clearImmediate(ticking)));
      const knowledge = yield* Effect.provide(readKnowledge("folder"), inMemory);
      assert.strictEqual(knowledge.passages, 2000);
      assert.strictEqual(new Set(turnsAtReads).size, 20);
      assert.isAtLeast(turns - turnsAtReads.at(-1)!, 2000);
    }),
  );

  it.effect("an empty folder knows nothing", () =>
    Effect.gen(function* () {
      const knowledge = yield* read(yield* folderOf({}));
      assert.strictEqual(knowledge.passages, 0);
      assert.deepStrictEqual(knowledge.search("apples", 5), []);
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
      for (const question of ["backup", "BACKUPS", "báckups", "dumping", "nights"]) {
        assert.strictEqual((yield* search(question))[0]?.share, 1, question);
        assert.strictEqual((yield* headings(question))[0], "Backups", question);
      }
      for (const question of ["userRef", "userref", "linking", "belong"]) {
        assert.strictEqual((yield* search(question))[0]?.share, 1, question);
        assert.strictEqual((yield* headings(question))[0], "Chats", question);
      }
    }),
  );

  it.effect("finds misspelt words without counting them as matched", () =>
    Effect.gen(function* () {
      const [best] = yield* search("bakcups");
      assert.strictEqual(best, undefined);
      const [close] = yield* search("backsups");
      assert.strictEqual(close?.passage.headings.at(-1), "Backups");
      assert.strictEqual(close?.share, 0);
      assert.strictEqual(close?.known, 0);
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
