/**
 * Everything that `parley doctor` looks at.
 */
import { Effect } from "effect";
import { Settings } from "../Settings.ts";
import { checkChatbots } from "./CheckChatbots.ts";
import { checkDatabase } from "./CheckDatabase.ts";
import { checkDataDir } from "./CheckDataDir.ts";
import { checkFiles } from "./CheckFiles.ts";
import { checkModels } from "./CheckModels.ts";
import { checkPorts } from "./CheckPorts.ts";
import { checkSettings } from "./CheckSettings.ts";

/** What the database holds is looked at only where a server could. */
const checkStore = Effect.gen(function* () {
  const database = yield* checkDatabase;
  const isReady = database.some(({ check, status }) => check === "migrations" && status === "ok");
  return isReady ? [...database, ...(yield* checkChatbots)] : database;
});

/** Looks, and changes nothing. With settings that cannot be read nothing else is looked at. */
export const examine = Effect.gen(function* () {
  const [settings, found] = yield* checkSettings(process.env);
  if (settings === null) return found;
  const findings = yield* Effect.all(
    [checkDataDir, checkStore, checkModels, checkFiles, checkPorts],
    { concurrency: "unbounded" },
  ).pipe(Effect.provideService(Settings, settings));
  return [...found, ...findings.flat()];
});
