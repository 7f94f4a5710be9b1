/**
 * The conformance kit: what a store must do to be one, as named effects that any test runner can run.
 * A store passes when every check succeeds.
 */
import type { ChatArchive } from "../ChatArchive.ts";
import type { ChatbotDirectory } from "../ChatbotDirectory.ts";
import type { ChatbotRegistry } from "../ChatbotRegistry.ts";
import type { ChatStore } from "../ChatStore.ts";
import type { TurnStore } from "../TurnStore.ts";
import { chatArchiveChecks } from "./ChatArchiveChecks.ts";
import { chatbotRegistryChecks } from "./ChatbotRegistryChecks.ts";
import { chatStoreChecks } from "./ChatStoreChecks.ts";
import type { Check } from "./Check.ts";
import { modelCheck } from "./ModelChecks.ts";
import { raceChecks } from "./RaceChecks.ts";
import { registryModelCheck } from "./RegistryModelChecks.ts";
import type { StoreUnderTest } from "./StoreUnderTest.ts";
import { turnStoreChecks } from "./TurnStoreChecks.ts";

export * from "./ChatArchiveChecks.ts";
export * from "./ChatbotRegistryChecks.ts";
export * from "./ChatStoreChecks.ts";
export * from "./Check.ts";
export * from "./Model.ts";
export {
  followsModel,
  modelCheck,
  type ModelCheckOptions,
  type ModelServices,
} from "./ModelChecks.ts";
export { ModelCommand, modelTexts } from "./ModelCommand.ts";
export * from "./RaceChecks.ts";
export * from "./RegistryModelChecks.ts";
export * from "./StoreUnderTest.ts";
export * from "./TurnStoreChecks.ts";

/** What the checks of a store of all ports need. */
export type StoreServices =
  | ChatStore
  | TurnStore
  | ChatArchive
  | ChatbotDirectory
  | ChatbotRegistry
  | StoreUnderTest;

/** Everything that a store of all ports must do. */
export const storeChecks: ReadonlyArray<Check<StoreServices>> = [
  ...chatStoreChecks,
  ...turnStoreChecks,
  ...chatArchiveChecks,
  ...raceChecks,
  modelCheck(),
  // Before there are long texts in every list of chatbots.
  registryModelCheck(),
  ...chatbotRegistryChecks,
];
