/**
 * Which key a command is about.
 */
import { Administration, type Chatbot, keyId, type RegisteredKey } from "@parley/core";
import { Data, Effect, Stdio, Stream } from "effect";
import { Argument } from "effect/cli";
import { wrongUsage } from "./WrongUsage.ts";

export class NoSuchKey extends Data.TaggedError("NoSuchKey")<{ readonly message: string }> {}

/** Never a whole key: other users of the machine can read arguments, and the shell keeps them. */
export const keyArgument = Argument.String("key").pipe(
  Argument.withDescription(
    "The key's id, as prl_<id> or <id>; - reads the id or the whole key from standard input",
  ),
);

/** The id that the argument of the command at this path names. */
export const idOf = Effect.fnUntraced(function* (command: ReadonlyArray<string>, argument: string) {
  const { stdin } = yield* Stdio.Stdio;
  const text =
    argument === "-" ? (yield* Stream.mkString(Stream.decodeText(stdin))).trim() : argument;
  const id = keyId(text) ?? /^(?:prl_)?([0-9A-Za-z]{12})(?:_(?:…|\.\.\.)?)?$/.exec(text)?.[1];
  // What was written is not repeated: it may be most of a key.
  if (id === undefined) return yield* wrongUsage(command, "That is no id of a key.");
  return id;
});

/** The key with this id, and the chatbot that it opens. */
export const keyWithId = Effect.fnUntraced(function* (
  id: string,
): Effect.fn.Return<
  { readonly chatbot: Chatbot; readonly key: RegisteredKey },
  NoSuchKey | Effect.Error<(typeof Administration.Service)["chatbots"]>,
  Administration
> {
  const administration = yield* Administration;
  for (const { chatbot, keys } of yield* administration.chatbots) {
    const key = keys.find((one) => one.id === id);
    if (key === undefined) continue;
    if (key.revokedAt === null) return { chatbot, key };
    return yield* new NoSuchKey({ message: `The key prl_${id}_… was revoked before.` });
  }
  return yield* new NoSuchKey({ message: `There is no key prl_${id}_….` });
});
