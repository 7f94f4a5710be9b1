/**
 * Several servers on one database, with one model.
 */
import { makeClient, type Client } from "./Client.ts";
import { makeDatabase, type Database } from "./Database.ts";
import { startHeldModel, type Call, type HeldModel } from "./HeldModel.ts";
import { dataBytes, type Chat, type Entry } from "./Ledger.ts";
import { startServer, type Server } from "./Server.ts";
import { makeSite, type Site } from "./Site.ts";

export interface Together {
  readonly site: Site;
  readonly database: Database;
  readonly model: HeldModel;
  readonly servers: ReadonlyArray<Server>;
  readonly client: Client;
  /** Makes a chat and gives its id; its only entry is the hello message. */
  readonly newChat: () => Promise<number>;
  /** The chat's entries, oldest first. */
  readonly history: (server: Server, chat: number) => Promise<ReadonlyArray<Entry>>;
  readonly stop: () => Promise<void>;
}

/** Starts so many servers; `answer` is told of every call of the model. `extra` are further settings. */
export const startTogether = async (
  postgresUrl: string,
  amount: number,
  answer: (call: Call) => void,
  extra: Readonly<Record<string, string>> = {},
): Promise<Together> => {
  const site = await makeSite();
  const database = await makeDatabase(postgresUrl);
  const model = await startHeldModel(answer);
  const client = makeClient(site.key);
  const servers: Array<Server> = [];
  const stop = async () => {
    client.close();
    model.close();
    for (const server of servers) await server.kill();
    await database.remove();
    await site.remove();
  };
  try {
    const settings = { ...database.environment, ...model.environment, ...extra };
    // The first makes the tables; that all may start together is tested elsewhere.
    servers.push(await startServer(site, settings));
    const others = Array.from({ length: amount - 1 }, () => startServer(site, settings));
    for (const started of await Promise.allSettled(others)) {
      if (started.status === "rejected") throw started.reason;
      servers.push(started.value);
    }
  } catch (cause) {
    await stop();
    throw cause;
  }
  return {
    site,
    database,
    model,
    servers,
    client,
    newChat: async () => {
      const answer = await client.post(`${servers[0]!.baseUrl}/chats`, {});
      return (JSON.parse(dataBytes(answer!.text)) as Chat).id;
    },
    history: async (server, chat) => {
      const answer = await client.get(
        `${server.baseUrl}/chats/${chat}/history?limit=100&orderBy=id`,
      );
      if (answer?.status !== 200) throw new Error(`history of ${chat}: ${answer?.text}`);
      return (JSON.parse(answer.text) as { readonly data: ReadonlyArray<Entry> }).data;
    },
    stop,
  };
};
