import * as NodeServices from "@effect/platform-node/NodeServices";
import { assert, it } from "@effect/vitest";
import { Effect, FileSystem, Latch, Layer, Logger } from "effect";
import { makeDocuments } from "../src/Documents.ts";
import { hangups } from "../src/Hangups.ts";

/** Folders without a document, in memory; tells each time that one is read. */
const folders = Effect.fnUntraced(function* (onRead: (folder: string) => Effect.Effect<void>) {
  const fs = yield* FileSystem.FileSystem;
  const directory = yield* fs.stat(yield* fs.makeTempDirectoryScoped());
  return Layer.succeed(
    FileSystem.FileSystem,
    FileSystem.makeNoop({
      realPath: Effect.succeed,
      stat: () => Effect.succeed(directory),
      readDirectory: (folder) => Effect.as(onRead(folder), []),
    }),
  );
});

const logged = () => {
  const logs: Array<string> = [];
  const logger = Logger.make(({ message }) => {
    logs.push(String(message));
  });
  return { logs, layer: Logger.layer([logger]) };
};

const hangUp = Effect.sync(() => void process.emit("SIGHUP"));

/** Lets what runs beside the test go on, for longer than it has to do. */
const settle = Effect.repeat(Effect.yieldNow, { times: 5000 });

it.effect("SIGHUPs that come while the documents are read have them read once more", () =>
  Effect.gen(function* () {
    const { layer, logs } = logged();
    let reads = 0;
    const gate = yield* Latch.make(true);
    const files = yield* folders(() =>
      Effect.andThen(
        Effect.sync(() => void reads++),
        gate.await,
      ),
    );
    const documents = yield* Effect.provide(makeDocuments(hangups), [files, layer]);
    yield* Effect.provide(documents("folder"), files);
    assert.strictEqual(reads, 1);
    yield* gate.close;
    yield* hangUp;
    yield* settle;
    assert.strictEqual(reads, 2);
    yield* Effect.repeat(hangUp, { times: 200 });
    yield* gate.open;
    yield* settle;
    assert.strictEqual(reads, 3);
    const again = "The documents were read again";
    assert.deepStrictEqual(logs, [again, again]);
    yield* hangUp;
    yield* settle;
    assert.strictEqual(reads, 4);
  }).pipe(Effect.scoped, Effect.provide(NodeServices.layer)),
);

it.effect("a defect while one folder is read is told, and ends nothing", () =>
  Effect.gen(function* () {
    const { layer, logs } = logged();
    let broken = false;
    const read: Array<string> = [];
    const files = yield* folders((folder) =>
      broken && folder === "bad"
        ? Effect.die(new Error("broken"))
        : Effect.sync(() => void read.push(folder)),
    );
    const documents = yield* Effect.provide(makeDocuments(hangups), [files, layer]);
    for (const folder of ["bad", "good"]) yield* Effect.provide(documents(folder), files);
    read.length = 0;
    broken = true;
    yield* hangUp;
    yield* settle;
    assert.deepStrictEqual(read, ["good"]);
    assert.deepStrictEqual(logs, [
      "The documents in bad met a defect",
      "Of 2 folders of documents 1 could not be read again; what was read of them before stays in use",
    ]);
    broken = false;
    yield* hangUp;
    yield* settle;
    assert.deepStrictEqual(read, ["good", "bad", "good"]);
    assert.strictEqual(logs.at(-1), "The documents were read again");
  }).pipe(Effect.scoped, Effect.provide(NodeServices.layer)),
);
