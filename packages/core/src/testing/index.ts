/**
 * The conformance kit: the promises of the ports, as named effects that any test runner can run. A store conforms if
 * every check succeeds, and if the random commands of `@parley/core/testing/random` have the same results as on another
 * store. Random comparison covers what single calls promise; the checks here, what it seldom or never notices.
 */
import { archiveChecks } from "./ArchiveChecks.ts";
import { chatChecks } from "./ChatChecks.ts";
import type { Check } from "./Check.ts";
import { registryChecks } from "./RegistryChecks.ts";
import type { StoreServices } from "./StoreUnderTest.ts";

export { check, CheckFailed, failsWith, same, type Check } from "./Check.ts";
export { rowsChecks } from "./RowsChecks.ts";
export {
  registerChatbot,
  storeUnderTest,
  StoreUnderTest,
  type Instance,
  type StoreServices,
} from "./StoreUnderTest.ts";

/** All checks for a store that implements the five ports, except for the random ones. */
export const storeChecks: ReadonlyArray<Check<StoreServices>> = [
  ...chatChecks,
  ...archiveChecks,
  ...registryChecks,
];
