/**
 * The declaration of both interfaces. The API description, its page and the routes derive from it.
 */
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
import { AskBody, ChatsQuery, CreateChatBody, HistoryQuery, postHeaders } from "./Values.ts";
import {
  BadRequest,
  ChatWire,
  DetailsWire,
  EndpointNotFound,
  EntryWire,
  envelope,
  listEnvelope,
  NotFound,
  SystemError,
  Unauthenticated,
  Unauthorized,
  ValidationException,
} from "./Wire.ts";

/** The `x-api-key` header (section 5). */
export class ApiKey extends HttpApiMiddleware.Service<ApiKey>()("@parley/http/ApiKey", {
  security: { apiKey: HttpApiSecurity.apiKey({ in: "header", key: "x-api-key" }) },
  error: [Unauthenticated, Unauthorized],
}) {}

const failures = [BadRequest, EndpointNotFound, SystemError, ValidationException] as const;

const GeneralInterface = HttpApiGroup.make("general")
  .add(
    HttpApiEndpoint.get("details", "/details", {
      success: envelope(200, DetailsWire),
      error: [BadRequest, EndpointNotFound, SystemError],
    }).annotateMerge(OpenApi.annotations({ summary: "Get chatbot details" })),
    HttpApiEndpoint.post("createChat", "/chats", {
      headers: postHeaders,
      payload: CreateChatBody,
      success: envelope(201, ChatWire).pipe(HttpApiSchema.status(201)),
      error: failures,
    }).annotateMerge(OpenApi.annotations({ summary: "Create a chat" })),
    HttpApiEndpoint.get("listChats", "/chats", {
      query: ChatsQuery,
      success: listEnvelope(ChatWire),
      error: failures,
    }).annotateMerge(OpenApi.annotations({ summary: "Get chats" })),
    HttpApiEndpoint.get("history", "/chats/:chat_id/history", {
      params: { chat_id: Schema.String },
      query: HistoryQuery,
      success: listEnvelope(EntryWire),
      error: [...failures, NotFound],
    }).annotateMerge(OpenApi.annotations({ summary: "Get a chat's history" })),
  )
  .middleware(ApiKey);

const AnswersInterface = HttpApiGroup.make("answers")
  .add(
    HttpApiEndpoint.post("ask", "/", {
      headers: postHeaders,
      payload: AskBody,
      success: envelope(201, EntryWire).pipe(HttpApiSchema.status(201)),
      error: [...failures, NotFound],
    }).annotateMerge(OpenApi.annotations({ summary: "Ask the chatbot a question" })),
  )
  .middleware(ApiKey);

/** The base paths of the two interfaces. Each starts with `/` and does not end with it. */
export interface BasePaths {
  readonly general: `/${string}`;
  readonly answers: `/${string}`;
}

export const defaultBasePaths: BasePaths = { general: "/api", answers: "/ask" };

const base = HttpApi.make("parley").annotateMerge(
  OpenApi.annotations({
    title: "Parley",
    version: "1",
    description: "Create chats, ask a chatbot in them, and read their history.",
  }),
);

/** The declaration of the interfaces that a listener serves, both by default. */
export const makeApi = (
  paths: BasePaths,
  serves: ReadonlyArray<keyof BasePaths> = ["general", "answers"],
) => {
  const groups = {
    general: GeneralInterface.prefix(paths.general),
    answers: AnswersInterface.prefix(paths.answers),
  };
  const [first, ...rest] = serves.map((name) => groups[name]);
  return base.add(first!, ...rest);
};
