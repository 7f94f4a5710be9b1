import { expect, test } from "vitest";
import { exchange } from "./Client.ts";
import { startService } from "./Harness.ts";
import { marker } from "./Ledger.ts";
import { startModel } from "./Model.ts";

/** The number of asks of each kind. */
const amount = 100;

test(
  "asks succeed while three in ten calls to both models fail before the first piece, and no log repeats a question",
  { timeout: 120_000 },
  async () => {
    const models = [await startModel(0.3), await startModel(0.3)] as const;
    const service = await startService(1, "file", () => ({
      ...models[0].environment,
      PARLEY_LLM_FALLBACK_BASE_URL: models[1].url,
      PARLEY_LLM_FALLBACK_MODEL: "m",
    }));
    try {
      const [{ askUrl, log }] = service.servers as [(typeof service.servers)[0]];
      const [key] = service.site.keys;
      for (const [accept, success] of [
        ["application/json", '{"status":201,'],
        ["text/event-stream", "event: entry\n"],
      ] as const) {
        const queue = Array.from({ length: amount }, (_, n) => `${marker} ${accept} ${n}`);
        const failures: Array<string> = [];
        const client = async () => {
          for (let query = queue.pop(); query !== undefined; query = queue.pop()) {
            const { text } = await exchange({
              url: askUrl,
              key,
              body: { query },
              headers: { accept },
            });
            if (!text.includes(success)) failures.push(text);
          }
        };
        await Promise.all(Array.from({ length: 20 }, client));
        // All six calls for a question may fail by chance.
        expect(failures.length, failures.join("\n")).toBeLessThan(2);
      }
      for (const model of models) expect(model.calls.some(({ failed }) => failed)).toBe(true);
      expect(
        log()
          .split("\n")
          .filter((line) => line.includes(marker)),
      ).toEqual([]);
    } finally {
      await service.stop();
      for (const model of models) model.close();
    }
  },
);
