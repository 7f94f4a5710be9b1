/**
 * The calls of the ports that commands to a registry stand for.
 */
import { Effect, Result } from "effect";
import { defaultSettings } from "../Chatbot.ts";
import { ChatbotDirectory, type Scope } from "../ChatbotDirectory.ts";
import type {
  ChatbotChange,
  ChatbotRegistry,
  KeyChange,
  KeyRecord,
  NewChatbot,
  Replacement,
} from "../ChatbotRegistry.ts";
import type { RegistryWrite } from "./RegistryCommand.ts";
import type { RegistryModel } from "./RegistryModel.ts";

/** A write as the ports get it. */
export type Call =
  | { readonly _tag: "Create"; readonly chatbot: NewChatbot }
  | { readonly _tag: "Change"; readonly id: number; readonly change: ChatbotChange }
  | { readonly _tag: "RenameWorkspace"; readonly from: string; readonly to: string }
  | { readonly _tag: "AddKey"; readonly id: number; readonly key: KeyRecord }
  | {
      readonly _tag: "ChangeKey";
      readonly id: number;
      readonly keyId: string;
      readonly change: KeyChange;
    }
  | {
      readonly _tag: "ReplaceKey";
      readonly id: number;
      readonly keyId: string;
      readonly by: Replacement;
      readonly end: Date;
    }
  | { readonly _tag: "RevokeKey"; readonly id: number; readonly keyId: string }
  | { readonly _tag: "Use"; readonly keyIds: ReadonlyArray<string> };

const absent = 1_999_999_999;

/** The call that a command stands for, of what is there at the `step`th; the names begin with the prefix. */
export const callOf = (
  {
    model,
    prefix,
    step,
  }: { readonly model: RegistryModel; readonly prefix: string; readonly step: number },
  command: RegistryWrite,
): Call => {
  const own = (suffix: string) => prefix + suffix;
  const chatbot = (n: number) => (n === 9 ? undefined : model[n % Math.max(1, model.length)]);
  const keyOf = (n: number, of: number) => {
    const one = chatbot(of);
    const theirs = model.filter((other) => other !== one).flatMap(({ keys }) => keys);
    const keys = n === 9 ? theirs : (one?.keys ?? []);
    return keys[n % Math.max(1, keys.length)]?.id ?? own("?");
  };
  const idOf = (n: number) => chatbot(n)?.chatbot.id ?? absent;
  const time = <End extends string | null>(end: End) =>
    (end === null ? null : new Date(end)) as End extends null ? null : Date;
  const scopesOf = (scopes: string) => scopes.split(",").filter(Boolean) as Array<Scope>;
  // A hash may be part of more bytes.
  const hashOf = (id: string) =>
    Uint8Array.from({ length: 64 }, (_, n) => (n * step + id.charCodeAt(0)) % 256).subarray(16, 48);
  const record = (key: {
    readonly id: string;
    readonly name: string | null;
    readonly scopes: string;
    readonly expiresAt: string | null;
  }): KeyRecord => ({
    id: own(key.id),
    hash: hashOf(key.id),
    name: key.name,
    scopes: scopesOf(key.scopes),
    expiresAt: time(key.expiresAt),
  });
  switch (command._tag) {
    case "Create": {
      const { description, keys, name, settings, workspace } = command;
      return {
        _tag: "Create",
        chatbot: {
          workspaceName: own(workspace),
          name,
          description,
          settings: { ...defaultSettings, ...settings },
          keys: keys.map(record),
        },
      };
    }
    case "Change": {
      const { _tag, chatbot: of, workspace, ...rest } = command;
      const change = workspace === undefined ? rest : { ...rest, workspaceName: own(workspace) };
      return { _tag, id: idOf(of), change };
    }
    case "RenameWorkspace":
      return { _tag: "RenameWorkspace", from: own(command.from), to: own(command.to) };
    case "AddKey":
      return { _tag: "AddKey", id: idOf(command.chatbot), key: record(command) };
    case "ChangeKey": {
      const { _tag, chatbot: of, expiresAt, key, name, scopes } = command;
      const change = {
        ...(name === undefined ? {} : { name }),
        ...(scopes === undefined ? {} : { scopes: scopesOf(scopes) }),
        ...(expiresAt === undefined ? {} : { expiresAt: time(expiresAt) }),
      };
      return { _tag, id: idOf(of), keyId: keyOf(key, of), change };
    }
    case "ReplaceKey": {
      const { _tag, by, chatbot: of, end, expiresAt, key } = command;
      return {
        _tag,
        id: idOf(of),
        keyId: keyOf(key, of),
        by: { id: own(by), hash: hashOf(by), expiresAt: time(expiresAt) },
        end: time(end),
      };
    }
    case "RevokeKey":
      return {
        _tag: "RevokeKey",
        id: idOf(command.chatbot),
        keyId: keyOf(command.key, command.chatbot),
      };
    case "Use":
      return { _tag: "Use", keyIds: command.keys.map(own) };
  }
};

/** Does it, and tells what came of it or with what it failed. */
export const perform = (
  registry: ChatbotRegistry["Service"],
  call: Call,
  actor: string,
): Effect.Effect<unknown, never, ChatbotDirectory> => {
  const outcome = <A, E>(done: Effect.Effect<A, E>) =>
    Effect.map(Effect.result(done), Result.merge);
  switch (call._tag) {
    case "Create":
      return outcome(registry.create(call.chatbot, actor));
    case "Change":
      return outcome(registry.change(call.id, call.change, actor));
    case "RenameWorkspace":
      return outcome(Effect.asVoid(registry.renameWorkspace(call.from, call.to, actor)));
    case "AddKey":
      return outcome(Effect.asVoid(registry.addKey(call.id, call.key, actor)));
    case "ChangeKey":
      return outcome(Effect.asVoid(registry.changeKey(call.id, call.keyId, call.change, actor)));
    case "ReplaceKey":
      return outcome(registry.replaceKey(call.id, call.keyId, call.by, call.end, actor));
    case "RevokeKey":
      return outcome(Effect.asVoid(registry.revokeKey(call.id, call.keyId, actor)));
    case "Use":
      return ChatbotDirectory.use((directory) =>
        outcome(Effect.asVoid(directory.used(call.keyIds))),
      );
  }
};
