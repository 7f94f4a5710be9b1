import { Context, Effect, Layer } from "effect";
import { expect, it } from "vitest";
import { makeDrainingRuntime } from "../../src/services/DrainingRuntime.ts";

class Resource extends Context.Service<Resource, { isOpen: boolean }>()("Resource") {}

/** A resource that is open from its building, which waits, until it is disposed of. */
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

/** What is seen by what is run before the services are disposed of, so many turns after their building goes on. */
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

it("what runs has its services to its end, whenever they are disposed of", async () => {
  const outcomes = await Promise.all(
    Array.from({ length: 20 }, (_, turns) => disposedAfter(turns)),
  );
  expect(new Set(outcomes)).toEqual(new Set(["refused", "true, true"]));
});

it("what runs may dispose of its services, and has them to its end", async () => {
  const runtime = runtimeAfter(Promise.resolve());
  await runtime.run((context) => watched(context), refused);
  const seen = await runtime.run(
    (context) => watched(context, () => void runtime.dispose()),
    refused,
  );
  expect(seen).toBe("true, true");
  await runtime.dispose();
});
