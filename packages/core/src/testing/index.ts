/**
 * The conformance kit: what a store must do to be one, as named effects that any test runner can run.
 * A store passes when every check succeeds.
 */
import { chatArchiveChecks } from "./ChatArchiveChecks.ts";
import { chatbotRegistryChecks } from "./ChatbotRegistryChecks.ts";
import { chatStoreChecks } from "./ChatStoreChecks.ts";
import { modelCheck } from "./ModelChecks.ts";
import { turnStoreChecks } from "./TurnStoreChecks.ts";

export * from "./ChatArchiveChecks.ts";
export * from "./ChatbotRegistryChecks.ts";
export * from "./ChatStoreChecks.ts";
export * from "./Check.ts";
export * from "./Model.ts";
export * from "./ModelChecks.ts";
export * from "./StoreUnderTest.ts";
export * from "./TurnStoreChecks.ts";

/** Everything that a store of all ports must do. */
export const storeChecks = [
  ...chatStoreChecks,
  ...turnStoreChecks,
  ...chatArchiveChecks,
  ...chatbotRegistryChecks,
  modelCheck(),
];
