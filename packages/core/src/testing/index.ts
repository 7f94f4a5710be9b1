/**
 * The conformance kit: the promises of the ports, as named effects that any test runner can run. A store conforms if
 * every check succeeds.
 */
import { archiveChecks } from "./ArchiveChecks.ts";
import { chatStoreChecks } from "./ChatStoreChecks.ts";
import type { Check } from "./Check.ts";
import { idempotencyChecks } from "./IdempotencyChecks.ts";
import { registryChecks } from "./RegistryChecks.ts";
import type { StoreServices } from "./StoreUnderTest.ts";
import { turnStoreChecks } from "./TurnStoreChecks.ts";
import { visitorChecks } from "./VisitorChecks.ts";

export { archiveChecks } from "./ArchiveChecks.ts";
export { chatStoreChecks } from "./ChatStoreChecks.ts";
export { check, CheckFailed, failsWith, same, type Check } from "./Check.ts";
export { chatPage } from "./Fixtures.ts";
export { idempotencyChecks } from "./IdempotencyChecks.ts";
export { registryChecks } from "./RegistryChecks.ts";
export {
  registerChatbot,
  storeUnderTest,
  StoreUnderTest,
  type StoreServices,
} from "./StoreUnderTest.ts";
export { turnStoreChecks } from "./TurnStoreChecks.ts";
export { visitorChecks } from "./VisitorChecks.ts";

/** All checks for a store that implements the five ports. */
export const storeChecks: ReadonlyArray<Check<StoreServices>> = [
  ...chatStoreChecks,
  ...turnStoreChecks,
  ...idempotencyChecks,
  ...visitorChecks,
  ...archiveChecks,
  ...registryChecks,
];
