/**
 * `@parley/core/ports`: everything that adapters need. Exports the ports, the values and errors that their methods use,
 * and the core's functions for adapters and servers.
 */

// Ports
export * from "./Answerer.ts";
export * from "./ChatArchive.ts";
export * from "./ChatbotDirectory.ts";
export * from "./ChatbotRegistry.ts";
export * from "./ChatStore.ts";
export * from "./Moderator.ts";
export * from "./Store.ts";

// For adapters that share what they have among keys
export { makePlaces, type Client } from "../services/access/Places.ts";

// For stores: the small port, and what makes the five ports of it
export { runInOneStep, storeOf, type HotPorts } from "../store/storeOf.ts";
export * from "../store/Selection.ts";
export * from "../store/UsageSums.ts";
export { decideTake, isFree, type TakeDecision, type TakeState } from "../store/DecideTake.ts";
export type * from "../store/Rows.ts";
export * from "./TurnStore.ts";

// Values
export {
  boundsOf,
  hashKey,
  type KeyBounds,
  type KeyRecord,
  type RegisteredKey,
} from "../model/ApiKey.ts";
export type { Chat } from "../model/Chat.ts";
export { defaultSettings, type Chatbot, type ChatbotSettings } from "../model/Chatbot.ts";
export * from "../model/Entry.ts";
export { dayMillis, dayNumber, dayOf } from "../model/Day.ts";
export { metadataProblem } from "../model/Metadata.ts";
export { ChatbotId, ChatId } from "../model/Ids.ts";
export { idempotencyKeyLifetime, type IdempotencyKey } from "../model/IdempotencyKey.ts";
export {
  chatFields,
  entryFields,
  type ChatField,
  type ChatQuery,
  type EntryField,
  type EntryQuery,
  type ListQuery,
  type OrderBy,
  type Page,
} from "../model/ListQuery.ts";
export { compareText, fold } from "../model/Text.ts";
export { optionsOf, textOf } from "../model/Options.ts";
export * from "../archive/ArchiveOrder.ts";

// Errors
export * from "../model/Errors.ts";

// The context of the ask or list in progress, and the limits of all asks
export * from "../services/asking/AskLimits.ts";
export { CurrentKey } from "../services/access/Places.ts";

// Logs, metrics and spans
export {
  endSpan,
  inSpan,
  isTraced,
  LogAsks,
  logFailure,
  registerGauge,
  secondsHistogram,
} from "../services/Telemetry.ts";

// For servers
export { makeDrainingRuntime } from "../services/DrainingRuntime.ts";
