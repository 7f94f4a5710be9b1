import { Context, Effect, Layer } from "effect";
import { expect, it } from "vitest";
import { makeDrainingRuntime } from "../src/DrainingRuntime.ts";

class Resource extends Context.Service<Resource, { isOpen: boolean }>()("Resource") {}

/** What is seen of a resource by what is run before, if that is so many turns after the building goes on. */
const disposedAfter = async (turns: number) => {
  let goOn!: () => void;
  const waited = new Promise<void>((resolve) => (goOn = resolve));
  const runtime = makeDrainingRuntime(
    Layer.effect(
      Resource,
      Effect.acquireRelease(
        Effect.as(
          Effect.promise(() => waited),
          { isOpen: true as boolean },
        ),
        (resource) => Effect.sync(() => (resource.isOpen = false)),
      ),
    ),
  );
  const seen = runtime.run(
    async (context) => {
      const resource = Context.get(context, Resource);
      const before = resource.isOpen;
      await new Promise((resolve) => setTimeout(resolve, 5));
      return `${before}, ${resource.isOpen}`;
    },
    async () => "refused",
  );
  await new Promise((resolve) => setTimeout(resolve, 1));
  goOn();
  for (let turn = 0; turn < turns; turn++) await Promise.resolve();
  await runtime.dispose();
  return seen;
};

it("what runs has its services to its end, whenever they are disposed of", async () => {
  const outcomes = await Promise.all(
    Array.from({ length: 20 }, (_, turns) => disposedAfter(turns)),
  );
  expect(new Set(outcomes)).toEqual(new Set(["refused", "true, true"]));
});
