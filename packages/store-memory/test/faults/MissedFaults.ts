/**
 * Faults of strangers that the kit once missed, or found by luck alone.
 */
import {
  fold,
  RetryKeyReused,
  retryKeyLifetime,
  turnLease,
  type ArchiveRecord,
  type Chat,
  type Taken,
  type Turn,
} from "@parley/core";
import { Clock, Deferred, Effect, Fiber, PubSub, Stream } from "effect";
import { atPresent, makeMemory, type Memory } from "../../src/Memory.ts";
import { makeChatArchive } from "../../src/MemoryChatArchive.ts";
import { entryOf, makeChatStore } from "../../src/MemoryChatStore.ts";
import { makeTurnStore } from "../../src/MemoryTurnStore.ts";
import {
  isHeld,
  knownRequest,
  withoutTurn,
  type StoredChat,
  type Tenant,
} from "../../src/Tenant.ts";
import { searched, withArchive, withChats, withErasures, withTurns, type Fault } from "./Faults.ts";
import { inLine } from "./Line.ts";

/** The same memory, where a chatbot is seen as `see` shows it. */
const seen = (memory: Memory, see: (tenant: Tenant) => Partial<Tenant>): Memory => ({
  ...memory,
  tenant: (chatbot) => {
    const tenant = memory.tenant(chatbot);
    return { ...tenant, ...see(tenant) };
  },
});

/** Whether a pattern of SQL's LIKE, with `\` as its escape, covers a text. */
const isLike = (text: string, pattern: string): boolean => {
  let source = "";
  const points = [...pattern];
  for (let i = 0; i < points.length; i++) {
    let point = points[i]!;
    if (point === "%") source += "[^]*";
    else if (point === "_") source += "[^]";
    else {
      if (point === "\\" && i + 1 < points.length) point = points[++i]!;
      source += point.replace(/[\\^$.*+?()[\]{}|]/, "\\$&");
    }
  }
  return new RegExp(`^${source}$`, "u").test(text);
};

/** As long as a statement takes, by no test clock. */
const roundTrip = Effect.promise(() => new Promise((resolve) => setTimeout(resolve, 2)));

export const missedFaults: ReadonlyArray<Fault> = [
  // ChatArchive.erase: "Erases the chats with everything that refers to them".
  {
    name: "an instance replays a key's answer from its own cache, also after another instance erased it",
    break: (stores) => {
      const cache = new Map<string, { fingerprint: string; until: number; done: Taken }>();
      const { append, take } = stores.turns;
      const caching = withTurns(stores, {
        append: (turn, entry) =>
          Effect.tap(append(turn, entry), (made) =>
            Effect.map(Clock.currentTimeMillis, (now) => {
              if (turn.retryKey === null) return;
              const { fingerprint, key } = turn.retryKey;
              const done: Taken = { _tag: "Done", entry: made, turn: turn.id };
              const until = now + retryKeyLifetime;
              cache.set(`${turn.chatbot}/${key}`, { fingerprint, until, done });
            }),
          ),
        take: (chatbot, chat, key) =>
          atPresent((now) => {
            const known = key === null ? undefined : cache.get(`${chatbot}/${key.key}`);
            return known?.fingerprint === key?.fingerprint &&
              known !== undefined &&
              known.until > now
              ? Effect.succeed(known.done)
              : take(chatbot, chat, key);
          }),
      });
      return withArchive(caching, {
        erase: (chatbot, which) =>
          Effect.tap(stores.archive.erase(chatbot, which), () => Effect.sync(() => cache.clear())),
      });
    },
  },

  // TurnStore.earlier: "entries older than entry `before`, newest first" (none is excepted; fewer than 20 are the last).
  {
    name: "earlier drops flagged entries after the limit, so that a page seems to be the last and the prompt ends there",
    break: (stores) =>
      withTurns(stores, {
        earlier: (turn, before) =>
          Effect.map(stores.turns.earlier(turn, before), (entries) =>
            entries.filter(({ flagged }) => !flagged),
          ),
      }),
  },

  // Erasable: "Which chats to erase"; ChatArchive.erase: "Erases the chats … gives how many there were."
  {
    name: "an erasure of a user's chats ends after its first batch of 100",
    break: (stores, memory) =>
      withArchive(stores, {
        erase: Effect.fnUntraced(function* (chatbot, which) {
          if (which._tag !== "UserRef") return yield* stores.archive.erase(chatbot, which);
          const { chats } = memory.tenant(chatbot);
          const batch = chats.filter(({ userRef }) => userRef === which.userRef).slice(0, 100);
          for (const { id } of batch) yield* stores.archive.erase(chatbot, { _tag: "Chat", id });
          return batch.length;
        }),
      }),
  },

  // ChatArchive.usage: "Sums per provider and model … over the entries stored at that time or later."
  {
    name: "tokens are summed in single precision, so that sums beyond 16.7 million are only about right",
    break: (stores) =>
      withArchive(stores, {
        usage: (chatbot, since) =>
          Effect.map(stores.archive.usage(chatbot, since), (sums) =>
            sums.map((sum) => ({
              ...sum,
              promptTokens: Math.fround(sum.promptTokens),
              completionTokens: Math.fround(sum.completionTokens),
            })),
          ),
      }),
  },

  // TurnStore.append: "Appends the entry"; AskLimits.length: answers have up to 100,000 code units.
  {
    name: "an answer is cut off at 65,535 bytes, the size of its column",
    break: (stores) =>
      withTurns(stores, {
        append: (turn, entry) => {
          const bytes = new TextEncoder().encode(entry.answer);
          if (bytes.length <= 65_535) return stores.turns.append(turn, entry);
          const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
          // Streaming, so that half a character at the end is left out.
          const answer = decoder.decode(bytes.subarray(0, 65_535), { stream: true });
          return stores.turns.append(turn, { ...entry, answer });
        },
      }),
  },

  // ListQuery.orderBy: "At least one field, none twice"; interface 4.3: "applied in the given order".
  {
    name: "a list is sorted by its first two fields only",
    break: (stores) =>
      withChats(stores, {
        listChats: (chatbot, query) => {
          const [first, second] = query.orderBy;
          const orderBy = second === undefined ? ([first] as const) : ([first, second] as const);
          return stores.chats.listChats(chatbot, { ...query, orderBy });
        },
        listEntries: (chatbot, chat, query) => {
          const [first, second] = query.orderBy;
          const orderBy = second === undefined ? ([first] as const) : ([first, second] as const);
          return stores.chats.listEntries(chatbot, chat, { ...query, orderBy });
        },
      }),
  },

  // decisions, Lists: "Text sorts by code point", and so the whole of it.
  {
    name: "entries are sorted by the first 8000 characters of their answers",
    break: (stores, memory) =>
      withChats(stores, {
        listEntries: (chatbot, chat, query) =>
          Effect.suspend(() => {
            const stored = memory.tenant(chatbot).byId.get(chat);
            if (stored === undefined) return stores.chats.listEntries(chatbot, chat, query);
            const cut = stored.entries.map((e) => ({ ...e, answer: e.answer.slice(0, 8000) }));
            const byId = new Map<number, StoredChat>([[chat, { ...stored, entries: cut }]]);
            const whole = new Map(stored.entries.map((entry) => [entry.id, entryOf(entry)]));
            return Effect.map(
              makeChatStore(seen(memory, () => ({ byId }))).listEntries(chatbot, chat, query),
              ({ items, total }) => ({ total, items: items.map(({ id }) => whole.get(id)!) }),
            );
          }),
      }),
  },

  // TurnStore.release: "harmless when it was lost".
  {
    name: "the release of a lost turn forgets the key that another answered meanwhile",
    break: (stores, memory) =>
      withTurns(stores, {
        release: (turn) =>
          Effect.andThen(
            stores.turns.release(turn),
            Effect.sync(() => {
              if (turn.retryKey === null) return;
              const { requests } = memory.tenant(turn.chatbot);
              const known = requests.get(turn.retryKey.key);
              const isAnswered = known !== undefined && known.entry !== null;
              if (isAnswered && known.turn !== turn.id) requests.delete(turn.retryKey.key);
            }),
          ),
      }),
  },

  // TurnStore.leave: "Gives up this instance's place among those that wait ...; harmless without a place".
  {
    name: "leaving the line of a chat frees the turn that is held",
    break: (stores, memory) =>
      withTurns(stores, {
        leave: (chatbot, chat) =>
          Effect.andThen(
            stores.turns.leave(chatbot, chat),
            Effect.sync(() => {
              const stored = memory.tenant(chatbot).byId.get(chat);
              if (stored !== undefined) stored.turn = null;
            }),
          ),
      }),
  },

  // TurnStore.freed: "may miss some and may end", and has no error: it does not die.
  {
    name: "the hints die of the end of a turn that had no chat yet",
    break: (stores) => {
      const broken = Deferred.makeUnsafe<never>();
      const told = (chat: number | null) =>
        Effect.sync(() => {
          const die = Effect.die(new Error("cannot parse the notification"));
          if (chat === null) Deferred.doneUnsafe(broken, die);
        });
      return withTurns(stores, {
        append: (turn, entry) => Effect.tap(stores.turns.append(turn, entry), told(turn.chat)),
        release: (turn) => Effect.tap(stores.turns.release(turn), told(turn.chat)),
        freed: Stream.merge(stores.turns.freed, Stream.fromEffect(Deferred.await(broken))),
      });
    },
  },

  // ChatStore.createChat: "those of entries within a chat, and none is used again after an erasure"
  {
    name: "the ids of erased entries are given again, for the next id is one more than the highest row's",
    break: (stores, memory) => {
      const tenants = new Set<Tenant>();
      const highestRow: Memory = {
        ...memory,
        tenant: (chatbot) => {
          const tenant = memory.tenant(chatbot);
          tenants.add(tenant);
          return tenant;
        },
        addEntry: (chat, entry, now) => {
          const entries = [...tenants].flatMap(({ chats }) => chats.flatMap((one) => one.entries));
          const id = 1 + entries.reduce((highest, row) => Math.max(highest, row.id), 0);
          const stored = { ...memory.addEntry(chat, entry, now), id };
          chat.entries.splice(-1, 1, stored);
          return stored;
        },
      };
      return { ...stores, chats: makeChatStore(highestRow), turns: makeTurnStore(highestRow) };
    },
  },

  // ChatStore.createChat: times are "never earlier than the one before"
  {
    name: "a chat that an append makes gets the clock's time though the chat before is later",
    break: (stores, memory) =>
      withTurns(
        stores,
        makeTurnStore({
          ...memory,
          addChat: (tenant, chat, now) =>
            Object.assign(memory.addChat(tenant, chat, now), { createTime: new Date(now) }),
        }),
      ),
  },

  // Page: "Rows of one page and how many match in all, both of one snapshot."
  {
    name: "a chat's entries are counted first and read afterwards, with room for an append between",
    break: (stores) =>
      withChats(stores, {
        listEntries: Effect.fnUntraced(function* (chatbot, chat, query) {
          const { total } = yield* stores.chats.listEntries(chatbot, chat, query);
          yield* Effect.yieldNow;
          const { items } = yield* stores.chats.listEntries(chatbot, chat, query);
          return { items, total };
        }),
      }),
  },

  // TurnStore.take: "A key whose request ended without a trace is free again", for a creation, too.
  {
    name: "no chat can be created with the key of an ask whose lease ran out",
    break: (stores, memory) =>
      withChats(stores, {
        createChat: (chatbot, chat, key) =>
          atPresent((now) => {
            const tenant = memory.tenant(chatbot);
            // Forgets those that are a day old.
            knownRequest(tenant, "", now);
            const known = tenant.requests.get(key?.key ?? "");
            return key !== null && known !== undefined && known.fingerprint !== key.fingerprint
              ? Effect.fail(new RetryKeyReused({ key: key.key }))
              : stores.chats.createChat(chatbot, chat, key);
          }),
      }),
  },

  // ChatQuery.search: "A literal, case-insensitive part of the name".
  {
    name: "a search is escaped before it is folded, so that wide wildcards stay wildcards",
    break: (stores) =>
      withChats(stores, {
        listChats: (chatbot, query) => {
          if (query.search === null || query.search === "") {
            return stores.chats.listChats(chatbot, query);
          }
          const pattern = `%${fold(query.search.replace(/[\\%_]/g, "\\$&"))}%`;
          return searched(
            stores.chats,
            chatbot,
            query,
            ({ name }) => name !== null && isLike(fold(name), pattern),
          );
        },
      }),
  },

  // ChatArchive.export: "Every chat and entry".
  {
    name: "an export takes a usage without prompt tokens for none",
    break: (stores) =>
      withArchive(stores, {
        export: (chatbot) =>
          Stream.map(stores.archive.export(chatbot), (record): ArchiveRecord =>
            record._tag === "Entry" && !record.usage?.promptTokens
              ? { ...record, usage: null }
              : record,
          ),
      }),
  },

  // Fold: "so that every store finds the same chats".
  {
    name: "the folded name has room for as many characters as the name, though folding can make it longer",
    break: (stores, memory) =>
      withChats(stores, {
        listChats: (chatbot, query) =>
          Effect.suspend(() => {
            for (const chat of memory.tenant(chatbot).chats) {
              const folded = [...(chat.folded ?? "")].slice(0, 255).join("");
              if (chat.folded !== null) Object.assign(chat, { folded });
            }
            return stores.chats.listChats(chatbot, query);
          }),
      }),
  },

  // ChatQuery.search: "A literal, case-insensitive part of the name".
  {
    name: "a search for brackets finds what is one of the characters between them",
    break: (stores) =>
      withChats(stores, {
        listChats: (chatbot, query) => {
          const [before, among, after] = fold(query.search ?? "").split(/[[\]]/);
          if (before === undefined || !among || after === undefined) {
            return stores.chats.listChats(chatbot, query);
          }
          return searched(
            stores.chats,
            chatbot,
            query,
            ({ name }) =>
              name !== null && [...among].some((one) => fold(name).includes(before + one + after)),
          );
        },
      }),
  },

  // Held: "`freed` hints at the end of a chat's turn only".
  {
    name: "whatever happens to a chat's turn is told as its end",
    break: (stores) => {
      const hints = Effect.runSync(PubSub.sliding<{ chatbot: number; chat: number }>(100));
      const telling = ({ chat, chatbot }: Turn) =>
        chat === null ? Effect.void : PubSub.publish(hints, { chatbot, chat });
      return withTurns(stores, {
        take: (chatbot, chat, key) =>
          Effect.tap(stores.turns.take(chatbot, chat, key), (taken) =>
            taken._tag === "Turn" ? telling(taken.turn) : Effect.void,
          ),
        renew: (turn) => Effect.tap(stores.turns.renew(turn), () => telling(turn)),
        append: (turn, entry) => Effect.tap(stores.turns.append(turn, entry), () => telling(turn)),
        release: (turn) => Effect.tap(stores.turns.release(turn), () => telling(turn)),
        freed: Stream.fromPubSub(hints),
      });
    },
  },

  // TurnStore.take: "the one that waited longest goes first".
  {
    name: "an instance that asks again while it waits goes to the end of the line",
    break: (stores, memory) => inLine(stores, memory, "goes back"),
  },
  {
    name: "an instance that waits must ask every two seconds, or it loses its place",
    break: (stores, memory) => inLine(stores, memory, "must ask"),
  },

  // TurnStore.leave: "Gives up this instance's place among those that wait for the chat's turn".
  {
    name: "an instance that leaves one chat's line loses its places in all of them",
    break: (stores, memory) => inLine(stores, memory, "leaves all"),
  },

  // ChatStore.createChat: "no two of a chatbot are equal, even after an erasure".
  {
    name: "compacting sets the sequence of the chats back to the highest id that is left",
    break: (stores, memory) => {
      const chatbots = new Set<number>();
      const compacted = new Set<number>();
      return withArchive(
        withChats(stores, {
          createChat: (chatbot, chat, key) =>
            Effect.map(stores.chats.createChat(chatbot, chat, key), (made) => {
              const { byId, chats } = memory.tenant(chatbot);
              chatbots.add(chatbot);
              if (made.replayed || key !== null || !compacted.has(chatbot)) return made;
              const stored = byId.get(made.chat.id)!;
              const id =
                Math.max(0, ...chats.filter((one) => one !== stored).map((one) => one.id)) + 1;
              byId.delete(stored.id);
              byId.set(id, Object.assign(stored, { id }));
              for (const entry of stored.entries) Object.assign(entry, { chatId: id });
              return { ...made, chat: { ...made.chat, id } };
            }),
        }),
        {
          compact: (pace) =>
            Effect.tap(stores.archive.compact(pace), () =>
              Effect.sync(() => chatbots.forEach((chatbot) => compacted.add(chatbot))),
            ),
        },
      );
    },
  },

  // ChatArchive.import: "Stores an export with its ids and times".
  {
    name: "times are imported as a zone's local ones, of which the hour when summer time ends comes twice",
    break: (stores) => {
      const zone = new Intl.DateTimeFormat("en", {
        timeZone: "Europe/Berlin",
        dateStyle: "short",
        timeStyle: "medium",
      });
      const throughZone = (time: Date) => {
        const later = new Date(time.getTime() + 3_600_000);
        return zone.format(time) === zone.format(later) ? later : time;
      };
      return withArchive(stores, {
        import: (chatbot, records) =>
          stores.archive.import(
            chatbot,
            Stream.map(records, (record): ArchiveRecord =>
              record._tag === "Chat"
                ? {
                    ...record,
                    chat: { ...record.chat, createTime: throughZone(record.chat.createTime) },
                  }
                : {
                    ...record,
                    entry: { ...record.entry, createTime: throughZone(record.entry.createTime) },
                  },
            ),
          ),
      });
    },
  },

  // TurnStore.take: "A turn whose lease ran out stays its owner's until another takes it".
  {
    name: "a take sweeps away all retry keys of turns whose lease ran out",
    break: (stores, memory) =>
      withTurns(stores, {
        take: (chatbot, chat, key) =>
          atPresent((now) => {
            const { requests } = memory.tenant(chatbot);
            for (const [name, { holder }] of requests) {
              if (holder !== null && !isHeld(holder, now)) requests.delete(name);
            }
            return stores.turns.take(chatbot, chat, key);
          }),
      }),
  },

  // ChatArchive.import: "Stores an export with its ids and times".
  {
    name: "a history shows times before 1970 that are no whole second a second later",
    break: (stores) => {
      const throughSeconds = (time: Date) => {
        const millis = time.getTime();
        return new Date(Math.trunc(millis / 1000) * 1000 + (((millis % 1000) + 1000) % 1000));
      };
      return withChats(stores, {
        listEntries: (chatbot, chat, query) =>
          Effect.map(stores.chats.listEntries(chatbot, chat, query), ({ items, total }) => ({
            items: items.map((entry) => ({
              ...entry,
              createTime: throughSeconds(entry.createTime),
            })),
            total,
          })),
      });
    },
  },

  // TurnStore.freed: "takes no taking or renewal for one".
  {
    name: "a renewal of a chat's turn is hinted at as if the turn had ended",
    break: (stores) => {
      const renewals = Effect.runSync(
        PubSub.unbounded<{ readonly chatbot: number; readonly chat: number }>(),
      );
      return withTurns(stores, {
        renew: (turn) =>
          Effect.tap(stores.turns.renew(turn), (ours) =>
            ours && turn.chat !== null
              ? PubSub.publish(renewals, { chatbot: turn.chatbot, chat: turn.chat })
              : Effect.void,
          ),
        freed: Stream.merge(stores.turns.freed, Stream.fromPubSub(renewals)),
      });
    },
  },

  // ChatArchive.import: "Refused are a chatbot that has chats".
  {
    name: "an import looks whether there are chats before it reads the records, and not when it stores them",
    break: (stores, memory) =>
      withArchive(stores, {
        import: (chatbot, records) =>
          Effect.suspend(() => {
            const tenant = memory.tenant(chatbot);
            if (tenant.chats.length > 0) return stores.archive.import(chatbot, records);
            const apart = makeMemory();
            return Effect.tap(makeChatArchive(apart).import(chatbot, records), () =>
              Effect.sync(() => {
                for (const chat of apart.tenant(chatbot).chats) {
                  tenant.chats.push(chat);
                  tenant.byId.set(chat.id, chat);
                  memory.moveTo("chat", chat.id);
                  for (const { id } of chat.entries) memory.moveTo("entry", id);
                  tenant.lastTime = Math.max(tenant.lastTime, chat.createTime.getTime());
                }
                tenant.chats.sort((a, b) => a.id - b.id);
              }),
            );
          }),
      }),
  },

  // ChatStore.listEntries: "One page of a chat's entries, and how many match, of one snapshot".
  {
    name: "a history looks whether there is the chat, and then reads entries that are erased meanwhile",
    break: (stores, memory) =>
      withChats(stores, {
        listEntries: (chatbot, chat, query) =>
          Effect.gen(function* () {
            yield* stores.chats.listEntries(chatbot, chat, query);
            yield* roundTrip;
            if (!memory.tenant(chatbot).byId.has(chat)) return { items: [], total: 0 };
            return yield* stores.chats.listEntries(chatbot, chat, query);
          }),
      }),
  },

  // ChatStore.createChat: "Times are … never earlier than the one before, were it erased".
  {
    name: "the time of a chat is not before that of the newest chat that is left",
    break: (stores, memory) =>
      withErasures(stores, memory, (chatbot) => {
        const tenant = memory.tenant(chatbot);
        tenant.lastTime = tenant.chats.at(-1)?.createTime.getTime() ?? -Infinity;
      }),
  },

  // TurnStore.take: "whoever takes it by the chat or by the key takes both, for ever".
  {
    name: "a turn that another took is its first owner's again when the other has ended",
    break: (stores, memory) => {
      const taken = new Map<string, StoredChat>();
      const comesBack = (turn: Turn) =>
        Effect.map(Clock.currentTimeMillis, (now) => {
          const chat = memory.tenant(turn.chatbot).byId.get(turn.chat ?? 0);
          if (chat === undefined || chat !== taken.get(turn.id) || chat.turn !== null) return;
          chat.turn = { turn: turn.id, until: now };
        });
      const { append, release, renew, take } = stores.turns;
      return withTurns(stores, {
        take: (chatbot, chat, key) =>
          Effect.tap(take(chatbot, chat, key), (outcome) =>
            Effect.sync(() => {
              const stored = memory.tenant(chatbot).byId.get(chat ?? 0);
              if (outcome._tag === "Turn" && stored !== undefined) {
                taken.set(outcome.turn.id, stored);
              }
            }),
          ),
        renew: (turn) => Effect.andThen(comesBack(turn), renew(turn)),
        append: (turn, entry) =>
          Effect.andThen(
            comesBack(turn),
            Effect.tap(append(turn, entry), () => Effect.sync(() => taken.delete(turn.id))),
          ),
        release: (turn) =>
          Effect.andThen(
            Effect.sync(() => taken.delete(turn.id)),
            release(turn),
          ),
      });
    },
  },

  // TurnStore.append: "Appends the entry, …, ends the turn and settles its retry key".
  {
    name: "an append whose caller is interrupted stores the entry and does not end the turn",
    break: (stores, memory) =>
      withTurns(stores, {
        append: (turn, entry) =>
          roundTrip.pipe(
            Effect.onInterrupt(() =>
              Effect.map(Clock.currentTimeMillis, (now) => {
                const chat = memory.tenant(turn.chatbot).byId.get(turn.chat ?? 0);
                if (chat?.turn?.turn === turn.id) memory.addEntry(chat, entry, now);
              }),
            ),
            Effect.andThen(stores.turns.append(turn, entry)),
          ),
      }),
  },

  // docs/embedding.md: "A call that is interrupted is over when its interruption is".
  {
    name: "a chat that waits for its writer is made although its caller was interrupted",
    break: (stores) =>
      withChats(stores, {
        createChat: (...call) =>
          Effect.andThen(roundTrip, stores.chats.createChat(...call)).pipe(
            Effect.forkDetach,
            Effect.flatMap(Fiber.join),
          ),
      }),
  },

  // ChatArchive.export: "Every chat and entry of the chatbot, of one snapshot".
  {
    name: "the export after one that was not read to its end shows what that began with",
    break: (stores) => {
      const begun = new Map<number, ReadonlyArray<ArchiveRecord>>();
      return withArchive(stores, {
        export: (chatbot) =>
          Stream.unwrap(
            Effect.gen(function* () {
              const records =
                begun.get(chatbot) ?? (yield* Stream.runCollect(stores.archive.export(chatbot)));
              begun.set(chatbot, records);
              return Stream.onEnd(
                Stream.rechunk(Stream.fromIterable(records), 1),
                Effect.sync(() => begun.delete(chatbot)),
              );
            }),
          ),
      });
    },
  },

  // TurnStore.earlier: "entries with ids below `before`".
  {
    name: "the entries before an id that is another chat's are counted from the newest",
    break: (stores, memory) =>
      withTurns(stores, {
        earlier: (turn, before) => {
          const chat = memory.tenant(turn.chatbot).byId.get(turn.chat ?? 0);
          const isOurs = chat?.entries.some(({ id }) => id === before) ?? false;
          return stores.turns.earlier(turn, isOurs ? before : Number.MAX_SAFE_INTEGER);
        },
      }),
  },

  // ChatArchive.erase: "with everything that refers to them, the retry keys of asks under way, too".
  {
    name: "an erasure leaves the retry keys of asks under way",
    break: (stores, memory) =>
      withArchive(stores, {
        erase: (chatbot, which) =>
          Effect.suspend(() => {
            const { requests } = memory.tenant(chatbot);
            const asking = [...requests].filter(([, { holder }]) => holder !== null);
            return Effect.tap(stores.archive.erase(chatbot, which), () =>
              Effect.sync(() => {
                for (const [key, request] of asking) requests.set(key, request);
              }),
            );
          }),
      }),
  },

  // ChatArchive.import: "Stores an export with its ids and times, whole or not at all".
  {
    name: "an import that is interrupted leaves the chats that it had read",
    break: (stores, memory) =>
      withArchive(stores, {
        import: (chatbot, records) =>
          Effect.suspend(() => {
            const tenant = memory.tenant(chatbot);
            const read: Array<Chat> = [];
            const noted = Stream.tap(records, (record) =>
              Effect.sync(() => record._tag === "Chat" && read.push(record.chat)),
            );
            return Effect.onInterrupt(stores.archive.import(chatbot, noted), () =>
              Effect.sync(() => {
                for (const chat of read) {
                  const stored = { ...chat, folded: null, entries: [], ...withoutTurn };
                  tenant.chats.push(stored);
                  tenant.byId.set(chat.id, stored);
                }
              }),
            );
          }),
      }),
  },

  // ChatArchive.erase: "with everything that refers to them, the retry keys of asks under way, too".
  {
    name: "an erasure leaves the retry keys of asks under way that were renewed",
    break: (stores, memory) => {
      const renewed = new Set<string>();
      return withArchive(
        withTurns(stores, {
          renew: (turn) =>
            Effect.tap(stores.turns.renew(turn), (ours) =>
              Effect.sync(() => ours && renewed.add(turn.id)),
            ),
        }),
        {
          erase: (chatbot, which) =>
            Effect.suspend(() => {
              const { requests } = memory.tenant(chatbot);
              const left = [...requests].filter(([, { holder }]) =>
                renewed.has(holder?.turn ?? ""),
              );
              return Effect.tap(stores.archive.erase(chatbot, which), () =>
                Effect.sync(() => {
                  for (const [key, request] of left) requests.set(key, request);
                }),
              );
            }),
        },
      );
    },
  },

  // TurnStore.take: "whoever takes it by the chat or by the key takes both, for ever".
  {
    name: "a renewal that finds the chat taken holds the retry key for another lease",
    break: (stores, memory) =>
      withTurns(stores, {
        renew: (turn) =>
          Effect.tap(stores.turns.renew(turn), (ours) =>
            Effect.map(Clock.currentTimeMillis, (now) => {
              if (ours || turn.retryKey === null) return;
              const { requests } = memory.tenant(turn.chatbot);
              const request = requests.get(turn.retryKey.key);
              if (request?.holder?.turn !== turn.id) return;
              const holder = { ...request.holder, until: now + turnLease };
              requests.set(turn.retryKey.key, { ...request, holder });
            }),
          ),
      }),
  },

  // ChatArchive.usage: "Sums per provider and model".
  {
    name: "the sum of attempts is of 32 bits",
    break: (stores) =>
      withArchive(stores, {
        usage: (chatbot, since) =>
          Effect.map(stores.archive.usage(chatbot, since), (sums) =>
            sums.map((sum) => ({ ...sum, attempts: sum.attempts | 0 })),
          ),
      }),
  },

  // Erasable: "Chats that were made before the limit and have no entry since".
  {
    name: "a chat without entries counts as used in 1970",
    break: (stores, memory) =>
      withArchive(stores, {
        erase: (chatbot, which) =>
          Effect.suspend(() => {
            const tenant = memory.tenant(chatbot);
            const spared = tenant.chats.filter(
              ({ entries }) =>
                entries.length === 0 && which._tag === "IdleSince" && which.limit.getTime() <= 0,
            );
            return Effect.map(stores.archive.erase(chatbot, which), (erased) => {
              const back = spared.filter(({ id }) => !tenant.byId.has(id));
              for (const chat of back) tenant.byId.set(chat.id, chat);
              tenant.chats.push(...back);
              tenant.chats.sort((a, b) => a.id - b.id);
              return erased - back.length;
            });
          }),
      }),
  },

  // ChatArchive.compact: "Whether that is done as far as the pace and the role allow".
  {
    name: "a compaction is never done",
    break: (stores) =>
      withArchive(stores, { compact: (pace) => Effect.as(stores.archive.compact(pace), false) }),
  },
];
