/**
 * What each endpoint does once the key is known to allow it: decode, ask the core, encode.
 */
import {
  Asking,
  ChatName,
  Chats,
  IdempotencyKey,
  Question,
  UserRef,
  type Chatbot,
  type Principal,
  type Scope,
} from "@parley/core";
import { Effect, Schema, Stream, type Cause, type Scope as Scopes } from "effect";
import type { HttpServerRequest, HttpServerResponse } from "effect/http";
import { readBody } from "./Posts.ts";
import { eventStream, progressOf, wantsEvents } from "./EventStream.ts";
import type { GeneralMessage } from "../contract/Codes.ts";
import type { CoreError, Failure } from "./CoreFailures.ts";
import { json } from "./ErrorResponses.ts";
import { readChatQuery, readEntryQuery } from "./ListQueries.ts";
import { field, Problems } from "./ValidationErrors.ts";
import { chatWire, detailsWire, entryWire, pageWire } from "../contract/Wire.ts";

/** One request whose key was accepted. */
export interface AcceptedRequest {
  readonly request: HttpServerRequest.HttpServerRequest;
  /** The request's id, for the log. */
  readonly id: string;
  readonly principal: Principal;
  /** The path's parameter, as received; empty where the path has none. */
  readonly parameter: string;
}

type Response = HttpServerResponse.HttpServerResponse;

export interface Handler {
  /** What the key must allow. */
  readonly scope: Scope;
  readonly handle: (
    accepted: AcceptedRequest,
  ) => Effect.Effect<Response, CoreError | Problems | GeneralMessage, Scopes.Scope>;
}

const name = field(Schema.NullOr(ChatName), "NOT_STRING");
const userRef = field(Schema.NullOr(UserRef), "NOT_STRING");
const chatId = field(Schema.NullOr(Schema.Number.check(Schema.isInt())), "NOT_INTEGER");
const question = field(Question, "NOT_STRING");
const idempotencyKey = field(Schema.NullOr(IdempotencyKey), "NOT_PRINTABLE");

/** The id in a path; 0, which no chat has, for what is none. */
const pathId = (text: string): number =>
  /^[0-9]+$/.test(text) && Number.isSafeInteger(Number(text)) ? Number(text) : 0;

/** Reads a POST's retry key and its body's fields; `read` adds what is wrong with them. */
const readPost = <A>(
  { request }: AcceptedRequest,
  problems: Problems,
  read: (body: Readonly<Record<string, unknown>>) => A,
): Effect.Effect<
  { readonly key: IdempotencyKey | null; readonly values: A },
  Problems | GeneralMessage
> =>
  Effect.flatMap(readBody(request), (body) => {
    const header = request.headers["idempotency-key"] ?? null;
    const key = idempotencyKey(problems, ["Idempotency-Key"], header) ?? null;
    if (typeof body !== "object" || body === null || Array.isArray(body)) {
      problems.add([], "NOT_OBJECT");
      return Effect.fail(problems);
    }
    const values = read(body as Readonly<Record<string, unknown>>);
    return problems.found.length > 0 ? Effect.fail(problems) : Effect.succeed({ key, values });
  });

const reused = (problems: Problems) => () => {
  problems.add(["Idempotency-Key"], "REUSED");
  return Effect.fail(problems);
};

const created = (data: object, replayed: boolean): Response =>
  json({ status: 201, data }, replayed ? replayedHeader : undefined);

const replayedHeader = { "idempotent-replayed": "true" };

/** The handlers by the identifiers of their endpoints in the declaration. */
export const makeHandlers = Effect.fnUntraced(function* (
  onDisconnect: "finish" | "cancel",
  failed: (cause: Cause.Cause<CoreError | Problems>, id: string) => Effect.Effect<Failure>,
) {
  const chats = yield* Chats;
  const asking = yield* Asking;
  /** Encoded once a chatbot, as long as the core knows that. */
  const details = new WeakMap<Chatbot, Effect.Effect<Response>>();

  return {
    details: {
      scope: "read",
      handle: ({ principal: { chatbot } }) => {
        let response = details.get(chatbot);
        if (response === undefined) {
          response = Effect.succeed(json({ status: 200, data: detailsWire(chatbot) }));
          details.set(chatbot, response);
        }
        return response;
      },
    },

    createChat: {
      scope: "write",
      handle: (accepted) => {
        const problems = new Problems("CREATE_CHAT_DTO");
        return readPost(accepted, problems, (body) => ({
          name: name(problems, ["name"], body["name"] ?? null) ?? null,
          userRef: userRef(problems, ["userRef"], body["userRef"] ?? null) ?? null,
        })).pipe(
          Effect.flatMap(({ key, values }) =>
            chats.create(accepted.principal.chatbot, values, key),
          ),
          Effect.map(({ chat, replayed }) => created(chatWire(chat), replayed)),
          Effect.catchTag("RetryKeyReused", reused(problems)),
        );
      },
    },

    listChats: {
      scope: "read",
      handle: ({ principal, request }) => {
        const problems = new Problems("CHATS_DTO");
        const query = readChatQuery(problems, request.url);
        if (problems.found.length > 0) return Effect.fail(problems);
        return Effect.map(chats.list(principal.chatbot, query), (page) =>
          json(pageWire(page, chatWire)),
        );
      },
    },

    history: {
      scope: "read",
      handle: ({ parameter, principal, request }) => {
        const problems = new Problems("HISTORY_DTO");
        const query = readEntryQuery(problems, request.url);
        if (problems.found.length > 0) return Effect.fail(problems);
        return Effect.map(chats.history(principal.chatbot, pathId(parameter), query), (page) =>
          json(pageWire(page, entryWire)),
        );
      },
    },

    ask: {
      scope: "ask",
      handle: (accepted) => {
        const problems = new Problems("ASK_DTO");
        return readPost(accepted, problems, ({ chat_id = null, query = null }) => {
          if (query === null) problems.add(["query"], "NOT_PRESENT");
          const wish = accepted.request.headers["on-disconnect"]?.toLowerCase() ?? onDisconnect;
          if (wish !== "cancel" && wish !== "finish") {
            problems.add(["On-Disconnect"], "NOT_CANCEL_OR_FINISH");
          }
          return {
            onHangUp: wish as "cancel" | "finish",
            chatId: chatId(problems, ["chat_id"], chat_id) ?? null,
            question: query === null ? undefined : question(problems, ["query"], query),
          };
        }).pipe(
          Effect.flatMap(({ key, values }) => {
            const { chatbot } = accepted.principal;
            const { headers } = accepted.request;
            const ask = { ...values, key, question: values.question! };
            if (wantsEvents(headers["accept"])) {
              const events = asking.stream(chatbot, ask, progressOf(headers["last-event-id"]));
              const reuse = Stream.fromEffect(Effect.suspend(reused(problems)));
              return eventStream(
                Stream.catchTag(events, "RetryKeyReused", () => reuse),
                (cause) => failed(cause, accepted.id),
              );
            }
            return Effect.map(asking.ask(chatbot, ask), ({ entry, replayed }) =>
              created(entryWire(entry), replayed),
            ).pipe(Effect.catchTag("RetryKeyReused", reused(problems)));
          }),
        );
      },
    },
  } satisfies Record<string, Handler>;
});
