import { Context, Effect, Layer } from "effect";
import { expect, it } from "vitest";
import { makeDrainingRuntime } from "../../src/services/DrainingRuntime.ts";

class Resource extends Context.Service<Resource, { isOpen: boolean }>()("Resource") {}

/**
 * A runtime with a resource that is open until the runtime is disposed of. Building the resource waits for `building`.
 */
const runtimeAfter = (building: Promise<void>) =>
  makeDrainingRuntime(
    Layer.effect(
      Resource,
      Effect.acquireRelease(
        Effect.as(
          Effect.promise(() => building),
          { isOpen: true as boolean },
        ),
        (resource) => Effect.sync(() => (resource.isOpen = false)),
      ),
    ),
  );

const watched = async (context: Context.Context<Resource>, begin: () => void = () => {}) => {
  const resource = Context.get(context, Resource);
  const before = resource.isOpen;
  begin();
  await new Promise((resolve) => setTimeout(resolve, 5));
  return `${before}, ${resource.isOpen}`;
};
const refused = async () => "refused";

/** Disposes of the runtime so many turns of the event loop after its building continued; returns what `run` saw. */
const disposedAfter = async (turns: number) => {
  let goOn!: () => void;
  const runtime = runtimeAfter(new Promise<void>((resolve) => (goOn = resolve)));
  const seen = runtime.run((context) => watched(context), refused);
  await new Promise((resolve) => setTimeout(resolve, 1));
  goOn();
  for (let turn = 0; turn < turns; turn++) await Promise.resolve();
  await runtime.dispose();
  return seen;
};

it("a promise in progress keeps its services to its end, whenever the runtime is disposed of", async () => {
  const outcomes = await Promise.all(
    Array.from({ length: 20 }, (_, turns) => disposedAfter(turns)),
  );
  expect(new Set(outcomes)).toEqual(new Set(["refused", "true, true"]));
});

it("a promise that disposes of the runtime keeps its services to its end", async () => {
  const runtime = runtimeAfter(Promise.resolve());
  await runtime.run((context) => watched(context), refused);
  const seen = await runtime.run(
    (context) => watched(context, () => void runtime.dispose()),
    refused,
  );
  expect(seen).toBe("true, true");
  await runtime.dispose();
});
