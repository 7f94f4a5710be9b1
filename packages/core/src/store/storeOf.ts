/**
 * Makes the five ports of a store from its rows.
 */
import { Cause, Context, Effect, Exit } from "effect";
import { ChatArchive } from "../ports/ChatArchive.ts";
import { ChatbotDirectory } from "../ports/ChatbotDirectory.ts";
import { ChatbotRegistry } from "../ports/ChatbotRegistry.ts";
import { ChatStore } from "../ports/ChatStore.ts";
import type { StorePorts } from "../ports/Store.ts";
import { TurnStore } from "../ports/TurnStore.ts";
import { operation } from "../services/Telemetry.ts";
import { makeChatArchive } from "./Archive.ts";
import { makeChatChanges, makeChats } from "./StoredChats.ts";
import { makeChatbotDirectory, makeChatbotRegistry } from "./Registry.ts";
import type { ColdRows, Rows } from "./Rows.ts";
import { makeTurnStore } from "./Turns.ts";

/** The ports that a store may implement by itself, if a round trip for each verb would be too slow. */
export interface HotPorts {
  readonly chats: ReturnType<typeof makeChats>;
  readonly turns: TurnStore["Service"];
}

/**
 * Returns the five ports of a store. Each call makes another instance, with a place of its own in the queues of chats.
 * A store that implements the ports `hot` by itself needs only the verbs of `ColdTx`.
 */
export const storeOf: {
  (rows: Rows): Context.Context<StorePorts>;
  (rows: ColdRows, hot: HotPorts): Context.Context<StorePorts>;
} = (rows: ColdRows, hot?: HotPorts) => {
  const chats = { ...(hot?.chats ?? makeChats(rows as Rows)), ...makeChatChanges(rows) };
  const turns = hot?.turns ?? makeTurnStore(rows as Rows);
  return Context.make(ChatStore, {
    createChat: operation("ChatStore.createChat")(chats.createChat),
    listChats: operation("ChatStore.listChats")(chats.listChats),
    listEntries: operation("ChatStore.listEntries")(chats.listEntries),
    renameChat: operation("ChatStore.renameChat")(chats.renameChat),
    rateEntry: operation("ChatStore.rateEntry")(chats.rateEntry),
  }).pipe(
    Context.add(TurnStore, {
      ...turns,
      take: operation("TurnStore.take")(turns.take),
      renew: operation("TurnStore.renew")(turns.renew),
      append: operation("TurnStore.append")(turns.append),
      release: operation("TurnStore.release")(turns.release),
      stop: operation("TurnStore.stop")(turns.stop),
    }),
    Context.add(ChatArchive, makeChatArchive(rows)),
    Context.add(ChatbotDirectory, makeChatbotDirectory(rows)),
    Context.add(ChatbotRegistry, makeChatbotRegistry(rows)),
  );
};

/**
 * Runs a transaction's body in one synchronous step, in which no other fiber runs. A body that waits ends with a defect,
 * and its fiber is interrupted.
 */
export const runInOneStep = <A, E, R>(
  body: Effect.Effect<A, E, R>,
  context: Context.Context<R>,
): Exit.Exit<A, E> => {
  const exit = Effect.runSyncExitWith(context)(body);
  if (Exit.isFailure(exit)) {
    const defect = Cause.squash(exit.cause);
    if (Cause.isAsyncFiberError(defect)) defect.fiber.interruptUnsafe();
  }
  return exit;
};
