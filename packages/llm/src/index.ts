/**
 * Answerers, documents and moderators for Parley.
 */
export {
  effectLanguageModel,
  type EffectModelServices,
  layerEffectLanguageModel,
} from "./answerers/EffectModel.ts";
export {
  layerLanguageModel,
  type LanguageModelOptions,
} from "./answerers/LanguageModelAnswerer.ts";
export {
  documents,
  DocumentsNeedFiles,
  languageModel,
  type LanguageModelSettings,
} from "./answerers/Plain.ts";
export { layerOffline } from "./answerers/OfflineAnswerer.ts";
export {
  type Knowledge,
  type KnowledgeSource,
  KnowledgeUnreadable,
  makeKnowledge,
  readKnowledge,
} from "./documents/Knowledge.ts";
export { type Passage } from "./documents/Passage.ts";
export { type LanguageModel, tryModel } from "./models/ModelCall.ts";
export { EndpointInvalid, type EndpointSettings } from "./models/Endpoint.ts";
export { type FailureReason, type ModelFailure } from "./models/ModelFailure.ts";
export { openAiCompatible, type OpenAiCompatibleSettings } from "./models/OpenAiCompatible.ts";
export {
  layerModerationEndpoint,
  type ModerationEndpointSettings,
} from "./moderation/ModerationEndpoint.ts";
