/**
 * Clients that create chats and ask, and do not give up on what has an Idempotency-Key.
 */
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { makeClient, type Answer, type Client } from "./Client.ts";
import { dataBytes, type Chat, type Ledger, type Request } from "./Ledger.ts";
import type { Random } from "./Random.ts";
import type { Server } from "./Server.ts";
import type { Site } from "./Site.ts";

const clients = 16;

/** How long the service may take to work again, in milliseconds; a turn that was lost lasts 10 s. */
const recovery = 60_000;

/** The server that is up, or a promise of the next one. */
export interface Service {
  server: Promise<Server>;
  /** How often a server was killed. */
  deaths: number;
}

export interface Progress {
  /** Requests that are done with. */
  done: number;
  /** Attempts that got no answer, or were told that storage is unavailable. */
  unanswered: number;
  unavailable: number;
  /** When the first 201 came to an attempt begun after `since`, in milliseconds since the epoch. */
  worksAgain: { readonly since: number; at: number | null } | null;
}

export const makeProgress = (): Progress => ({
  done: 0,
  unanswered: 0,
  unavailable: 0,
  worksAgain: null,
});

/** A request of any kind; `chats` are those that may be asked in. */
const choose = (random: Random, chats: ReadonlyArray<number>): Request => {
  const token = randomUUID().replaceAll("-", "");
  const common = {
    token,
    idempotencyKey: random() < 0.45 ? `key-${token}` : undefined,
    acknowledged: null,
    attempts: 0,
  };
  const kind = random();
  const userRef = random() < 0.5 ? `user-${Math.floor(random() * 20)}` : null;
  const recent = chats.length - 1 - Math.floor(random() * Math.min(40, chats.length));
  if (kind < 0.5) return { ...common, kind: "create", userRef };
  const chatId = kind < 0.75 && chats.length > 0 ? chats[recent]! : null;
  return { ...common, kind: "ask", chatId };
};

export const questionOf = (token: string) => `On which port does the server listen? ${token}`;

/** Sends the request, with its key if it has one; `null` when no complete answer came. */
export const send = (client: Client, server: Server, request: Request): Promise<Answer | null> =>
  request.kind === "create"
    ? client.post(
        `${server.baseUrl}/chats`,
        { name: request.token, userRef: request.userRef },
        request.idempotencyKey,
      )
    : client.post(
        server.askUrl,
        { chat_id: request.chatId, query: questionOf(request.token) },
        request.idempotencyKey,
      );

/** Makes so many requests, all noted in the ledger; resolves when each is answered or given up. */
export const runTraffic = async (
  site: Site,
  service: Service,
  ledger: Ledger,
  amount: number,
  random: Random,
  progress: Progress,
): Promise<void> => {
  let left = amount;

  const carryOut = async (client: ReturnType<typeof makeClient>, request: Request) => {
    const until = Date.now() + recovery;
    const violation = (what: string) =>
      ledger.violations.push(`${request.kind} ${request.token}: ${what}`);
    while (true) {
      const server = await service.server;
      const deaths = service.deaths;
      const began = Date.now();
      request.attempts++;
      const answer = await send(client, server, request);
      if (answer === null) {
        progress.unanswered++;
        if (service.deaths === deaths) {
          violation(`no answer after ${Date.now() - began} ms, although no server was killed`);
        }
      } else if (answer.status === 201) {
        request.acknowledged = dataBytes(answer.text);
        if (answer.replayed && request.attempts === 1) violation("replayed, but sent once");
        const { worksAgain } = progress;
        if (worksAgain !== null && began > worksAgain.since) worksAgain.at ??= Date.now();
        if (request.kind === "create") {
          ledger.chats.push((JSON.parse(request.acknowledged) as Chat).id);
        }
        return;
      } else if (answer.status === 500 && answer.text.includes('"STORAGE_UNAVAILABLE"')) {
        progress.unavailable++;
      } else {
        return void violation(`answered ${answer.text}`);
      }
      if (request.idempotencyKey === undefined) {
        await sleep(50);
        return;
      }
      if (Date.now() > until) return void violation("not answered again in time");
      await sleep(50);
    }
  };

  await Promise.all(
    Array.from({ length: clients }, async () => {
      const client = makeClient(site.key);
      while (left-- > 0) {
        const request = choose(random, ledger.chats);
        ledger.requests.push(request);
        await carryOut(client, request);
        progress.done++;
      }
      client.close();
    }),
  );
};
