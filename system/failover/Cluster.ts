/**
 * Three machines with Debian's PostgreSQL 15, Patroni and etcd behind HAProxy, configured with the files from
 * docs/scaling.md. A machine is a network namespace with two virtual cables: one to the other machines (etcd,
 * replication), one to HAProxy and the clients. A machine can therefore be killed or frozen as a whole. Unplugging a
 * cable stops its traffic without closing any connection.
 */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, openSync, readFileSync } from "node:fs";
import { chmod, mkdir, mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { signal } from "../../faults/Harness.ts";
import { fencesOf, read, sectionOf } from "../../test/docs/Fences.ts";

const programs = "/usr/lib/postgresql/15/bin";

/** The cables' networks, with the third octet of their addresses. */
const networks = { cluster: 0, service: 1 };
type Network = keyof typeof networks;

/** Waits until its standard input closes, as it does however this process ends; then removes everything. */
const janitor = `
cat > /dev/null
directory=$1; shift
for space; do ip netns pids $space | xargs -r kill -9; done
for space; do while [ -n "$(ip netns pids $space)" ]; do sleep 0.1; done; ip netns del $space; done
rm -rf "$directory"`;

/** Runs a program to completion; returns its output. */
export const run = async (command: string, ...args: ReadonlyArray<string>) =>
  (await promisify(execFile)(command, args, { cwd: "/", maxBuffer: 2 ** 26 })).stdout;
const ip = (line: string) => run("ip", ...line.split(" "));
const asPostgres = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"];

/** Calls `look` until it returns a value, for two minutes at most. */
export const until = async <A>(what: string, look: () => Promise<A | undefined>): Promise<A> => {
  const end = Date.now() + 120_000;
  while (Date.now() < end) {
    const result = await look().catch(() => undefined);
    if (result !== undefined) return result;
    await sleep(100);
  }
  throw new Error(`${what} took longer than two minutes.`);
};

export interface Machine {
  readonly name: string;
  /** The address for clients. */
  readonly host: string;
  readonly start: () => void;
  /** Signals all its processes. */
  readonly signal: (name: "SIGKILL" | "SIGSTOP" | "SIGCONT") => Promise<void>;
  readonly unplug: (...cables: ReadonlyArray<Network>) => Promise<void>;
  readonly plug: () => Promise<void>;
  /** Runs a program on the machine, as PostgreSQL's user. */
  readonly run: (...command: ReadonlyArray<string>) => Promise<string>;
  /** Changes Patroni's settings for its next start. */
  readonly configure: (change: (yaml: string) => string) => Promise<void>;
  /** The number of PostgreSQL backends that serve Parley's role. */
  readonly backends: () => Promise<number>;
}

/** A member as Patroni's `/cluster` lists it. */
interface Member {
  readonly name: string;
  readonly role: "leader" | "sync_standby" | "replica";
  readonly timeline?: number;
  readonly lag?: number | "unknown";
}

export type Cluster = Awaited<ReturnType<typeof startCluster>>;

export const startCluster = async () => {
  if (process.getuid?.() !== 0) throw new Error("network namespaces need root");
  const needed = [`${programs}/postgres`, "/usr/bin/patroni", "/usr/bin/etcd", "/usr/sbin/haproxy"];
  const missing = [...needed, "/usr/sbin/ip"].filter((file) => !existsSync(file));
  if (missing.length > 0) {
    const packages = "postgresql-15, patroni, etcd-server, python3-etcd, haproxy and iproute2";
    throw new Error(`${missing.join(", ")} missing: install Debian's ${packages}`);
  }
  const directory = await mkdtemp(join(tmpdir(), "parley-failover-"));
  await chmod(directory, 0o711);
  /** The namespace with the switches and HAProxy. */
  const hub = `parley-${process.pid}`;
  const spaces = [hub, ...[1, 2, 3].map((n) => `${hub}-${n}`)];
  const cleaner = spawn("/bin/sh", ["-c", janitor, "sh", directory, ...spaces], {
    cwd: "/",
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
  });
  const stop = async () => {
    cleaner.stdin.end();
    await once(cleaner, "exit");
  };

  // Random, so that two runs are unlikely to use the same network.
  const net = `10.${100 + Math.floor(100 * Math.random())}`;
  const address = (network: Network, n: number) => `${net}.${networks[network]}.${n}`;
  const logOf = (space: string) => join(directory, `${space}.log`);
  const launch = (space: string, ...command: ReadonlyArray<string>) => {
    const log = openSync(logOf(space), "a");
    const env = { PATH: `${programs}:${process.env["PATH"]}`, LC_ALL: "C.UTF-8" };
    const args = ["netns", "exec", space, ...asPostgres, ...command];
    spawn("ip", args, { cwd: "/", env, stdio: ["ignore", log, log] });
  };
  const printLogs = () => {
    for (const space of spaces.filter((name) => existsSync(logOf(name))))
      console.error(space, readFileSync(logOf(space), "utf8").slice(-3000));
  };
  /** Makes a directory owned by PostgreSQL's user. */
  const makeHome = async (name: string) => {
    const home = join(directory, name);
    await mkdir(home, { mode: 0o700 });
    await run("chown", "postgres:postgres", home);
    return home;
  };

  const recipe = fencesOf(sectionOf(read("docs/scaling.md"), "## When a machine fails"));
  /** A file from the recipe, with this network's addresses in place of 10.0.0.1 to 10.0.0.3. */
  const fileOf = (language: string, network: Network) =>
    `${recipe.find(({ info }) => info === language)!.text}\n`.replace(
      /10\.0\.0\.(\d+)/g,
      (_, n: string) => address(network, Number(n)),
    );

  const backup = await makeHome("backup");
  await makeHome("backup/wal");

  const makeMachine = async (n: number): Promise<Machine> => {
    const space = `${hub}-${n}`;
    await ip(`netns add ${space}`);
    await ip(`-n ${space} link set lo up`);
    const names = Object.keys(networks) as ReadonlyArray<Network>;
    for (const network of names) {
      await ip(`-n ${hub} link add ${network}${n} type veth peer name ${network} netns ${space}`);
      await ip(`-n ${hub} link set ${network}${n} master ${network} up`);
      await ip(`-n ${space} addr add ${address(network, n)}/24 dev ${network}`);
      await ip(`-n ${space} link set ${network} up`);
    }
    const home = await makeHome(String(n));
    // The recipe's files are for the first machine. A line that also names the second is the same on all machines.
    const ownFileOf = (language: string, change = (text: string) => text) =>
      change(fileOf(language, "cluster"))
        .replace(/^(?!.*\.2:).*$/gm, (line) =>
          line.replace("node1", `node${n}`).replace(address("cluster", 1), address("cluster", n)),
        )
        .replaceAll(/\/var\/(lib|run)/g, home)
        .replaceAll("/srv/backup", backup);
    const file = join(directory, `${n}.yml`);
    const configure = (change: (yaml: string) => string) =>
      writeFile(file, ownFileOf("yaml", change));
    await configure((yaml) => yaml);
    const etcd = ownFileOf("ini").trim().split("\n");
    const pids = async () =>
      (await ip(`netns pids ${space}`)).split("\n").filter(Boolean).map(Number);
    const titleOf = (pid: number) => {
      const file = `/proc/${pid}/cmdline`;
      return existsSync(file) ? readFileSync(file, "utf8") : "";
    };
    return {
      name: `node${n}`,
      host: address("service", n),
      start: () => {
        launch(space, "env", ...etcd, "etcd");
        launch(space, "patroni", file);
      },
      signal: async (name) => {
        const all = await pids();
        for (const pid of all) signal(pid, name);
        // PostgreSQL does not start until the process named in its lock file has been reaped.
        const isThere = (pid: number) => existsSync(`/proc/${pid}`);
        while (name === "SIGKILL" && all.some(isThere)) await sleep(50);
      },
      unplug: async (...cables) => {
        for (const cable of cables) await ip(`-n ${hub} link set ${cable}${n} nomaster`);
      },
      plug: async () => {
        for (const cable of names) await ip(`-n ${hub} link set ${cable}${n} master ${cable}`);
      },
      run: (...command) => run("ip", "netns", "exec", space, ...asPostgres, ...command),
      configure,
      backends: async () =>
        (await pids()).filter((pid) => /^postgres: \S+ parley /.test(titleOf(pid))).length,
    };
  };

  try {
    await ip(`netns add ${hub}`);
    await ip(`-n ${hub} link set lo up`);
    for (const network of Object.keys(networks)) {
      await ip(`-n ${hub} link add ${network} type bridge`);
      await ip(`-n ${hub} link set ${network} up`);
    }
    await ip(`-n ${hub} addr add ${address("service", 10)}/24 dev service`);
    // Parley's servers run in the namespace of this process.
    const near = `par${process.pid}`;
    await ip(`-n ${hub} link add near type veth peer name ${near} netns ${process.pid}`);
    await ip(`-n ${hub} link set near master service up`);
    await ip(`addr add ${address("service", 254)}/24 dev ${near}`);
    await ip(`link set ${near} up`);

    const machines = await Promise.all([1, 2, 3].map(makeMachine));
    const proxy = join(directory, "haproxy.cfg");
    await writeFile(
      proxy,
      fileOf("haproxy", "service").replace("127.0.0.1", address("service", 10)),
    );
    launch(hub, "haproxy", "-db", "-f", proxy);
    for (const { start } of machines) start();

    const patroni = (machine: Machine, path: string, init: RequestInit = {}) =>
      fetch(`http://${machine.host}:8008${path}`, { signal: AbortSignal.timeout(1000), ...init });
    /** Waits for a leader other than `not`, which has failed. */
    const leader = (not?: Machine) =>
      until("The election of a leader", async () => {
        for (const machine of machines.filter((each) => each !== not)) {
          const isLeader = await patroni(machine, "/primary").then(
            ({ ok }) => ok,
            () => false,
          );
          if (isLeader) return machine;
        }
        return undefined;
      });
    const members = async () => {
      const response = await patroni(await leader(), "/cluster");
      return ((await response.json()) as { readonly members: ReadonlyArray<Member> }).members;
    };
    /** The machine that a commit waits for; `undefined` if there is none. */
    const synchronousStandby = async () => {
      const standby = (await members()).find(({ role }) => role === "sync_standby");
      return machines.find(({ name }) => name === standby?.name);
    };
    let synchronous = true;
    /** Waits until two machines follow the leader, one of them synchronously if the cluster is synchronous. */
    const whole = () =>
      until("The repair of the cluster", async () => {
        const all = await members();
        const isWhole =
          all.filter(({ lag }) => lag === 0).length === 2 &&
          new Set(all.map(({ timeline }) => timeline)).size === 1 &&
          all.some(({ role }) => role === "sync_standby") === synchronous;
        return isWhole || undefined;
      }).catch((cause) => {
        printLogs();
        throw cause;
      });
    const urlOf = (user: string, host: string, database: string) =>
      // The recipe sets the password of postgres. The server refuses it, as the placeholder of a sample.
      `postgres://${user}:${user === "parley" ? "hidden" : "secret"}@${host}/${database}`;
    const proxyHost = `${address("service", 10)}:5000`;

    await whole();
    const { host } = await leader();
    for (const [database, statement] of [
      ["postgres", "create role parley login password 'hidden'"],
      [
        "postgres",
        "create database parley owner parley template template0 encoding 'UTF8' lc_collate 'C' lc_ctype 'C.UTF-8'",
      ],
      ["parley", "create extension pg_trgm"],
      ["parley", "create extension btree_gin"],
    ] as const)
      await run("psql", "-Xqc", statement, urlOf("postgres", host, database));
    return {
      machines,
      /** Stands in for the recipe's `/srv/backup`. */
      backup,
      /** The leader's URLs through HAProxy, for Parley's role and for the superuser. */
      url: urlOf("parley", proxyHost, "parley"),
      superuserUrl: urlOf("postgres", proxyHost, "parley"),
      leader,
      synchronousStandby,
      whole,
      setSynchronous: async (on: boolean) => {
        synchronous = on;
        const body = JSON.stringify({ synchronous_mode: on });
        await patroni(await leader(), "/config", { method: "PATCH", body });
        await whole();
      },
      stop,
    };
  } catch (cause) {
    printLogs();
    await stop();
    throw cause;
  }
};
