/**
 * The handlers of the endpoints: each decodes a request, calls the core and encodes the response.
 */
import {
  Asking,
  Chats,
  newest,
  newestChats,
  type Chatbot,
  type Principal,
  type Scope,
} from "@parley/core";
import { Effect, Stream, type Cause, type Scope as Scopes } from "effect";
import type { HttpServerRequest, HttpServerResponse } from "effect/http";
import {
  encodeChat,
  encodeDetails,
  encodeEntry,
  encodePage,
  toJsonResponse,
} from "../contract/Wire.ts";
import type { ErrorResponse, RequestError } from "./ErrorResponses.ts";
import { acceptsEvents, parseEventId, toEventStream } from "./EventStream.ts";
import type { RequestFacts } from "./RequestLog.ts";
import {
  decodeAsk,
  decodeChatsQuery,
  decodeCreateChat,
  decodeHistoryQuery,
} from "./RequestValues.ts";
import { ValidationErrors } from "./ValidationErrors.ts";

type Response = HttpServerResponse.HttpServerResponse;

interface Handler {
  /** The scope that the API key needs. */
  readonly scope: Scope;
  /** Answers a request whose API key is valid and has the scope. */
  readonly handle: (accepted: {
    readonly request: HttpServerRequest.HttpServerRequest;
    readonly facts: RequestFacts;
    readonly principal: Principal;
    /** The path's parameter, as received; empty where the path has none. */
    readonly parameter: string;
  }) => Effect.Effect<Response, RequestError, Scopes.Scope>;
}

const toReuseError = (dto: string) => new ValidationErrors(dto, [[["Idempotency-Key"], "REUSED"]]);

const toCreated = (data: object, replayed: boolean): Response =>
  toJsonResponse({ status: 201, data }, replayed ? { "idempotent-replayed": "true" } : undefined);

/** The id in a path; 0, which no chat has, for any other text. */
const toChatId = (text: string): number =>
  /^[0-9]+$/.test(text) && Number.isSafeInteger(Number(text)) ? Number(text) : 0;

/** The handlers by the identifiers of their endpoints in the declaration. `reportFailure` ends a stream that began. */
export const makeHandlers = Effect.fnUntraced(function* (
  onDisconnect: "finish" | "cancel",
  reportFailure: (
    cause: Cause.Cause<RequestError>,
    facts: RequestFacts,
  ) => Effect.Effect<ErrorResponse>,
) {
  const chats = yield* Chats;
  const asking = yield* Asking;
  /** Encoded once for each chatbot that the core remembers. */
  const details = new WeakMap<Chatbot, Response>();

  const handlers: Readonly<Record<string, Handler>> = {
    details: {
      scope: "read",
      handle: ({ principal: { chatbot } }) => {
        const known = details.get(chatbot);
        const response = known ?? toJsonResponse({ status: 200, data: encodeDetails(chatbot) });
        details.set(chatbot, response);
        return Effect.succeed(response);
      },
    },

    createChat: {
      scope: "write",
      handle: Effect.fnUntraced(function* ({ principal, request }) {
        const { body, "Idempotency-Key": key = null } = yield* decodeCreateChat(request);
        const { chat, replayed } = yield* Effect.catchTag(
          chats.create(principal.chatbot, body, key),
          "IdempotencyKeyReused",
          () => Effect.fail(toReuseError("CREATE_CHAT_DTO")),
        );
        return toCreated(encodeChat(chat), replayed);
      }),
    },

    listChats: {
      scope: "read",
      handle: Effect.fnUntraced(function* ({ principal, request }) {
        const query = { ...newestChats, ...(yield* decodeChatsQuery(request.url)) };
        return toJsonResponse(encodePage(yield* chats.list(principal.chatbot, query), encodeChat));
      }),
    },

    history: {
      scope: "read",
      handle: Effect.fnUntraced(function* ({ facts, parameter, principal, request }) {
        const query = { ...newest, ...(yield* decodeHistoryQuery(request.url)) };
        facts.chat = toChatId(parameter);
        const page = yield* chats.history(principal.chatbot, facts.chat, query);
        return toJsonResponse(encodePage(page, encodeEntry));
      }),
    },

    ask: {
      scope: "ask",
      handle: Effect.fnUntraced(function* ({ facts, principal, request }) {
        const { chatbot, keyId } = principal;
        const { headers } = request;
        const {
          body: { chat_id: chatId = null, query: question },
          "Idempotency-Key": key = null,
          "On-Disconnect": onHangUp,
        } = yield* decodeAsk(request, onDisconnect);
        if (chatId !== null) facts.chat = chatId;
        const ask = { chatId, question, key, keyId, ...(onHangUp && { onHangUp }) };
        if (acceptsEvents(headers["accept"])) {
          const events = Stream.catchTag(
            asking.stream(chatbot, ask, parseEventId(headers["last-event-id"])),
            "IdempotencyKeyReused",
            () => Stream.fail(toReuseError("ASK_DTO")),
          );
          return yield* toEventStream(events, (cause) => reportFailure(cause, facts));
        }
        const { entry, replayed } = yield* Effect.catchTag(
          asking.ask(chatbot, ask),
          "IdempotencyKeyReused",
          () => Effect.fail(toReuseError("ASK_DTO")),
        );
        return toCreated(encodeEntry(entry), replayed);
      }),
    },
  };
  return handlers;
});
