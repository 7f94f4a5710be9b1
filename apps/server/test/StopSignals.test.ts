/**
 * A server whose package manager exits stops. Not being able to look for the package manager is no reason to stop.
 */
import { assert, it } from "@effect/vitest";
import { Effect } from "effect";
import { afterAll, vi } from "vitest";
import { stopWithScript } from "../src/StopSignals.ts";

const { readFile } = vi.hoisted(() => {
  // Another test file of this worker may have loaded the module with the real `readFile`.
  vi.resetModules();
  return { readFile: vi.fn() };
});
vi.mock("node:fs/promises", () => ({ readFile }));
afterAll(() => void vi.resetModules());

const failWith = (code: string) =>
  readFile.mockImplementation(async () => {
    throw Object.assign(new Error(code), { code });
  });

it.live.runIf(process.platform === "linux")(
  "a server keeps running while it is out of file descriptors, and stops once its package manager has exited",
  () => {
    const killSpy = vi.spyOn(process, "kill").mockReturnValue(true);
    vi.stubEnv("npm_lifecycle_event", "start");
    return Effect.gen(function* () {
      readFile.mockImplementation(async (path: string) => {
        if (path === `/proc/${process.ppid}/status`) return "PPid:\t1\n";
        if (path === `/proc/${process.ppid}/cmdline`) return "npm\0start\0";
        throw Object.assign(new Error(), { code: "ENOENT" });
      });
      yield* stopWithScript;
      yield* Effect.sleep("500 millis");
      failWith("EMFILE");
      yield* Effect.sleep("2 seconds");
      assert.deepStrictEqual(killSpy.mock.calls, []);
      failWith("ENOENT");
      yield* Effect.promise(() => vi.waitUntil(() => killSpy.mock.calls.length > 0, 5000));
      assert.deepStrictEqual(killSpy.mock.calls, [[process.pid, "SIGTERM"]]);
    }).pipe(
      Effect.scoped,
      Effect.ensuring(Effect.sync(() => (vi.unstubAllEnvs(), killSpy.mockRestore()))),
    );
  },
);
