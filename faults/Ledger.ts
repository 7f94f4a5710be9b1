/**
 * Records requests and acknowledgements, and checks that the promises hold for them.
 */
import type { Chat, Entry } from "../apps/server/test/contract/client.ts";
import type { Answer } from "./Client.ts";
import { helloMessage } from "./Harness.ts";
import type { Call } from "./Model.ts";

export type { Chat, Entry };

/** Part of every string that a client sends. No log may contain it. */
export const marker = "Mxq7Zt";

/** The content of a request, however often it is sent. */
export interface Content {
  /** Which of the two chatbots. */
  readonly tenant: 0 | 1;
  readonly kind: "create" | "ask";
  /** Part of the chat's name or the entry's question, and of nothing else. */
  readonly token: string;
  /** `null` if the request creates a chat. */
  readonly chatId: number | null;
  readonly userRef: string | null;
  readonly idempotencyKey: string | null;
}

export interface Request extends Content {
  /** How often the request was sent. */
  attempts: number;
  /** How many of its acknowledgements were certainly not replays. */
  fresh: number;
  /** The bytes of `data` in the first 201, and when it arrived, by `performance.now()`. */
  acknowledged: { readonly bytes: string; readonly at: number } | null;
  /** Whether a fault was active while the request was sent. */
  metFault: boolean;
  /** When the client hung up on the request, by `performance.now()`. */
  disconnectedAt: number | null;
}

/** Everything that is stored for one chatbot. */
export interface StoredRows {
  /** In ascending order of id. */
  readonly chats: ReadonlyArray<Chat>;
  /** By chat id, in ascending order of id. */
  readonly entries: ReadonlyMap<number, ReadonlyArray<Entry>>;
}

export const questionOf = ({ token }: Content) => `What about ${token}?`;

/** The bytes of `data` in the body of a 201. */
export const dataOf = (text: string): string =>
  /^\{"status":201,"data":(\{.*\})\}$/s.exec(text)?.[1] ?? `no 201: ${text}`;

export class Ledger {
  readonly requests: Array<Request> = [];
  readonly violations: Array<string> = [];
  /** A new object at the start of each fault and after each recovery; `calm` is true if no fault is active. */
  weather = { calm: true };
  #tokens = 0;

  begin(content: Omit<Content, "token">): Request {
    const token = `${marker}-${content.tenant}-${++this.#tokens}.`;
    const unsent = {
      attempts: 0,
      fresh: 0,
      acknowledged: null,
      metFault: false,
      disconnectedAt: null,
    };
    const request = { ...content, token, ...unsent };
    this.requests.push(request);
    return request;
  }

  violation(what: string, request?: object): void {
    this.violations.push(request === undefined ? what : `${what}: ${JSON.stringify(request)}`);
  }

  acknowledge(request: Request, bytes: string, replayed: boolean | null): void {
    const { acknowledged } = request;
    if (acknowledged !== null && acknowledged.bytes !== bytes) {
      this.violation(`acknowledged a second time as ${bytes}`, request);
    }
    request.acknowledged ??= { bytes, at: performance.now() };
    if (replayed === false) request.fresh++;
    if (request.fresh > 1) this.violation("acknowledged twice, and neither is a replay", request);
    if (replayed && request.attempts === 1)
      this.violation("a replay of a request that was sent once", request);
  }

  /**
   * Returns true if the client itself hung up, or if a fault was active that can cause this failure. Otherwise, records
   * a violation and returns false.
   */
  excuses(what: object, answer: Answer, weather: { readonly calm: boolean }): boolean {
    const { complete, disconnected, text } = answer;
    if (disconnected) return true;
    const isExcused = /"status":[45]\d\d/.test(text)
      ? /"message":"(STORAGE_UNAVAILABLE|SERVICE_OVERLOADED|ANSWER_UNAVAILABLE|REQUEST_TIMEOUT)"/.test(
          text,
        )
      : !complete;
    if (isExcused && !(weather.calm && weather === this.weather)) return true;
    this.violation(`failed (calm: ${weather.calm}) with ${JSON.stringify(answer)}`, what);
    return false;
  }

  /** Checks the promises against everything that is stored and all calls to the model. */
  check(
    tenant: 0 | 1,
    { chats, entries }: StoredRows,
    calls: ReadonlyMap<string, ReadonlyArray<Call>>,
  ) {
    const all = [...entries.values()].flat();
    const chatsOf = Map.groupBy(chats, ({ name }) => name);
    const entriesOf = Map.groupBy(all, ({ question }) => question);
    const explainedRows = new Set<Chat | Entry>();
    const chatOf = new Map(chats.map((chat) => [chat.id, chat]));
    for (const request of this.requests.filter((each) => each.tenant === tenant)) {
      const wrong = (what: string) => this.violation(what, request);
      const { acknowledged, chatId, kind, token, userRef } = request;
      const callsMade = calls.get(questionOf(request)) ?? [];
      const rows = kind === "create" ? chatsOf.get(token) : entriesOf.get(questionOf(request));
      const [row] = rows ?? [];
      // A request is stored at most once, and as it was acknowledged.
      if (rows !== undefined && rows.length > 1) wrong(`stored ${rows.length} times`);
      if (acknowledged !== null && JSON.stringify(row) !== acknowledged.bytes) {
        wrong(`acknowledged, but the store has ${JSON.stringify(row)}`);
      }
      // The model is not asked again after the answer has been acknowledged.
      if (acknowledged !== null && callsMade.some(({ at }) => at > acknowledged.at)) {
        wrong("the model is asked again after the answer was acknowledged");
      }
      if (!request.metFault && callsMade.length > 1)
        wrong(`the model is asked ${callsMade.length} times`);
      if (row === undefined) continue;
      explainedRows.add(row);
      if (kind === "create") {
        const [hello] = entries.get(row.id) ?? [];
        if ((row as Chat).userRef !== userRef) wrong(`stored as ${JSON.stringify(row)}`);
        if (hello?.question !== "" || hello.answer !== helloMessage) wrong("has no hello entry");
        else explainedRows.add(hello);
        continue;
      }
      const entry = row as Entry;
      const before = entries
        .get(entry.chat_id)!
        .slice(0, entries.get(entry.chat_id)!.indexOf(entry));
      const call = callsMade.find(({ answer }) => answer === entry.answer);
      if (chatId === null) explainedRows.add(chatOf.get(entry.chat_id)!);
      if (chatId === null ? before.length > 0 : entry.chat_id !== chatId)
        wrong("is in another chat");
      if (entry.moderation !== "none" || entry.flagged) wrong(`stored as ${JSON.stringify(entry)}`);
      if (call === undefined) wrong(`no call gave the stored answer ${entry.answer}`);
      // The model saw all entries before this one, and no others.
      else if (JSON.stringify(call.earlier) !== JSON.stringify(messagesOf(before))) {
        wrong(`the model saw ${JSON.stringify(call.earlier)} instead of ${JSON.stringify(before)}`);
      }
    }
    // Every row comes from a request to this chatbot, because chatbots do not share rows.
    for (const row of [...chats, ...all]) {
      if (!explainedRows.has(row))
        this.violation(`no request of this chatbot made ${JSON.stringify(row)}`);
    }
  }
}

/** The messages that the model must receive for these entries. The hello message is part of the system message. */
const messagesOf = (entries: ReadonlyArray<Entry>) =>
  entries
    .filter(({ question }) => question !== "")
    .flatMap(({ answer, question }) => [
      { role: "user", text: question },
      { role: "assistant", text: answer },
    ]);
