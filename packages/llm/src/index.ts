/**
 * Answerers, moderators and knowledge for Parley. Libraries are loaded when a layer that needs them is built.
 */
export { type LanguageModelOptions, layerLanguageModel } from "./LanguageModelAnswerer.ts";
export type { LanguageModel } from "./ModelCall.ts";
export { tryModel } from "./Ping.ts";
export { ModelFailure, type FailureReason } from "./Failure.ts";
export { openAiCompatible, type OpenAiCompatibleSettings } from "./OpenAiCompatible.ts";
export {
  type Knowledge,
  type KnowledgeSource,
  KnowledgeUnreadable,
  makeKnowledge,
  type Match,
  readKnowledge,
} from "./Knowledge.ts";
export type { Passage } from "./Passage.ts";
export { layerOffline } from "./OfflineAnswerer.ts";
export {
  layerScripted,
  type Script,
  ScriptedAnswerer,
  type ScriptedCall,
} from "./ScriptedAnswerer.ts";
export { layerModerationEndpoint, type ModerationEndpointSettings } from "./ModerationEndpoint.ts";
export { layerWordList, type WordListOptions } from "./WordList.ts";
