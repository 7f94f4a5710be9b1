/**
 * Traffic, and something killed in the middle of it.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { audit, type Audited } from "./Audit.ts";
import { makeLedger } from "./Ledger.ts";
import { backendsOf, killProcess, postmasterOf } from "./Postgres.ts";
import { randomOf, type Random } from "./Random.ts";
import { startServer } from "./Server.ts";
import { makeSite, type Site } from "./Site.ts";
import { makeProgress, runTraffic, type Service } from "./Traffic.ts";

/** What is killed; `both`: the server and its postmaster. */
export const victims = ["server", "postmaster", "backend", "both"] as const;
export type Victim = (typeof victims)[number];

export interface KillRound extends Audited {
  readonly kills: number;
  readonly unanswered: number;
  readonly unavailable: number;
  /** From each kill to the first answer to a request sent after it, in milliseconds. */
  readonly recovery: ReadonlyArray<number>;
  /** The first lines of the errors that the last server logged, 20 at most. */
  readonly log: string;
}

const killPostmaster = (site: Site) => {
  const pid = postmasterOf(site);
  if (pid === null) throw new Error("No postmaster to kill.");
  killProcess(pid);
};

const killBackend = (site: Site, random: Random) => {
  const backends = backendsOf(postmasterOf(site) ?? -1);
  const pid = backends[Math.floor(random() * backends.length)];
  if (pid === undefined) throw new Error("No backend to kill.");
  killProcess(pid);
};

const errorsOf = (log: string): string =>
  log
    .split("\n")
    .filter((line) => /^\[[^\]]+\] (ERROR|FATAL)/.test(line))
    .slice(0, 20)
    .join("\n");

/** Runs a round on a site of its own: `amount` requests, and `kills` kills spread over them. */
export const killRound = async (
  victim: Victim,
  amount: number,
  kills: number,
  seed: number,
): Promise<KillRound> => {
  const random = randomOf(seed);
  const moments = randomOf(seed + 1);
  const site = await makeSite();
  const ledger = makeLedger();
  const progress = makeProgress();
  const service: Service = { server: startServer(site), deaths: 0 };
  const recovery: Array<number> = [];

  const killServer = async () => {
    const server = await service.server;
    const next = Promise.withResolvers<Awaited<typeof service.server>>();
    next.promise.catch(() => {});
    service.deaths++;
    service.server = next.promise;
    if (victim === "both") killPostmaster(site);
    await server.kill();
    startServer(site).then(next.resolve, next.reject);
  };

  const strike = async () => {
    progress.worksAgain = { since: Date.now(), at: null };
    const { worksAgain } = progress;
    if (victim === "postmaster") killPostmaster(site);
    else if (victim === "backend") killBackend(site, moments);
    else await killServer();
    await service.server;
    const until = Date.now() + 60_000;
    while (worksAgain.at === null && progress.done < amount && Date.now() < until) await sleep(5);
    if (worksAgain.at !== null) recovery.push(worksAgain.at - worksAgain.since);
  };

  const strikeInTheMiddle = async () => {
    for (let kill = 0; kill < kills; kill++) {
      // In the middle three fifths of this kill's share of the requests.
      const after = ((kill + 0.2 + 0.6 * moments()) / kills) * amount;
      const delay = moments() * 10;
      while (progress.done < after) await sleep(1);
      await sleep(delay);
      await strike();
    }
  };

  try {
    await service.server;
    await Promise.all([
      runTraffic(site, service, ledger, amount, random, progress),
      strikeInTheMiddle(),
    ]);
    const server = await service.server;
    const audited = await audit(site, server, ledger);
    const ended = await server.stop();
    if (ended === "SIGKILL") throw new Error("The server did not stop.");
    const { unanswered, unavailable } = progress;
    return { ...audited, kills, unanswered, unavailable, recovery, log: errorsOf(server.log()) };
  } finally {
    const server = await service.server.catch(() => null);
    await server?.kill();
    const postmaster = postmasterOf(site);
    if (postmaster !== null) killProcess(postmaster);
    await site.remove();
  }
};
