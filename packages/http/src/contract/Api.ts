/**
 * Both interfaces as declarations: the API description, its page, the typed client and the table of
 * routes are all derived from this file.
 */
import { IdempotencyKey, NewChat, Question } from "@parley/core";
import { Schema } from "effect";
import {
  HttpApi,
  HttpApiEndpoint,
  HttpApiGroup,
  HttpApiMiddleware,
  HttpApiSchema,
  HttpApiSecurity,
  OpenApi,
} from "effect/http-api";
import {
  BadRequest,
  EndpointNotFound,
  NotFound,
  SystemError,
  Unauthenticated,
  Unauthorized,
  ValidationException,
} from "../serve/ErrorResponses.ts";
import { chatsQuery, historyQuery } from "../serve/ListQueries.ts";
import { ChatWire, DetailsWire, EntryWire, envelope, listEnvelope } from "./Wire.ts";

/** The `x-api-key` header (section 5). */
export class ApiKey extends HttpApiMiddleware.Service<ApiKey>()("@parley/http/ApiKey", {
  security: { apiKey: HttpApiSecurity.apiKey({ in: "header", key: "x-api-key" }) },
  error: [Unauthenticated, Unauthorized],
  requiredForClient: true,
}) {}

const failures = [BadRequest, EndpointNotFound, SystemError, ValidationException] as const;

const retryHeaders = {
  "idempotency-key": Schema.optionalKey(
    IdempotencyKey.annotate({
      description: "1 to 255 printable ASCII characters; a repeated request gets the first answer",
    }),
  ),
};

/** The body of section 4.5. */
export const AskWire = Schema.Struct({
  chat_id: Schema.optionalKey(Schema.NullOr(Schema.Int)),
  query: Question,
}).annotate({ identifier: "Ask" });

const GeneralInterface = HttpApiGroup.make("general")
  .add(
    HttpApiEndpoint.get("details", "/details", {
      success: envelope(200, DetailsWire),
      error: [BadRequest, EndpointNotFound, SystemError],
    }).annotateMerge(OpenApi.annotations({ summary: "Get chatbot details" })),
    HttpApiEndpoint.post("createChat", "/chats", {
      headers: retryHeaders,
      payload: NewChat.annotate({ identifier: "NewChat" }),
      success: envelope(201, ChatWire).pipe(HttpApiSchema.status(201)),
      error: failures,
    }).annotateMerge(OpenApi.annotations({ summary: "Create a chat" })),
    HttpApiEndpoint.get("listChats", "/chats", {
      query: chatsQuery,
      success: listEnvelope(ChatWire),
      error: failures,
    }).annotateMerge(OpenApi.annotations({ summary: "Get chats" })),
    HttpApiEndpoint.get("history", "/chats/:chat_id/history", {
      params: { chat_id: Schema.String },
      query: historyQuery,
      success: listEnvelope(EntryWire),
      error: [...failures, NotFound],
    }).annotateMerge(OpenApi.annotations({ summary: "Get a chat's history" })),
  )
  .middleware(ApiKey);

const AnswersInterface = HttpApiGroup.make("answers")
  .add(
    HttpApiEndpoint.post("ask", "/", {
      headers: retryHeaders,
      payload: AskWire,
      success: envelope(201, EntryWire).pipe(HttpApiSchema.status(201)),
      error: [...failures, NotFound],
    }).annotateMerge(OpenApi.annotations({ summary: "Ask the chatbot a question" })),
  )
  .middleware(ApiKey);

/** Where the two interfaces are mounted; each starts with `/` and does not end with it. */
export interface BasePaths {
  readonly general: `/${string}`;
  readonly answers: `/${string}`;
}

export const defaultBasePaths: BasePaths = { general: "/api", answers: "/ask" };

const annotations = OpenApi.annotations({
  title: "Parley",
  version: "1",
  description: "Create chats, ask a chatbot in them, and read their history.",
});

/** The declaration of both interfaces below the given base paths. */
export const makeApi = (paths: BasePaths) =>
  HttpApi.make("parley")
    .add(GeneralInterface.prefix(paths.general), AnswersInterface.prefix(paths.answers))
    .annotateMerge(annotations);

/** The same of what one listener serves; documents are made of it, to which its exact type is nothing. */
export const makeServedApi = (
  paths: BasePaths,
  serves: ReadonlyArray<keyof BasePaths>,
): ReturnType<typeof makeApi> => {
  if (serves.length > 1) return makeApi(paths);
  const api = HttpApi.make("parley").annotateMerge(annotations);
  const served =
    serves[0] === "general"
      ? api.add(GeneralInterface.prefix(paths.general))
      : api.add(AnswersInterface.prefix(paths.answers));
  return served as any;
};
