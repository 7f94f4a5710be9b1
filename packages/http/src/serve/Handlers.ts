/**
 * The endpoints' handlers. Each decodes a request, calls the core and encodes the response.
 */
import {
  ChatId,
  Asking,
  AskLimits,
  Chats,
  defaultEntryQuery,
  defaultChatQuery,
  type Metadata,
  type Principal,
} from "@parley/core";
import { ChatNotFound } from "@parley/core/ports";
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
import { rowsOf } from "./ReadTurns.ts";
import type { RequestFacts } from "./RequestTelemetry.ts";
import {
  decodeChatsQuery,
  decodeHistoryQuery,
  decodeStop,
  makeBodyDecoders,
} from "./RequestValues.ts";

type Response = HttpServerResponse.HttpServerResponse;

/** Answers a request whose API key is valid and has the endpoint's scope. */
type Handler = (context: {
  readonly request: HttpServerRequest.HttpServerRequest;
  readonly facts: RequestFacts;
  /** Reports a failure that occurs after the stream has begun. */
  readonly reportFailure: ReportFailure;
  /** Runs a read when it is the key's turn. `rows` is what it counts as, among those that run at once. */
  readonly inTurn: (
    rows: number,
    read: Effect.Effect<Response, RequestError>,
  ) => Effect.Effect<Response, RequestError>;
  readonly principal: Principal;
  /** The chat id in the path; 0, which no chat has, if the path contains no valid id. */
  readonly chatId: ChatId;
  /** The entry id in the path; 0, which no entry has, if the path contains no valid id. */
  readonly entryId: number;
}) => Effect.Effect<Response, RequestError, Scope.Scope>;

const toCreated = (data: object, replayed: boolean): Response =>
  toJsonResponse({ status: 201, data }, replayed ? { "idempotent-replayed": "true" } : undefined);

const toOk = (data: object): Response => toJsonResponse({ status: 200, data });

/**
 * Creates the handlers of the declared endpoints.
 *
 * @param contextOf returns the `context` of a request's ask
 */
export const makeHandlers = Effect.fnUntraced(function* (
  defaultOnDisconnect: "finish" | "cancel",
  contextOf: (request: HttpServerRequest.HttpServerRequest) => unknown,
) {
  const decoders = makeBodyDecoders((yield* AskLimits).questionLength);
  const chats = yield* Chats;
  const asking = yield* Asking;

  const handlers: Record<EndpointName, Handler> = {
    details: ({ principal: { chatbot } }) => Effect.sync(() => toOk(encodeDetails(chatbot))),

    createChat: Effect.fnUntraced(function* ({ principal, request }) {
      const { body, "Idempotency-Key": idempotencyKey = null } =
        yield* decoders.createChat(request);
      const { chat, replayed } = yield* chats.create(
        principal.chatbot,
        body,
        idempotencyKey,
        principal.visitor,
      );
      return toCreated(encodeChat(chat), replayed);
    }),

    listChats: Effect.fnUntraced(function* ({ inTurn, principal, request }) {
      const query = { ...defaultChatQuery, ...(yield* decodeChatsQuery(request.url)) };
      const list = chats.list(principal.chatbot, query, principal.visitor);
      return yield* inTurn(
        rowsOf(query),
        Effect.map(list, (page) =>
          toJsonResponse(encodePage(page, (chat) => encodeChat(chat, query.include))),
        ),
      );
    }),

    history: Effect.fnUntraced(function* ({ chatId, facts, inTurn, principal, request }) {
      const query = { ...defaultEntryQuery, ...(yield* decodeHistoryQuery(request.url)) };
      facts.chat = chatId;
      const history = chats.history(principal.chatbot, chatId, query, principal.visitor);
      return yield* inTurn(
        rowsOf(query),
        Effect.map(history, (page) =>
          toJsonResponse(encodePage(page, (entry) => encodeEntry(entry, query.include))),
        ),
      );
    }),

    changeChat: Effect.fnUntraced(function* ({ chatId, facts, principal, request }) {
      const { chatbot, visitor } = principal;
      const { body, include = [] } = yield* decoders.changeChat(request);
      facts.chat = chatId;
      if (body.name !== undefined) yield* chats.rename(chatbot, chatId, body.name, visitor);
      const query = { ...defaultChatQuery, id: chatId, include };
      const [chat] = (yield* chats.list(chatbot, query, visitor)).items;
      return chat === undefined
        ? yield* new ChatNotFound({ chatId })
        : toOk(encodeChat(chat, include));
    }),

    deleteChat: Effect.fnUntraced(function* ({ chatId, facts, principal }) {
      const { apiKeyId, chatbot, visitor } = principal;
      facts.chat = chatId;
      return toOk(encodeChat(yield* chats.delete(chatbot, chatId, apiKeyId, visitor)));
    }),

    changeEntry: Effect.fnUntraced(function* (exchange) {
      const { chatId, entryId, facts, principal, request } = exchange;
      const { body, include = [] } = yield* decoders.changeEntry(request);
      facts.chat = chatId;
      const { chatbot, visitor } = principal;
      const entry = yield* chats.rate(chatbot, chatId, entryId, body, visitor);
      return toOk(encodeEntry(entry, [...include, "feedback"]));
    }),

    postEntry: Effect.fnUntraced(function* ({ chatId, facts, principal, request }) {
      const { apiKeyId, chatbot } = principal;
      const { body, include = [], ...headers } = yield* decoders.postEntry(request);
      facts.chat = chatId;
      const { entry, replayed } = yield* asking.post(chatbot, {
        chatId,
        text: body.text,
        metadata: (body.metadata ?? null) as Metadata | null,
        idempotencyKey: headers["Idempotency-Key"] ?? null,
        apiKeyId,
        requestId: facts.requestId,
      });
      return toCreated(encodeEntry(entry, include), replayed);
    }),

    ask: Effect.fnUntraced(function* ({ facts, principal, reportFailure, request }) {
      const { chatbot, apiKeyId, tokensPerDay = null, visitor = null } = principal;
      const { headers } = request;
      const {
        body: { chat_id: chatId = null, query: question },
        "Idempotency-Key": idempotencyKey = null,
        "On-Disconnect": onDisconnect = defaultOnDisconnect,
        include = [],
      } = yield* decoders.ask(request);
      if (chatId !== null) facts.chat = chatId;
      const asker = { apiKeyId, tokensPerDay, visitor, context: contextOf(request) };
      const { requestId } = facts;
      const newAsk = { chatId, question, idempotencyKey, ...asker, requestId, onDisconnect };
      if (acceptsEvents(headers["accept"])) {
        const progress = parseEventId(headers["last-event-id"]);
        return yield* toEventStream(
          (keepAlive) => asking.stream(chatbot, newAsk, progress, keepAlive),
          include,
          reportFailure,
        );
      }
      const { entry, replayed } = yield* asking.ask(chatbot, newAsk);
      return toCreated(encodeEntry(entry, include), replayed);
    }),

    stopAsk: Effect.fnUntraced(function* ({ principal, request }) {
      const { "Idempotency-Key": idempotencyKey, include = [] } = yield* decodeStop(request);
      const result = yield* asking.stop(principal.chatbot, idempotencyKey, principal.visitor);
      return toOk(
        result.stopped ? result : { stopped: false, entry: encodeEntry(result.entry, include) },
      );
    }),
  };
  return handlers;
});
