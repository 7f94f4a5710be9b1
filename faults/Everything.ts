/**
 * All that the service has stored, read through its lists, and what is wrong with the lists themselves.
 */
import { makeClient } from "./Client.ts";
import type { Chat, Entry } from "./Ledger.ts";
import type { Server } from "./Server.ts";
import type { Site } from "./Site.ts";

export interface Everything {
  /** In ascending order of id. */
  readonly chats: ReadonlyArray<Chat>;
  /** By chat id; each in ascending order of id. */
  readonly entries: ReadonlyMap<number, ReadonlyArray<Entry>>;
  /** Every body read, in the order of reading. */
  readonly bytes: string;
  readonly violations: ReadonlyArray<string>;
}

const pageSize = 100;
const readers = 8;

export const readEverything = async (site: Site, server: Server): Promise<Everything> => {
  const client = makeClient(site.key);
  const violations: Array<string> = [];

  const walk = async <Row extends { readonly id: number; readonly _createTime: string }>(
    path: string,
    order: string,
  ) => {
    const rows: Array<Row> = [];
    const totals = new Set<number>();
    let bytes = "";
    for (let page = 1; ; page++) {
      const answer = await client.get(
        `${server.baseUrl}${path}?limit=${pageSize}&page=${page}${order}`,
      );
      if (answer?.status !== 200) throw new Error(`${path} page ${page}: ${answer?.text}`);
      const { data, meta } = JSON.parse(answer.text) as {
        readonly data: ReadonlyArray<Row>;
        readonly meta: { readonly total: number };
      };
      bytes += `${answer.text}\n`;
      rows.push(...data);
      totals.add(meta.total);
      if (data.length < pageSize) break;
    }
    if (totals.size !== 1 || !totals.has(rows.length)) {
      violations.push(`${path}: ${rows.length} rows, but totals ${[...totals].join(", ")}`);
    }
    return { rows, bytes };
  };

  const ascending = "&orderBy=id";
  const checkAscending = (
    path: string,
    rows: ReadonlyArray<{ readonly id: number; readonly _createTime: string }>,
  ) => {
    for (const [at, row] of rows.entries()) {
      const before = rows[at - 1];
      if (before !== undefined && before.id >= row.id) {
        violations.push(`${path}: id ${row.id} after ${before.id}`);
      }
      if (before !== undefined && before._createTime > row._createTime) {
        violations.push(`${path}: ${row.id} was made before ${before.id}`);
      }
    }
  };

  const chats = await walk<Chat>("/chats", ascending);
  checkAscending("/chats", chats.rows);
  const newest = await walk<Chat>("/chats", "");
  if (JSON.stringify(newest.rows.toReversed()) !== JSON.stringify(chats.rows)) {
    violations.push("/chats: newest first is not the reverse of ascending ids");
  }

  const histories = new Map<number, { readonly rows: Array<Entry>; readonly bytes: string }>();
  let next = 0;
  await Promise.all(
    Array.from({ length: readers }, async () => {
      for (let chat = chats.rows[next++]; chat !== undefined; chat = chats.rows[next++]) {
        const path = `/chats/${chat.id}/history`;
        const history = await walk<Entry>(path, ascending);
        checkAscending(path, history.rows);
        histories.set(chat.id, history);
      }
    }),
  );
  client.close();
  return {
    chats: chats.rows,
    entries: new Map([...histories].map(([id, { rows }]) => [id, rows])),
    bytes: [chats, newest, ...chats.rows.map(({ id }) => histories.get(id)!)]
      .map(({ bytes }) => bytes)
      .join(""),
    violations,
  };
};
