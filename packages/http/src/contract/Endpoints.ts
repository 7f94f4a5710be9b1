/**
 * Declares both interfaces. The server's routes, scopes and decoders and the API description are derived from these
 * declarations.
 */
import type { Scope } from "@parley/core";
import type { Schema } from "effect";
import {
  askBodyOf,
  askHeaders,
  ChangeChatBody,
  ChangeEntryBody,
  chatPath,
  chatsQuery,
  CreateChatBody,
  entryPath,
  historyQuery,
  includeOfChat,
  includeOfEntry,
  PostEntryBody,
  postHeaders,
  stopHeaders,
} from "./Values.ts";
import { ChatWire, DetailsWire, EntryWire, envelope, listEnvelope, StopWire } from "./Wire.ts";

/** The base paths of the two interfaces. Each starts with `/` and has no trailing `/`. */
export interface BasePaths {
  readonly general: `/${string}`;
  readonly answers: `/${string}`;
}

export const defaultBasePaths: BasePaths = { general: "/api", answers: "/ask" };

export interface Endpoint {
  readonly interface: keyof BasePaths;
  readonly method: "GET" | "POST" | "PATCH" | "DELETE";
  /** The path below the interface's base path. */
  readonly path: string;
  /** The scope that the API key needs. */
  readonly scope: Scope;
  readonly summary: string;
  readonly description: string;
  /** The prefix of the messages about invalid values. */
  readonly dto?: string;
  readonly parameters?: Readonly<
    Partial<Record<"header" | "path" | "query", Schema.Struct.Fields>>
  >;
  readonly body?: Schema.Top & { readonly fields: Schema.Struct.Fields };
  readonly success: Schema.Top;
}

export const endpoints = {
  details: {
    interface: "general",
    method: "GET",
    path: "/details",
    scope: "read",
    summary: "Get chatbot details",
    description: "Returns the chatbot that the API key belongs to.",
    success: envelope(200, DetailsWire),
  },
  createChat: {
    interface: "general",
    method: "POST",
    path: "/chats",
    scope: "write",
    summary: "Create a chat",
    description: "If the chatbot has a hello message, it becomes the first entry of the chat.",
    dto: "CREATE_CHAT_DTO",
    parameters: { header: postHeaders },
    body: CreateChatBody,
    success: envelope(201, ChatWire),
  },
  listChats: {
    interface: "general",
    method: "GET",
    path: "/chats",
    scope: "read",
    summary: "List chats",
    description: "Returns a page of the chatbot's chats, and how many match in total.",
    dto: "CHATS_DTO",
    parameters: { query: chatsQuery },
    success: listEnvelope(ChatWire),
  },
  history: {
    interface: "general",
    method: "GET",
    path: "/chats/:chat_id/history",
    scope: "read",
    summary: "Get a chat's history",
    description: "Returns a page of the chat's entries, and how many match in total.",
    dto: "HISTORY_DTO",
    parameters: { path: chatPath, query: historyQuery },
    success: listEnvelope(EntryWire),
  },
  changeChat: {
    interface: "general",
    method: "PATCH",
    path: "/chats/:chat_id",
    scope: "write",
    summary: "Rename a chat",
    description: "Returns the chat. `null` removes the name.",
    dto: "CHANGE_CHAT_DTO",
    parameters: { path: chatPath, query: includeOfChat },
    body: ChangeChatBody,
    success: envelope(200, ChatWire),
  },
  deleteChat: {
    interface: "general",
    method: "DELETE",
    path: "/chats/:chat_id",
    scope: "delete",
    summary: "Delete a chat",
    description: "Erases the chat with all its entries, for good, and returns the chat as it was.",
    parameters: { path: chatPath },
    success: envelope(200, ChatWire),
  },
  changeEntry: {
    interface: "general",
    method: "PATCH",
    path: "/chats/:chat_id/history/:entry_id",
    scope: "ask",
    summary: "Rate an entry",
    description:
      "Returns the entry with its feedback. `null` removes a value, and an absent value stays.",
    dto: "CHANGE_ENTRY_DTO",
    parameters: { path: entryPath, query: includeOfEntry },
    body: ChangeEntryBody,
    success: envelope(200, EntryWire),
  },
  postEntry: {
    interface: "general",
    method: "POST",
    path: "/chats/:chat_id/history",
    scope: "post",
    summary: "Post an entry",
    description:
      "Stores an entry without a question in its turn, such as a colleague's answer, and returns it. A visitor token " +
      "never has the scope.",
    dto: "POST_ENTRY_DTO",
    parameters: { header: postHeaders, path: chatPath, query: includeOfEntry },
    body: PostEntryBody,
    success: envelope(201, EntryWire),
  },
  ask: {
    interface: "answers",
    method: "POST",
    path: "",
    scope: "ask",
    summary: "Ask the chatbot a question",
    // `success` does not declare the stream: otherwise, generated clients would expect nothing but a stream.
    description:
      "Returns the stored entry.\n\nIf the request has the header `Accept: text/event-stream`, the response has " +
      "status 200 and is a stream of server-sent events, unless the ask fails before the stream begins. The events " +
      'are a `delta` with the data `{"text": "…"}` for each piece of the answer, then an `entry` with the body of ' +
      "the 201 response, or an `error` with the body of an error response. Comments keep the connection alive. " +
      "Generated clients cannot read the stream; use `fetch` or `@parley/client`.",
    dto: "ASK_DTO",
    parameters: { header: askHeaders, query: includeOfEntry },
    body: askBodyOf(200),
    success: envelope(201, EntryWire),
  },
  stopAsk: {
    interface: "answers",
    method: "DELETE",
    path: "",
    scope: "ask",
    summary: "Stop an ask",
    description:
      "Stops the ask with the `Idempotency-Key`, and returns `stopped: true`: its model's request ends, nothing is " +
      "stored, and each repetition of the ask fails with `ANSWER_STOPPED` for 24 hours. If the entry was stored first, " +
      "`stopped` is `false`, and the response has the entry.",
    dto: "STOP_DTO",
    parameters: { header: stopHeaders, query: includeOfEntry },
    success: envelope(200, StopWire),
  },
} as const satisfies Readonly<Record<string, Endpoint>>;

export type EndpointName = keyof typeof endpoints;

/** Declares both interfaces of a server whose questions may have this many characters. */
export const endpointsWith = (
  questionLength: number,
): Readonly<Record<EndpointName, Endpoint>> => ({
  ...endpoints,
  ask: { ...endpoints.ask, body: askBodyOf(questionLength) },
});
