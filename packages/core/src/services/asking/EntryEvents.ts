/**
 * Tells the program about the entries that this process stores, and about asks that fail.
 */
import { Context, Effect, Layer, Queue, Stream } from "effect";
import type { Chat } from "../../model/Chat.ts";
import type { Entry, Usage } from "../../model/Entry.ts";
import type { AskError } from "../../model/Errors.ts";
import type { ChatbotId } from "../../model/Ids.ts";

/** An entry that this process has just stored: an answer, a flagged question, a post or a hello entry. */
export interface StoredEntry {
  readonly chatbot: ChatbotId;
  readonly chat: Chat;
  readonly entry: Entry;
  readonly usage: Usage | null;
}

interface Events {
  readonly entry: StoredEntry;
  readonly failure: AskError;
}

const makeEvents = () => {
  const listeners = { entry: new Set(), failure: new Set() } as {
    readonly [Kind in keyof Events]: Set<(event: Events[Kind]) => void>;
  };
  const publish = <Kind extends keyof Events>(kind: Kind, event: Events[Kind]): void => {
    for (const listener of listeners[kind]) listener(event);
  };
  /** Calls a function for each event from now on, in the step in which it happens. The function must not throw. */
  const subscribe = <Kind extends keyof Events>(
    kind: Kind,
    listener: (event: Events[Kind]) => void,
  ) => {
    listeners[kind].add(listener);
    return () => void listeners[kind].delete(listener);
  };
  /**
   * The entries that are stored from now on, each once, after it is durable. Imported entries, replays and what other
   * processes store are not among them. What a slow reader has not read is kept in memory.
   */
  const stored = Stream.callback<StoredEntry>((queue) =>
    Effect.acquireRelease(
      Effect.sync(() => subscribe("entry", (event) => void Queue.offerUnsafe(queue, event))),
      (unsubscribe) => Effect.sync(unsubscribe),
    ),
  );
  return { publish, subscribe, stored };
};

/** What happens in this process. Programs that build {@link layerEntryEvents} can listen. */
export const EntryEvents = Context.Reference("@parley/core/EntryEvents", {
  defaultValue: makeEvents,
});
export type EntryEvents = typeof EntryEvents.Service;

export const layerEntryEvents = Layer.sync(EntryEvents, makeEvents);
