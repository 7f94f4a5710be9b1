/**
 * How strong the conformance kit is: it must find the faults of stores that break one promise each.
 */
import { assert, describe, it } from "@effect/vitest";
import type { ChatbotRegistry } from "@parley/core";
import {
  chatbotRegistryChecks,
  modelCheck,
  registryModelCheck,
  type Check,
  type StoreServices,
} from "@parley/core/testing";
import { Cause, Clock, Effect, Exit } from "effect";
import { checks as allChecks, layerFaulty, layerFaultyChatbots } from "./FaultyStore.ts";
import { blindFaults } from "./faults/BlindFaults.ts";
import { draftFaults } from "./faults/DraftFaults.ts";
import { farFaults } from "./faults/FarFaults.ts";
import { faults, type Fault } from "./faults/Faults.ts";
import { hardFaults } from "./faults/HardFaults.ts";
import { largeFaults } from "./faults/LargeFaults.ts";
import { missedFaults } from "./faults/MissedFaults.ts";
import { missedRegistryFaults } from "./faults/MissedRegistryFaults.ts";
import { moreFaults } from "./faults/MoreFaults.ts";
import { promiseFaults } from "./faults/PromiseFaults.ts";
import { readingFaults } from "./faults/ReadingFaults.ts";
import {
  everything,
  registryFaults,
  roundTrip,
  type ChatbotsFault,
} from "./faults/RegistryFaults.ts";
import { sequenceFaults } from "./faults/SequenceFaults.ts";
import { technologyFaults } from "./faults/TechnologyFaults.ts";

/** How long each check took, so that the quick ones come first. */
const took = new Map<string, number>();
const tookOf = ({ name }: { readonly name: string }) => took.get(name) ?? 0;

/** The first check that fails, with its failure; `null` when all succeed. */
const failing = Effect.fnUntraced(function* <R>(checks: ReadonlyArray<Check<R>>) {
  for (const { name, run } of checks.toSorted((a, b) => tookOf(a) - tookOf(b))) {
    const began = performance.now();
    const exit = yield* Effect.exit(run);
    took.set(name, performance.now() - began);
    if (Exit.isFailure(exit)) return { name, failure: Cause.pretty(exit.cause) };
  }
  return null;
});

const found = (fault: Fault, checks: ReadonlyArray<Check<StoreServices>> = allChecks) =>
  Effect.provide(failing(checks), layerFaulty(fault));

/** The sequences are always the same, so that what is found once is found again. */
const registryChecks = [...chatbotRegistryChecks, registryModelCheck({ seed: 1, runs: 200 })];

const beginnings = new WeakMap<object, Array<Date>>();

/** When the writes began that made the lines of an audit, for all instances. */
const begunOf = (registry: ChatbotRegistry["Service"]) => {
  const known = beginnings.get(registry) ?? [];
  beginnings.set(registry, known);
  return known;
};

const foundInRegistry = (fault: ChatbotsFault, checks = registryChecks) =>
  Effect.provide(failing(checks), layerFaultyChatbots(fault));

/** A sound registry: of two writes that meet, the one that came second may be noted first. */
const audited: ChatbotsFault = {
  name: "none",
  break: ({ registry }) => {
    const begun = begunOf(registry);
    const write =
      <A extends ReadonlyArray<unknown>, R, E>(one: (...args: A) => Effect.Effect<R, E>) =>
      (...args: A) =>
        Effect.gen(function* () {
          const now = performance.now();
          const began = new Date((yield* Clock.currentTimeMillis) + now);
          yield* roundTrip(Math.floor(now) % 4);
          const so = yield* one(...args);
          const lines = yield* Effect.orDie(registry.audit(everything));
          while (begun.length < lines.length) begun.push(began);
          return so;
        });
    return {
      registry: {
        create: write(registry.create),
        change: write(registry.change),
        renameWorkspace: write(registry.renameWorkspace),
        addKey: write(registry.addKey),
        changeKey: write(registry.changeKey),
        replaceKey: write(registry.replaceKey),
        revokeKey: write(registry.revokeKey),
        audit: (limit) =>
          Effect.map(registry.audit(everything), (lines) =>
            lines
              .map((line, n) => ({ ...line, time: begun[lines.length - 1 - n]! }))
              .slice(0, limit),
          ),
      },
    };
  },
};

/** Some of those that random sequences find alone, and shrink. */
const foundBySequences = [
  "the total of all chats still counts those that were erased",
  "an erasure of a user's chats takes those without a user, too",
  "chats without an entry are never idle",
  "rows that tie come in ascending order of id in a descending list too",
  "the key of another request makes another chat",
];

describe("the conformance kit", () => {
  it.effect("finds nothing wrong with a sound store", () =>
    Effect.gen(function* () {
      assert.isNull(yield* found({ name: "none", break: (stores) => stores }));
    }),
  );

  it.effect("finds nothing wrong with a sound registry", () =>
    Effect.map(foundInRegistry({ name: "none", break: () => ({}) }), (broken) =>
      assert.isNull(broken),
    ),
  );

  it.effect("finds nothing wrong with a registry whose audit tells when the writes began", () =>
    Effect.map(foundInRegistry(audited, [registryModelCheck({ seed: 1 })]), (broken) =>
      assert.isNull(broken),
    ),
  );

  const all = [
    ...faults,
    ...moreFaults,
    ...blindFaults,
    ...promiseFaults,
    ...technologyFaults,
    ...draftFaults,
    ...readingFaults,
    ...missedFaults,
    ...hardFaults,
    ...farFaults,
  ];
  for (const fault of all) {
    it.effect(`finds: ${fault.name}`, () =>
      Effect.map(found(fault), (broken) => assert.isNotNull(broken)),
    );
  }
  for (const fault of [
    ...registryFaults,
    ...missedRegistryFaults,
    ...sequenceFaults,
    ...largeFaults,
  ]) {
    it.effect(`finds in a registry: ${fault.name}`, () =>
      Effect.map(foundInRegistry(fault), (broken) => assert.isNotNull(broken)),
    );
  }
  for (const name of foundBySequences) {
    it.effect(`finds by a short sequence of commands: ${name}`, () =>
      Effect.gen(function* () {
        const fault = all.find((fault) => fault.name === name)!;
        const broken = yield* found(fault, [modelCheck({ seed: 1, runs: 100 })]);
        const commands = broken?.failure.match(/_tag/g) ?? [];
        assert.isAtLeast(commands.length, 2, broken?.failure);
        assert.isAtMost(commands.length, 4, broken?.failure);
      }),
    );
  }
});
