/**
 * Random clients, which create, ask, stream, hang up, retry, resume and read.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { eventsOf, exchange, type Answer } from "./Client.ts";
import type { Server, Service } from "./Harness.ts";
import {
  dataOf,
  Ledger,
  marker,
  questionOf,
  type Chat,
  type Entry,
  type Request,
  type StoredRows,
} from "./Ledger.ts";

/** How long a request with a key is retried, in milliseconds. The turn of a server that was killed lasts 10 s. */
const patience = 90_000;

const chance = (share: number) => Math.random() < share;
const pick = <A>(from: ReadonlyArray<A>): A => from[Math.floor(Math.random() * from.length)]!;

type Data<A> = { readonly data: ReadonlyArray<A>; readonly meta: { readonly total: number } };

export class Traffic {
  readonly ledger = new Ledger();
  readonly #service: Service;
  /** Ids of acknowledged chats, by chatbot, oldest first. */
  readonly #chats: readonly [Array<number>, Array<number>] = [[], []];
  /** The prefix of the clients' idempotency keys. Later traffic on the same database uses a different prefix. */
  readonly #prefix = crypto.randomUUID();
  #keys = [0, 0];
  #isRunning = true;
  /** Requests in flight, by server. */
  readonly #open = new Map<Server, Set<Request>>();

  constructor(service: Service) {
    this.#service = service;
  }

  /** Runs this many clients for each chatbot until `stop` is called. */
  async run(clients: number): Promise<void> {
    const work = async (tenant: 0 | 1) => {
      while (this.#isRunning) {
        await this.#act(tenant);
        await sleep(100 * Math.random());
      }
    };
    await Promise.all(Array.from({ length: 2 * clients }, (_, n) => work((n % 2) as 0 | 1)));
  }

  stop(): void {
    this.#isRunning = false;
  }

  /** Waits until the server has created a chat and answered in it; returns how long that took, in milliseconds. */
  async works(server: Server): Promise<number> {
    const startedAt = performance.now();
    const common = { tenant: 0, userRef: null, idempotencyKey: null } as const;
    let chatId: number | null = null;
    for (const kind of ["create", "ask"] as const) {
      while (true) {
        const request = this.ledger.begin({ ...common, kind, chatId });
        await this.#send(request, server, false);
        if (performance.now() - startedAt > 60_000)
          throw new Error("The service does not work again.");
        if (request.acknowledged === null) await sleep(50);
        else {
          chatId = (JSON.parse(request.acknowledged.bytes) as Chat).id;
          break;
        }
      }
    }
    return Math.round(performance.now() - startedAt);
  }

  /** Asks in a chat, once and without a key. */
  async ask(tenant: 0 | 1, chatId: number, server: Server): Promise<void> {
    const content = { tenant, kind: "ask", chatId, userRef: null, idempotencyKey: null } as const;
    await this.#send(this.ledger.begin(content), server, false);
  }

  /** The asks for which a server is still receiving the model's answer. A repeated ask may wait for another server's. */
  answering(server: Server): ReadonlyArray<Request> {
    const open = new Set(this.#service.model.calls.filter((c) => c.isOpen).map((c) => c.question));
    return [...(this.#open.get(server) ?? [])].filter(
      (request) => request.attempts === 1 && open.has(questionOf(request)),
    );
  }

  /** Whether every ask has ended, including those whose clients hung up, so that nothing more will be stored. */
  isSettled(): boolean {
    const { calls } = this.#service.model;
    const questions = new Set(calls.map(({ question }) => question));
    // An ask that is waiting for the turn of a killed server has not called the model yet.
    const waits = (request: Request) =>
      request.kind === "ask" &&
      request.acknowledged === null &&
      request.disconnectedAt !== null &&
      performance.now() - request.disconnectedAt < 12_500 &&
      !questions.has(questionOf(request));
    return !calls.some(({ isOpen }) => isOpen) && !this.ledger.requests.some(waits);
  }

  async #act(tenant: 0 | 1): Promise<void> {
    if (chance(0.25)) return await this.#read(tenant);
    const kind = chance(0.2) ? "create" : "ask";
    const chats = this.#chats[tenant].slice(-4);
    const chatId = kind === "ask" && chats.length > 0 && chance(0.8) ? pick(chats) : null;
    const userRef =
      kind === "create" && chance(0.5) ? `${marker} ${Math.floor(Math.random() * 9)}` : null;
    // Both chatbots' clients use the same keys.
    const idempotencyKey = chance(0.6) ? `${this.#prefix}-${++this.#keys[tenant]!}` : null;
    if (chatId !== null && chance(0.1)) {
      const soon = async () => {
        await sleep(50 * Math.random());
        await this.ask(tenant, chatId, pick(this.#service.servers));
      };
      return void (await Promise.all([soon(), soon(), soon(), soon(), soon()]));
    }
    const request = this.ledger.begin({ tenant, kind, chatId, userRef, idempotencyKey });
    const streamed = kind === "ask" && chance(0.5);
    if (idempotencyKey === null) {
      await this.#send(request, pick(this.#service.servers), streamed);
    } else {
      const sends = chance(0.2) ? [streamed, chance(0.5) && kind === "ask"] : [streamed];
      await Promise.all(sends.map((stream) => this.#insist(request, stream)));
    }
  }

  /** Sends a request with a key until it is acknowledged. */
  async #insist(request: Request, streamed: boolean): Promise<void> {
    const end = Date.now() + patience;
    const progress = { turn: "", text: "" };
    while (!(await this.#send(request, pick(this.#service.servers), streamed, progress))) {
      if (Date.now() > end) return this.ledger.violation("not answered in time", request);
      await sleep(50);
    }
  }

  /** Sends a request once; returns false if it must be retried. `progress` is what its earlier streams delivered. */
  async #send(
    request: Request,
    server: Server,
    streamed: boolean,
    progress = { turn: "", text: "" },
  ) {
    const { chatId, idempotencyKey, kind, tenant, token, userRef } = request;
    const { ledger } = this;
    const weather = ledger.weather;
    const cutAfter = streamed && chance(0.4) ? 1 + Math.floor(4 * Math.random()) : undefined;
    const cancels = idempotencyKey === null && cutAfter !== undefined && chance(0.5);
    if (!this.#open.has(server)) this.#open.set(server, new Set());
    const open = this.#open.get(server)!;
    request.attempts++;
    open.add(request);
    const answer = await exchange({
      url: kind === "create" ? `${server.baseUrl}/chats` : server.askUrl,
      key: this.#service.site.keys[tenant],
      body:
        kind === "create"
          ? { name: token, userRef }
          : { chat_id: chatId, query: questionOf(request) },
      headers: {
        ...(idempotencyKey !== null && { "idempotency-key": idempotencyKey }),
        ...(streamed && { accept: "text/event-stream" }),
        ...(streamed &&
          progress.turn !== "" && {
            "last-event-id": `${progress.turn}.${[...progress.text].length}`,
          }),
        ...(cancels && { "on-disconnect": "cancel" }),
      },
      patience: chance(0.3) ? 3000 : undefined,
      cutAfter,
    });
    open.delete(request);
    if (answer.disconnected) request.disconnectedAt = performance.now();
    if (!weather.calm || weather !== ledger.weather) request.metFault = true;
    const body = answer.isStream
      ? this.#listen(request, answer, progress)
      : answer.complete
        ? answer.text
        : "";
    if (!body.startsWith('{"status":201,')) return !ledger.excuses(request, answer, weather);
    const isFirst = request.acknowledged === null;
    ledger.acknowledge(request, dataOf(body), answer.replayed);
    if (kind === "create" && isFirst)
      this.#chats[tenant].push((JSON.parse(dataOf(body)) as Chat).id);
    return true;
  }

  /** Adds the events in a stream to `progress`; returns the envelope that ended the stream, or an empty string. */
  #listen(request: Request, { text }: Answer, progress: { turn: string; text: string }): string {
    for (const { data, id, name } of eventsOf(text)) {
      if (name === "error") return data;
      const point = id.lastIndexOf(".");
      if (id.slice(0, point) !== progress.turn)
        Object.assign(progress, { turn: id.slice(0, point), text: "" });
      if (name === "delta") progress.text += (JSON.parse(data) as { readonly text: string }).text;
      const whole = name === "entry" ? (JSON.parse(dataOf(data)) as Entry).answer : progress.text;
      // A resumed stream sends no piece twice, and skips none.
      if (progress.text !== whole || Number(id.slice(point + 1)) !== [...progress.text].length) {
        this.ledger.violation(
          `received "${progress.text}" up to event ${id} of "${whole}"`,
          request,
        );
      }
      if (name === "entry") return data;
    }
    return "";
  }

  async #get<A>(tenant: 0 | 1, path: string, server = pick(this.#service.servers)) {
    const { ledger } = this;
    const weather = ledger.weather;
    const key = this.#service.site.keys[tenant];
    const answer = await exchange({ url: `${server.baseUrl}${path}`, key });
    if (answer.status === 200 && answer.complete) return JSON.parse(answer.text) as Data<A>;
    if (answer.status !== 404) ledger.excuses({ tenant, path }, answer, weather);
    return answer.status;
  }

  /**
   * Checks that acknowledged rows appear at once, and that a list that fits on a page has as many rows as its total.
   */
  async #read(tenant: 0 | 1): Promise<void> {
    const acknowledgedRequests = this.ledger.requests.filter(
      (each) => each.tenant === tenant && each.acknowledged !== null,
    );
    if (acknowledgedRequests.length === 0) return;
    const request = pick(acknowledgedRequests.slice(-100));
    const { bytes } = request.acknowledged!;
    const row = JSON.parse(bytes) as Chat & Entry;
    const [rowPath, listPath] =
      request.kind === "create"
        ? [
            `/chats?id=${row.id}`,
            row.userRef === null
              ? null
              : `/chats?limit=100&userRef=${encodeURIComponent(row.userRef)}`,
          ]
        : [`/chats/${row.chat_id}/history?id=${row.id}`, `/chats/${row.chat_id}/history?limit=100`];
    const result = await this.#get<Chat | Entry>(tenant, rowPath);
    const expected = `{"data":[${bytes}],"meta":{"total":1}}`;
    if (
      result === 404 ||
      (typeof result === "object" &&
        JSON.stringify({ data: result.data, meta: result.meta }) !== expected)
    ) {
      this.ledger.violation(`${rowPath} gives ${JSON.stringify(result)}`, request);
    }
    const list = listPath === null ? 0 : await this.#get<Chat | Entry>(tenant, listPath);
    if (typeof list !== "object") return;
    const { data, meta } = list;
    if (meta.total !== data.length && !(meta.total > 100 && data.length === 100)) {
      this.ledger.violation(`${listPath}: ${data.length} rows of ${meta.total}`);
    }
    if (meta.total === data.length && !data.some(({ id }) => id === row.id)) {
      this.ledger.violation(`${listPath} has no row ${row.id}`, request);
    }
  }

  /** Retries requests with their keys. The service must return what it stored without asking the model again. */
  async repeat(stored: readonly [StoredRows, StoredRows]): Promise<void> {
    const { calls } = this.#service.model;
    const questions = new Set(
      stored.flatMap((rows) => [...rows.entries.values()].flat()).map((entry) => entry.question),
    );
    const names = new Set(stored.flatMap(({ chats }) => chats.map(({ name }) => name)));
    const withKey = this.ledger.requests.filter((request) => request.idempotencyKey !== null);
    const unanswered = withKey.filter((request) => request.acknowledged === null);
    for (const request of [...unanswered, ...withKey.slice(-60)]) {
      const isStored =
        request.kind === "create" ? names.has(request.token) : questions.has(questionOf(request));
      const before = calls.length;
      const fresh = request.fresh;
      await this.#insist(request, request.kind === "ask" && chance(0.5));
      if (isStored && (calls.length > before || request.fresh > fresh)) {
        this.ledger.violation("stored, but not returned when it is repeated", request);
      }
    }
  }

  /** Reads everything that a chatbot has, in pages and in several orders. Nothing may be written meanwhile. */
  async readAll(tenant: 0 | 1): Promise<StoredRows> {
    const walk = async <Row extends { readonly id: number }>(
      path: string,
      order: string,
      limit: number,
    ) => {
      const rows: Array<Row> = [];
      let total = 0;
      for (let page = 1; ; page++) {
        const result = await this.#get<Row>(tenant, `${path}?limit=${limit}&page=${page}${order}`);
        if (typeof result !== "object") throw new Error(`${path} gives ${result}.`);
        rows.push(...result.data);
        if (page > 1 && result.meta.total !== total)
          this.ledger.violation(`${path}: the total changes`);
        total = result.meta.total;
        if (result.data.length < limit) break;
      }
      // Every row is on exactly one page.
      if (rows.length !== total || new Set(rows.map(({ id }) => id)).size !== total) {
        this.ledger.violation(`${path} ${order}: ${rows.length} rows of ${total}`);
      }
      return rows;
    };
    const chats = await walk<Chat>("/chats", "&orderBy=id", 100);
    for (const [order, limit] of [
      ["", 25],
      ["&orderBy=name&desc=true", 100],
      ["&orderBy=userRef", 100],
    ] as const) {
      const chatsById = (await walk<Chat>("/chats", order, limit)).toSorted((a, b) => a.id - b.id);
      if (JSON.stringify(chatsById) !== JSON.stringify(chats))
        this.ledger.violation(`/chats ${order}: other rows`);
    }
    const entries = new Map<number, ReadonlyArray<Entry>>();
    const queue = [...chats];
    const reader = async () => {
      for (let chat = queue.pop(); chat !== undefined; chat = queue.pop()) {
        entries.set(chat.id, await walk<Entry>(`/chats/${chat.id}/history`, "&orderBy=id", 100));
      }
    };
    await Promise.all(Array.from({ length: 4 }, reader));
    for (const rows of [chats, ...entries.values()]) {
      const isSorted = rows.every(
        (row, at) =>
          at === 0 || (rows[at - 1]!.id < row.id && rows[at - 1]!._createTime <= row._createTime),
      );
      if (!isSorted) this.ledger.violation(`out of order: ${JSON.stringify(rows)}`);
    }
    return { chats, entries };
  }
}
