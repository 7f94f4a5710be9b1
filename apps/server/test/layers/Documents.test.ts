import * as NodeServices from "@effect/platform-node/NodeServices";
import { assert, it } from "@effect/vitest";
import { Effect, FileSystem, Latch, Layer, Logger } from "effect";
import { Documents, layerDocuments, reloadOnSighup } from "../../src/layers/Documents.ts";
import { Settings, type SettingsShape } from "../../src/Settings.ts";

/**
 * Builds `Documents` over empty in-memory folders, with `/default` as the default folder. Returns a function that reads
 * a subfolder, and the log lines.
 */
const documentsOver = Effect.fnUntraced(function* (
  onRead: (folder: string) => Effect.Effect<void>,
) {
  const logs: Array<string> = [];
  const files = FileSystem.makeNoop({
    realPath: Effect.succeed,
    readDirectory: (folder) => Effect.as(onRead(folder), []),
    glob: () => Effect.succeed([]),
  });
  const layer = layerDocuments(reloadOnSighup).pipe(
    Layer.provide([
      Layer.succeed(Settings, {
        knowledgeDir: "/default",
        llms: [],
      } as unknown as SettingsShape),
      Logger.layer([Logger.make(({ message }) => void logs.push(String(message)))]),
    ]),
    Layer.build,
    Effect.provideService(FileSystem.FileSystem, files),
  );
  const { byName } = yield* Effect.provide(Documents, yield* layer);
  const read = (name: string) => Effect.provideService(byName(name), FileSystem.FileSystem, files);
  return { read, logs };
});

const sendSighup = Effect.sync(() => void process.emit("SIGHUP"));

/** Lets the other fibers run for longer than they need. */
const settle = Effect.repeat(Effect.yieldNow, { times: 5000 });

it.effect(
  "SIGHUPs that arrive while the documents are being read make the server read them once more",
  () =>
    Effect.gen(function* () {
      let reads = 0;
      const gate = yield* Latch.make(true);
      yield* documentsOver(() =>
        Effect.andThen(
          Effect.sync(() => void reads++),
          gate.await,
        ),
      );
      assert.strictEqual(reads, 1);
      yield* gate.close;
      yield* sendSighup;
      yield* settle;
      assert.strictEqual(reads, 2);
      yield* Effect.repeat(sendSighup, { times: 200 });
      yield* gate.open;
      yield* settle;
      assert.strictEqual(reads, 3);
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer)),
);

it.effect(
  "a defect while reloading a folder is logged, and every folder can still be reloaded later",
  () =>
    Effect.gen(function* () {
      let broken = false;
      const folders: Array<string> = [];
      const { logs, read: readNow } = yield* documentsOver((folder) =>
        broken && folder === "/default"
          ? Effect.die(new Error("broken"))
          : Effect.sync(() => void folders.push(folder)),
      );
      yield* readNow("office");
      broken = true;
      yield* sendSighup;
      yield* settle;
      broken = false;
      yield* sendSighup;
      yield* settle;
      assert.deepStrictEqual(folders, [
        "/default",
        "/default/office",
        "/default/office",
        "/default",
        "/default/office",
      ]);
      assert.deepStrictEqual(
        logs.filter((line) => !line.startsWith("There are no documents")),
        [
          "Could not reload the documents in /default",
          "Reloaded the documents in /default/office",
          "Reloaded the documents in /default",
          "Reloaded the documents in /default/office",
        ],
      );
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer)),
);
