/**
 * The endpoints' handlers. Each decodes a request, calls the core and encodes the response.
 */
import {
  ChatId,
  Asking,
  Chats,
  defaultEntryQuery,
  defaultChatQuery,
  type Chatbot,
  type Principal,
} from "@parley/core";
import { Effect, type Scope } from "effect";
import type { HttpServerRequest, HttpServerResponse } from "effect/http";
import type { EndpointName } from "../contract/Endpoints.ts";
import {
  encodeChat,
  encodeDetails,
  encodeEntry,
  encodePage,
  toJsonResponse,
} from "../contract/Wire.ts";
import type { ReportFailure, RequestError } from "./ErrorResponses.ts";
import { acceptsEvents, parseEventId, toEventStream } from "./EventStream.ts";
import type { RequestFacts } from "./RequestTelemetry.ts";
import {
  decodeAsk,
  decodeChatsQuery,
  decodeCreateChat,
  decodeHistoryQuery,
} from "./RequestValues.ts";

type Response = HttpServerResponse.HttpServerResponse;

/** Answers a request whose API key is valid and has the endpoint's scope. */
type Handler = (context: {
  readonly request: HttpServerRequest.HttpServerRequest;
  readonly facts: RequestFacts;
  /** Reports a failure that occurs after the stream has begun. */
  readonly reportFailure: ReportFailure;
  readonly principal: Principal;
  /** The chat id in the path; 0, which no chat has, if the path contains no valid id. */
  readonly chatId: ChatId;
}) => Effect.Effect<Response, RequestError, Scope.Scope>;

const toCreated = (data: object, replayed: boolean): Response =>
  toJsonResponse({ status: 201, data }, replayed ? { "idempotent-replayed": "true" } : undefined);

/** Creates the handlers of the declared endpoints. */
export const makeHandlers = Effect.fnUntraced(function* (defaultOnDisconnect: "finish" | "cancel") {
  const chats = yield* Chats;
  const asking = yield* Asking;
  /** Encoded responses, one for each chatbot that the core remembers. */
  const detailsResponses = new WeakMap<Chatbot, Response>();

  const details: Handler = ({ principal: { chatbot } }) => {
    const response =
      detailsResponses.get(chatbot) ??
      toJsonResponse({ status: 200, data: encodeDetails(chatbot) });
    detailsResponses.set(chatbot, response);
    return Effect.succeed(response);
  };

  const createChat: Handler = Effect.fnUntraced(function* ({ principal, request }) {
    const { body, "Idempotency-Key": idempotencyKey = null } = yield* decodeCreateChat(request);
    const { chat, replayed } = yield* chats.create(
      principal.chatbot,
      body,
      idempotencyKey,
      principal.visitor,
    );
    return toCreated(encodeChat(chat), replayed);
  });

  const listChats: Handler = Effect.fnUntraced(function* ({ principal, request }) {
    const query = { ...defaultChatQuery, ...(yield* decodeChatsQuery(request.url)) };
    const page = yield* chats.list(principal.chatbot, query, principal.visitor);
    return toJsonResponse(encodePage(page, encodeChat));
  });

  const history: Handler = Effect.fnUntraced(function* ({ chatId, facts, principal, request }) {
    const query = { ...defaultEntryQuery, ...(yield* decodeHistoryQuery(request.url)) };
    facts.chat = chatId;
    const page = yield* chats.history(principal.chatbot, chatId, query, principal.visitor);
    return toJsonResponse(encodePage(page, encodeEntry));
  });

  const ask: Handler = Effect.fnUntraced(function* ({ facts, principal, reportFailure, request }) {
    const { chatbot, apiKeyId, tokensPerDay = null, visitor = null } = principal;
    const { headers } = request;
    const {
      body: { chat_id: chatId = null, query: question },
      "Idempotency-Key": idempotencyKey = null,
      "On-Disconnect": onDisconnect = defaultOnDisconnect,
    } = yield* decodeAsk(request);
    if (chatId !== null) facts.chat = chatId;
    const asker = { apiKeyId, tokensPerDay, visitor };
    const newAsk = { chatId, question, idempotencyKey, ...asker, onDisconnect };
    if (acceptsEvents(headers["accept"])) {
      const progress = parseEventId(headers["last-event-id"]);
      return yield* toEventStream(
        (keepAlive) => asking.stream(chatbot, newAsk, progress, keepAlive),
        reportFailure,
      );
    }
    const { entry, replayed } = yield* asking.ask(chatbot, newAsk);
    return toCreated(encodeEntry(entry), replayed);
  });

  return { details, createChat, listChats, history, ask } satisfies Record<EndpointName, Handler>;
});
