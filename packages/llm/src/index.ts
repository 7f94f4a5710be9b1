/**
 * Answerers, moderators and knowledge for Parley. Libraries are loaded when a layer that needs them is built.
 */
export {
  type LanguageModelOptions,
  layerLanguageModel,
} from "./answerers/LanguageModelAnswerer.ts";
export type { LanguageModel } from "./models/ModelCall.ts";
export { tryModel } from "./models/Ping.ts";
export { ModelFailure, type FailureReason } from "./models/ModelFailure.ts";
export { openAiCompatible, type OpenAiCompatibleSettings } from "./models/OpenAiCompatible.ts";
export {
  type Knowledge,
  type KnowledgeSource,
  KnowledgeUnreadable,
  makeKnowledge,
  type Match,
  readKnowledge,
} from "./documents/Knowledge.ts";
export type { Passage } from "./documents/Passage.ts";
export { layerOffline } from "./answerers/OfflineAnswerer.ts";
export {
  layerScripted,
  type Script,
  ScriptedAnswerer,
  type ScriptedCall,
} from "./answerers/ScriptedAnswerer.ts";
export {
  layerModerationEndpoint,
  type ModerationEndpointSettings,
} from "./moderation/ModerationEndpoint.ts";
export { layerWordList, type WordListOptions } from "./moderation/WordList.ts";
