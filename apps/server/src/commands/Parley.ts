/**
 * The command line.
 */
import type { Effect } from "effect";
import { Command } from "effect/cli";
import { chats } from "./Chats.ts";
import { key } from "./Key.ts";
import { migrate } from "./Migrate.ts";
import { serve } from "./Serve.ts";
import { usage } from "./Usage.ts";

export const parley: Effect.Effect<void, unknown, Command.Environment> = Command.make(
  "parley",
).pipe(
  Command.withDescription("A chatbot conversation service"),
  Command.withSubcommands([serve, migrate, chats, usage, key]),
  Command.run({ version: "0.1.0" }),
);
