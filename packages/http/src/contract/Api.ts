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
import {
  AskBody,
  askHeaders,
  ChatsQuery,
  CreateChatBody,
  HistoryQuery,
  postHeaders,
} from "./Values.ts";
import {
  AnswerEvents,
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
  security: {
    apiKey: HttpApiSecurity.apiKey({ in: "header", key: "x-api-key" }).pipe(
      HttpApiSecurity.annotateMerge(
        OpenApi.annotations({ description: "A key of the chatbot, with the scopes it needs" }),
      ),
    ),
  },
  error: [Unauthenticated, Unauthorized],
}) {}

const failures = [BadRequest, EndpointNotFound, SystemError, ValidationException] as const;

const requestId = {
  "x-request-id": Schema.optionalKey(
    Schema.String.annotate({
      description:
        "The request's id in the server's log, 1 to 128 letters, digits, `.`, `_` or `-`; by default the server makes one",
    }),
  ),
};
const lastEventId = {
  "Last-Event-ID": Schema.optionalKey(
    Schema.String.annotate({
      description:
        "The id of the last event that the client received of a stream that broke off. With the `Idempotency-Key` of the " +
        "broken request, the stream goes on there.",
    }),
  ),
};
const chatId = Schema.Int.check(
  Schema.isBetween({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
).annotate({ description: "The chat", examples: [1] });

const described = (summary: string, description: string) =>
  OpenApi.annotations({ summary, description });

const GeneralInterface = HttpApiGroup.make("general")
  .add(
    HttpApiEndpoint.get("details", "/details", {
      headers: requestId,
      success: envelope(200, DetailsWire),
      error: [BadRequest, EndpointNotFound, SystemError],
    }).annotateMerge(
      described("Get chatbot details", "The chatbot of the API key. Needs the scope `read`."),
    ),
    HttpApiEndpoint.post("createChat", "/chats", {
      headers: { ...postHeaders, ...requestId },
      payload: CreateChatBody,
      success: envelope(201, ChatWire).pipe(HttpApiSchema.status(201)),
      error: failures,
    }).annotateMerge(
      described(
        "Create a chat",
        "The chat begins with the chatbot's hello message, if it has one. Needs the scope `write`.",
      ),
    ),
    HttpApiEndpoint.get("listChats", "/chats", {
      headers: requestId,
      query: ChatsQuery,
      success: listEnvelope(ChatWire),
      error: failures,
    }).annotateMerge(
      described(
        "Get chats",
        "A page of the chatbot's chats and their total. Needs the scope `read`.",
      ),
    ),
    HttpApiEndpoint.get("history", "/chats/:chat_id/history", {
      headers: requestId,
      params: { chat_id: chatId },
      query: HistoryQuery,
      success: listEnvelope(EntryWire),
      error: [...failures, NotFound],
    }).annotateMerge(
      described(
        "Get a chat's history",
        "A page of the chat's entries and their total. Needs the scope `read`.",
      ),
    ),
  )
  .annotateMerge(OpenApi.annotations({ description: "Chatbot details, chats and their history" }))
  .middleware(ApiKey);

const AnswersInterface = HttpApiGroup.make("answers")
  .add(
    HttpApiEndpoint.post("ask", "/", {
      headers: { ...askHeaders, ...lastEventId, ...requestId },
      payload: AskBody,
      success: [envelope(201, EntryWire).pipe(HttpApiSchema.status(201)), AnswerEvents],
      error: [...failures, NotFound],
    }).annotateMerge(
      described(
        "Ask the chatbot a question",
        "Responds with the stored entry, or, to `Accept: text/event-stream`, with status 200 and the answer as it is " +
          "written. Needs the scope `ask`.",
      ),
    ),
  )
  .annotateMerge(OpenApi.annotations({ description: "Questions and answers" }))
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
    license: { name: "MIT", identifier: "MIT" },
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
