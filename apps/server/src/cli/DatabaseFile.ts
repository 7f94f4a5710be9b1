/**
 * What the doctor finds about the SQLite file.
 */
import { inspectSqlite } from "@parley/store-sqlite";
import { Effect } from "effect";
import { accessSync, constants, globSync, readlinkSync, realpathSync, statfsSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { databaseFile } from "../layers/StoreLayer.ts";
import { report } from "./StartChecks.ts";

/** The types of network file systems in Linux's `statfs`, on which the locks of SQLite cannot be relied on. */
const networks: ReadonlyMap<number, string> = new Map([
  [0x6969, "NFS"],
  [0x517b, "SMB"],
  [0xff534d42, "CIFS"],
  [0xfe534d42, "SMB"],
  [0x01021997, "9p"],
  [0x00c36400, "Ceph"],
  [0x0bd00bd0, "Lustre"],
]);
/** The type of sshfs and other clients of networks, of the folders that Docker Desktop shares, and of some local disks. */
const fuse = 0x65735546;

const attempt = <A>(work: () => A): A | null => {
  try {
    return work();
  } catch {
    return null;
  }
};

/** The other processes that have the file open, as far as Linux shows them to this user. */
const processesWith = (file: string): ReadonlyArray<string> => {
  const links = globSync("/proc/[0-9]*/fd/*");
  const openLinks = links.filter((link) => attempt(() => readlinkSync(link)) === file);
  const pids = new Set(openLinks.map((link) => link.split("/")[2]!));
  pids.delete(String(process.pid));
  return [...pids];
};

export const describeFile = Effect.gen(function* () {
  const file = realpathSync(resolve(yield* databaseFile));
  const { bytes, damage, pendingSql, sqlite, version } = yield* inspectSqlite(file);
  const folder = dirname(file);
  const { bavail, bsize, type } = statfsSync(folder);
  const free = bavail * bsize;
  const network = networks.get(type);
  const users = processesWith(file);
  const noun = users.length === 1 ? "process" : "processes";
  const used = users.length === 0 ? "" : `, open in ${noun} ${users.join(", ")}`;
  const megabytes = (size: number) => `${Math.ceil(size / 2 ** 20)} MB`;
  const isWritable = [file, `${folder}/.`].every(
    (path) => attempt(() => accessSync(path, constants.R_OK | constants.W_OK)) !== null,
  );
  return report(
    ["ok", `${file} has ${megabytes(bytes)} (tables ${version}, SQLite ${sqlite}${used}).`],
    damage !== null && ["failed", `${file} is damaged: ${damage}. Restore a backup.`],
    !isWritable && ["failed", `This user cannot write to ${file} and its folder.`],
    free < 2 ** 20 * 100 && ["warning", `Only ${megabytes(free)} are free in ${folder}.`],
    network !== undefined && [
      "failed",
      `${folder} is on a network file system (${network}), where SQLite files are damaged sooner or later.`,
    ],
    type === fuse && [
      "warning",
      `${folder} is on FUSE. If that is a network file system, such as sshfs, SQLite files are damaged sooner or later.`,
    ],
    pendingSql !== "" && [
      "warning",
      'The tables are out of date; starting the server or running "parley migrate" updates them.',
    ],
  );
});
