/**
 * The strength of the conformance kit, as in `faults.test.ts`: all other faults.
 */
import { assert, describe, it } from "@effect/vitest";
import type { ChatbotRegistry } from "@parley/core";
import { registryModelCheck } from "@parley/core/testing";
import { Clock, Effect } from "effect";
import { found, foundInRegistry } from "./Finding.ts";
import { blindFaults } from "./faults/BlindFaults.ts";
import { draftFaults } from "./faults/DraftFaults.ts";
import { farFaults } from "./faults/FarFaults.ts";
import { hardFaults } from "./faults/HardFaults.ts";
import { largeFaults } from "./faults/LargeFaults.ts";
import { missedFaults } from "./faults/MissedFaults.ts";
import { missedRegistryFaults } from "./faults/MissedRegistryFaults.ts";
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

const beginnings = new WeakMap<object, Array<Date>>();

/** When the writes began that made the lines of an audit, for all instances. */
const begunOf = (registry: ChatbotRegistry["Service"]) => {
  const known = beginnings.get(registry) ?? [];
  beginnings.set(registry, known);
  return known;
};

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

describe("the conformance kit", () => {
  it.effect("finds nothing wrong with a registry whose audit tells when the writes began", () =>
    Effect.map(foundInRegistry(audited, [registryModelCheck({ seed: 1 })]), (broken) =>
      assert.isNull(broken),
    ),
  );

  const all = [
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
});
