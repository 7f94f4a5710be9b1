/**
 * Which check of the conformance kit finds a fault first.
 */
import {
  chatbotRegistryChecks,
  registryModelCheck,
  type Check,
  type StoreServices,
} from "@parley/core/testing";
import { Cause, Effect, Exit } from "effect";
import { checks as allChecks, layerFaulty, layerFaultyChatbots } from "./FaultyStore.ts";
import type { Fault } from "./faults/Faults.ts";
import type { ChatbotsFault } from "./faults/RegistryFaults.ts";

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

export const found = (fault: Fault, checks: ReadonlyArray<Check<StoreServices>> = allChecks) =>
  Effect.provide(failing(checks), layerFaulty(fault));

/** The sequences are always the same, so that what is found once is found again. */
const registryChecks = [...chatbotRegistryChecks, registryModelCheck({ seed: 1, runs: 200 })];

export const foundInRegistry = (fault: ChatbotsFault, checks = registryChecks) =>
  Effect.provide(failing(checks), layerFaultyChatbots(fault));
