/**
 * One chatbot's client that tries, in every way it can think of, to come by what is another's: by ids,
 * filters, keys for repeating and event ids.
 */
import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { readEverything } from "./Everything.ts";
import { killProcess, postmasterOf } from "./Postgres.ts";
import { randomOf } from "./Random.ts";
import { startServer, type Server } from "./Server.ts";
import { main, makeSite, type Site } from "./Site.ts";

export interface Probed {
  readonly requests: number;
  /** How often each status was answered. */
  readonly statuses: Readonly<Record<string, number>>;
  readonly violations: ReadonlyArray<string>;
}

const clients = 16;
const scopes = ["read", "write", "ask"];

/** What the other chatbot has: chats, entries, keys for repeating and event ids. */
interface Theirs {
  readonly key: string;
  /** In all that it stores, and in nothing else. */
  readonly mark: string;
  readonly chats: ReadonlyArray<number>;
  readonly entries: ReadonlyArray<number>;
  readonly retryKeys: ReadonlyArray<string>;
  readonly eventIds: ReadonlyArray<string>;
}

interface Call {
  readonly path: string;
  readonly body?: object;
  readonly headers?: Readonly<Record<string, string>>;
}

const send = async (server: Server, key: string, { body, headers, path }: Call) => {
  const answer = await fetch(path === "ask" ? server.askUrl : `${server.baseUrl}${path}`, {
    method: body === undefined ? "GET" : "POST",
    headers: {
      "x-api-key": key,
      ...(body === undefined ? {} : { "content-type": "application/json" }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: answer.status, text: await answer.text() };
};

/** The bodies in an answer: itself, or those of its events. */
const bodiesOf = (text: string): ReadonlyArray<any> =>
  text.startsWith("{")
    ? [JSON.parse(text)]
    : [...text.matchAll(/^data: (.*)$/gm)].map(([, data]) => JSON.parse(data!));

/** The same body with the same key: were keys shared, the other's answer would be repeated. */
const shared = {
  create: { name: "a name of both", userRef: "a user of both" },
  ask: { query: "On which port does the server listen?" },
};

const populate = async (server: Server, key: string): Promise<Theirs> => {
  const mark = randomUUID().replaceAll("-", "");
  const chats: Array<number> = [];
  const entries: Array<number> = [];
  const retryKeys: Array<string> = [];
  const eventIds: Array<string> = [];
  const note = (text: string) => {
    for (const { data } of bodiesOf(text)) {
      if (data === undefined) continue;
      chats.push(data.chat_id ?? data.id);
      if (data.chat_id !== undefined) entries.push(data.id);
    }
    for (const [, id] of text.matchAll(/^id: (.*)$/gm)) eventIds.push(id!);
  };
  const some = async (n: number) => {
    const retryKey = `key-${n}`;
    retryKeys.push(retryKey);
    for (const call of [
      { path: "/chats", body: { name: `${mark} ${n}`, userRef: `${mark}-${n % 5}` } },
      { path: "/chats", body: shared.create, headers: { "idempotency-key": `${retryKey}-create` } },
      { path: "ask", body: { query: `On which port? ${mark}` } },
      {
        path: "ask",
        body: shared.ask,
        headers: { "idempotency-key": `${retryKey}-ask`, accept: "text/event-stream" },
      },
    ]) {
      note((await send(server, key, call)).text);
    }
  };
  await Promise.all(Array.from({ length: 30 }, (_, n) => some(n)));
  return { key, mark, chats, entries, retryKeys, eventIds };
};

/** Sends so many requests as the one chatbot; what the other has must show in no answer, and not change. */
const probeServer = async (
  site: Site,
  server: Server,
  theirs: Theirs,
  amount: number,
  seed: number,
): Promise<Probed> => {
  const random = randomOf(seed);
  const pick = <A>(from: ReadonlyArray<A>): A => from[Math.floor(random() * from.length)]!;
  const violations: Array<string> = [];
  const statuses: Record<string, number> = {};
  const foreignChats = new Set(theirs.chats);
  const foreignEntries = new Set(theirs.entries);
  const own: Array<number> = [];
  /** Chats that we asked to be made, and those that surely were. */
  let begun = 0;
  let made = 0;

  const missing = 9007199254740990;
  const noChat = (await send(server, site.key, { path: `/chats/${missing}/history` })).text;
  const nothing = '{"status":200,"data":[],"meta":{"total":0}}';
  const before = await readEverything({ ...site, key: theirs.key }, server);

  const order = () => pick(["", "", "&orderBy=id", "&orderBy=name", "&orderBy=userRef&desc=true"]);
  const page = () => pick(["", "", "&limit=1", "&limit=100&page=2", "&page=9999"]);
  const text = () => {
    const from = Math.floor(random() * 20);
    return pick([
      theirs.mark,
      `${theirs.mark}-${Math.floor(random() * 5)}`,
      theirs.mark.slice(from, from + 8),
    ]);
  };
  const headers = (kind: "create" | "ask") => ({
    ...(random() < 0.7 ? { "idempotency-key": `${pick(theirs.retryKeys)}-${kind}` } : {}),
    ...(kind === "ask" && random() < 0.5 ? { accept: "text/event-stream" } : {}),
    ...(kind === "ask" && random() < 0.5 ? { "last-event-id": pick(theirs.eventIds) } : {}),
    ...(kind === "ask" && random() < 0.2 ? { "on-disconnect": "cancel" } : {}),
  });

  /** A request, and what its answer must be beside showing nothing of theirs. */
  const kinds: ReadonlyArray<() => readonly [Call, (status: number, text: string) => boolean]> = [
    () => [
      {
        path: `/chats/${pick(theirs.chats)}/history?limit=50${order().replace(/name|userRef/, "question")}`,
      },
      (status, told) => status === 404 && told === noChat,
    ],
    () => [
      { path: `/chats/${pick(theirs.chats)}/history?id=${pick(theirs.entries)}` },
      (status, told) => status === 404 && told === noChat,
    ],
    () => [
      {
        path: "ask",
        body: { ...shared.ask, chat_id: pick(theirs.chats) },
        headers: headers("ask"),
      },
      // With a key that was used for another request: 422.
      (status, told) => (status === 404 && told === noChat) || status === 422,
    ],
    () => [
      { path: `/chats?id=${pick(theirs.chats)}${order()}${page()}` },
      (status, told) => status === 200 && told === nothing,
    ],
    () => [
      { path: `/chats?userRef=${theirs.mark}-${Math.floor(random() * 5)}${order()}${page()}` },
      (status, told) => status === 200 && told === nothing,
    ],
    () => [
      { path: `/chats?search=${text()}${order()}${page()}` },
      (status, told) => status === 200 && told === nothing,
    ],
    () => [
      { path: `/chats?search=${text()}&userRef=${text()}&id=${pick(theirs.chats)}` },
      (status, told) => status === 200 && told === nothing,
    ],
    () => [
      { path: `/chats/${pick(own)}/history?id=${pick(theirs.entries)}` },
      (status, told) => status === 200 && told === nothing,
    ],
    () => {
      const least = made;
      return [
        { path: `/chats?limit=100${order()}` },
        (status, told) => {
          const { total } = JSON.parse(told).meta;
          return status === 200 && least <= total && total <= begun;
        },
      ];
    },
    () => {
      const path = `/chats?userRef=${encodeURIComponent(shared.create.userRef)}${page()}${order()}`;
      return [{ path }, (status, told) => status === 200 && JSON.parse(told).meta.total <= begun];
    },
    () => [{ path: "/details" }, (status, told) => status === 200 && !told.includes("Theirs")],
    () => [
      { path: "/chats", body: shared.create, headers: headers("create") },
      (status) => status === 201,
    ],
    () => [
      { path: "ask", body: { ...shared.ask, chat_id: pick(own) }, headers: headers("ask") },
      (status) => status < 300 || status === 422,
    ],
    () => [
      { path: "ask", body: shared.ask, headers: headers("ask") },
      (status) => status < 300 || status === 422,
    ],
  ];

  const check = (call: Call, status: number, told: string) => {
    const wrong: Array<string> = [];
    if (told.includes(theirs.mark)) wrong.push("shows their text");
    for (const { data } of bodiesOf(told)) {
      for (const row of [data ?? []].flat()) {
        if (row.id === undefined) continue;
        const [chat, entry] = row.chat_id === undefined ? [row.id, null] : [row.chat_id, row.id];
        if (foreignChats.has(chat)) wrong.push(`shows their chat ${chat}`);
        if (foreignEntries.has(entry)) wrong.push(`shows their entry ${entry}`);
        if (status === 201 && row.chat_id === undefined && !foreignChats.has(chat)) own.push(chat);
      }
    }
    for (const what of wrong) violations.push(`${JSON.stringify(call)}: ${what}: ${told}`);
  };

  const carryOut = async ([call, holds]: ReturnType<(typeof kinds)[number]>) => {
    const makes = call.body !== undefined && !("chat_id" in call.body);
    if (makes) begun++;
    let answer = await send(server, site.key, call);
    // Of long lists a few run at once.
    while (answer.text.includes("SERVICE_OVERLOADED")) answer = await send(server, site.key, call);
    const { status, text: told } = answer;
    // With a key for repeating it may be an earlier one that is told again.
    if (makes && status < 300 && call.headers?.["idempotency-key"] === undefined) made++;
    statuses[status] = (statuses[status] ?? 0) + 1;
    check(call, status, told);
    if (!holds(status, told)) violations.push(`${JSON.stringify(call)}: ${status} ${told}`);
  };

  await carryOut([{ path: "/chats", body: {} }, (status) => status === 201]);
  let left = amount - 1;
  await Promise.all(
    Array.from({ length: clients }, async () => {
      while (left-- > 0) await carryOut(pick(kinds)());
    }),
  );

  const after = await readEverything({ ...site, key: theirs.key }, server);
  if (after.bytes !== before.bytes) violations.push("what is theirs has changed");
  return { requests: amount, statuses, violations: [...violations, ...after.violations] };
};

/** Makes a key as an operator does. */
const freshKey = (): string =>
  execFileSync(process.execPath, [main, "key", "generate"], { encoding: "utf8" }).trim();

/**
 * Probes a server of its own. `found` is what the same requests find with a key of the other chatbot: then
 * all that is looked for is there.
 */
export const probe = async (
  amount: number,
  seed: number,
  { rowSecurity }: { readonly rowSecurity: boolean },
): Promise<Probed & { readonly found: ReadonlyArray<string> }> => {
  const site = await makeSite();
  const [key, insider] = [freshKey(), freshKey()];
  const provision = join(site.directory, "both.json");
  const chatbots = [
    { workspace: "Ours", name: "Ours", keys: [{ key: site.key, scopes }] },
    {
      workspace: "Theirs",
      name: "Theirs",
      helloMessage: "Hello",
      keys: [key, insider].map((one) => ({ key: one, scopes })),
    },
  ];
  await writeFile(provision, JSON.stringify({ chatbots }), { mode: 0o600 });
  let server: Server | null = null;
  try {
    server = await startServer(site, {
      PARLEY_PROVISION: provision,
      PARLEY_ROW_SECURITY: String(rowSecurity),
    });
    const theirs = await populate(server, key);
    const probed = await probeServer(site, server, theirs, amount, seed);
    const inside = await probeServer({ ...site, key: insider }, server, theirs, 100, seed);
    return { ...probed, found: inside.violations };
  } finally {
    await server?.stop();
    const left = postmasterOf(site);
    if (left !== null) killProcess(left);
    await site.remove();
  }
};
