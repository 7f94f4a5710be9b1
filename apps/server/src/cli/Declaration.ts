/**
 * Helpers for declaring commands.
 */
import type { Effect } from "effect";
import { Command } from "effect/cli";

interface Help {
  readonly description: string;
  /** Command lines, each with a description of what it does. */
  readonly examples: Readonly<Record<string, string>>;
}

interface Declaration<Flags extends Command.Command.Config, E, R> extends Help {
  readonly flags?: Flags;
  readonly run: (input: Command.Command.Config.Infer<Flags>) => Effect.Effect<void, E, R>;
}

export const withHelp =
  ({ description, examples }: Help) =>
  <Name extends string, Input, Shared, E, R>(command: Command.Command<Name, Input, Shared, E, R>) =>
    command.pipe(
      Command.withDescription(description),
      Command.withExamples(
        Object.entries(examples).map(([command, description]) => ({ command, description })),
      ),
    );

export const makeCommand = <
  const Name extends string,
  E,
  R,
  const Flags extends Command.Command.Config = {},
>(
  name: Name,
  { flags = {} as Flags, run, ...help }: Declaration<Flags, E, R>,
) => Command.make(name, flags, run).pipe(withHelp(help));
