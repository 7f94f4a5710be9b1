/**
 * What a store promises of everything that two instances do at once.
 */
import { Cause, Effect, Exit, Fiber, Result, Stream } from "effect";
import type { Chat } from "../Chat.ts";
import { ChatArchive } from "../ChatArchive.ts";
import { ChatStore } from "../ChatStore.ts";
import { newest, newestChats, type ChatQuery } from "../ListQuery.ts";
import type { RetryKey } from "../RetryKey.ts";
import { turnLease, TurnStore } from "../TurnStore.ts";
import { check, same, type Check } from "./Check.ts";
import {
  after,
  atOnce,
  bare,
  chatRecord,
  conversation,
  create,
  entry,
  entryRecord,
  instances,
  newChatbot,
  pass,
  peek,
  taken,
} from "./Fixtures.ts";
import { chatPage } from "./Model.ts";
import type { StoreUnderTest } from "./StoreUnderTest.ts";
import { watchedCheck } from "./Watched.ts";

/** What became of several at once: `stored`, or why not. */
const tagsOf = <A, E extends { readonly _tag: string }, R>(
  n: number,
  effect: (at: number) => Effect.Effect<A, E, R>,
) =>
  Effect.map(
    atOnce(n, (at) => Effect.result(effect(at))),
    (results) =>
      results
        .map((result) => (Result.isSuccess(result) ? "stored" : result.failure._tag))
        .toSorted(),
  );

/** Lists of few chats at once: all of them are on one page. */
const wholeLists: ReadonlyArray<ChatQuery> = [
  {},
  { userRef: "gone" },
  { search: "GO" },
  { search: "n", userRef: "kept" },
  { orderBy: [{ field: "name", descending: false }] as const },
  { orderBy: [{ field: "userRef", descending: true }] as const },
  { orderBy: [{ field: "_createTime", descending: false }] as const },
].map((more) => ({ ...newestChats, limit: 100, ...more }));

export const raceChecks: ReadonlyArray<
  Check<ChatStore | TurnStore | ChatArchive | StoreUnderTest>
> = [
  check(
    "what two instances create, ask and erase at once is there or gone, and every page is of one snapshot",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const both = yield* instances;
      const kept = new Map<number, Array<string>>();
      let [goneMade, goneErased] = [0, 0];
      const writer = (n: number) =>
        Effect.gen(function* () {
          const { archive, chats, turns } = both[n % 2]!;
          for (let round = 0; round < 4; round++) {
            for (const userRef of ["kept", "gone"]) {
              const wanted = { ...bare, name: `${userRef} ${n}`, userRef };
              const { chat } = yield* chats.createChat(chatbot, wanted, null);
              if (userRef === "kept") kept.set(chat.id, []);
              else goneMade++;
              const question = `question ${n} ${round}`;
              const taken = yield* turns.take(chatbot, chat.id, null).pipe(
                // An erasure may come between.
                Effect.catchTag("ChatNotFound", () => Effect.succeed(null)),
              );
              if (taken?._tag !== "Turn") continue;
              yield* turns.append(taken.turn, entry(question)).pipe(
                Effect.tap(() => Effect.sync(() => kept.get(chat.id)?.push(question))),
                Effect.catchTag("ChatNotFound", () => Effect.void),
              );
            }
            if (n < 2) {
              const count = yield* archive.erase(chatbot, { _tag: "UserRef", userRef: "gone" });
              goneErased += count;
            }
          }
        });
      const writing = yield* Effect.forkChild(atOnce(6, writer), { startImmediately: true });
      while (writing.pollUnsafe() === undefined) {
        for (const { chats } of both) {
          for (const query of wholeLists) {
            const { items, total } = yield* chats.listChats(chatbot, query);
            const what = `the page of ${JSON.stringify(query)}`;
            yield* same(`as many rows as the total says on ${what}`, items.length, total);
            yield* same(what, items, chatPage(items, query).items);
          }
        }
        yield* Effect.yieldNow;
      }
      yield* Fiber.join(writing);
      const stored = yield* peek(chatbot);
      const left = stored.filter(({ userRef }) => userRef === "gone").length;
      yield* same("how many are gone", goneErased, goneMade - left);
      yield* same(
        "the questions of the others",
        new Map(
          stored
            .filter(({ userRef }) => userRef === "kept")
            .map(({ entries, id }) => [id, entries.map(({ question }) => question)]),
        ),
        kept,
      );
      const all = stored.map(({ entries: _, ...chat }): Chat => chat);
      for (const { chats } of both) {
        for (const query of wholeLists) {
          const what = `at last, the page of ${JSON.stringify(query)}`;
          yield* same(what, yield* chats.listChats(chatbot, query), chatPage(all, query));
        }
        for (const { entries, id } of stored) {
          const { total } = yield* chats.listEntries(chatbot, id, newest);
          yield* same("the total of a history", total, entries.length);
        }
      }
    }),
  ),

  check(
    "a retry key that comes at once with several requests makes something for one of them",
    Effect.fnUntraced(function* () {
      const both = yield* instances;
      for (let round = 0; round < 4; round++) {
        const chatbot = yield* newChatbot;
        const { id } = yield* create(chatbot);
        const outcomes = yield* atOnce(18, (n) =>
          Effect.gen(function* () {
            const { chats, turns } = both[n % 2]!;
            const kind = (n + round) % 3;
            const retryKey = { key: "key", fingerprint: `request ${kind}` };
            if (kind === 0) {
              const { replayed } = yield* chats.createChat(chatbot, bare, retryKey);
              return replayed ? "again by 0" : "made by 0";
            }
            const taken = yield* turns.take(chatbot, kind === 1 ? null : id, retryKey);
            // Of one chat there may also be another's turn to wait for.
            if (taken._tag === "Held") return taken.by === "key" ? `again by ${kind}` : "nothing";
            if (taken._tag === "Done") return `again by ${kind}`;
            yield* turns.append(taken.turn, entry("q"));
            return `made by ${kind}`;
          }).pipe(Effect.catchTag("RetryKeyReused", () => Effect.succeed("nothing"))),
        );
        const made = outcomes.filter((one) => one.startsWith("made"));
        yield* same("how many made something", made.length, 1);
        const kinds = outcomes.filter((one) => one !== "nothing").map((one) => one.slice(-1));
        yield* same("how many requests had a part in it", new Set(kinds).size, 1);
        const stored = yield* peek(chatbot);
        const rows = stored.length + stored.flatMap(({ entries }) => entries).length;
        yield* same("chats and entries in the storage", rows, made[0] === "made by 1" ? 3 : 2);
      }
    }),
  ),

  check(
    "a turn that is released while its request comes again leaves nothing that others would wait for",
    Effect.fnUntraced(function* () {
      const [{ turns: first }, { turns: second }] = yield* instances;
      const chatbot = yield* newChatbot;
      for (let n = 0; n < 40; n++) {
        const { id } = yield* create(chatbot);
        const retryKey = { key: `key ${n}`, fingerprint: "f" };
        const turn = yield* taken(chatbot, id, retryKey);
        // Who comes again is not the next.
        yield* second.take(chatbot, id, null);
        const [again] = yield* Effect.all(
          [
            Effect.andThen(after(n % 4), first.take(chatbot, id, retryKey)),
            Effect.andThen(after(1), first.release(turn)),
          ],
          { concurrency: 2 },
        );
        if (again._tag === "Turn") yield* first.release(again.turn);
        for (const turns of [first, second]) yield* turns.leave(chatbot, id);
        const next = yield* first.take(chatbot, id, retryKey);
        yield* same("the next take", next._tag, "Turn");
      }
    }),
  ),

  check(
    "what can be done once is done once, whoever else tries at the same time",
    Effect.fnUntraced(function* () {
      const both = yield* instances;
      const chatbot = yield* newChatbot;
      const { id } = yield* create(chatbot);
      const taken = yield* atOnce(8, (n) => both[n % 2]!.turns.take(chatbot, id, null));
      const turns = taken.flatMap((one) => (one._tag === "Turn" ? [one.turn] : []));
      yield* same("how many have the turn", turns.length, 1);
      for (const retryKey of [null, { key: "key", fingerprint: "f" }]) {
        let turn = turns[0]!;
        if (retryKey !== null) {
          const again = yield* both[0].turns.take(chatbot, null, retryKey);
          if (again._tag !== "Turn") return yield* same("a turn", again._tag, "Turn");
          turn = again.turn;
        }
        const appended = yield* tagsOf(4, (n) => both[n % 2]!.turns.append(turn, entry(`q${n}`)));
        const expected = ["TurnLost", "TurnLost", "TurnLost", "stored"];
        yield* same("what came of the appends", appended, expected);
      }
      const stored = yield* peek(chatbot);
      yield* same(
        "the entries of each chat",
        stored.map(({ entries }) => entries.length),
        [1, 1],
      );
      const erased = yield* atOnce(4, (n) =>
        both[n % 2]!.archive.erase(chatbot, { _tag: "Chat", id }),
      );
      yield* same("how often it was erased", erased.toSorted(), [0, 0, 0, 1]);
      const to = yield* newChatbot;
      const time = new Date(1_700_000_000_000);
      const imports = yield* tagsOf(4, (n) =>
        both[n % 2]!.archive.import(
          to,
          Stream.make(chatRecord(1, time, { name: `${n}` }), entryRecord(1, 1, time, `${n}`)),
        ),
      );
      const refused = ["ImportRefused", "ImportRefused", "ImportRefused", "stored"];
      yield* same("what came of the imports", imports, refused);
      const [chat, ...more] = yield* peek(to);
      yield* same("other chats", more, []);
      yield* same(
        "its entries",
        chat!.entries.map(({ question }) => question),
        [chat!.name],
      );
    }),
  ),

  check(
    "of an append in a turn that ran out and a take of it at once the later sees the earlier",
    Effect.fnUntraced(function* () {
      const both = yield* instances;
      const chatbot = yield* newChatbot;
      for (let n = 0; n < 4; n++) {
        const { id } = yield* create(chatbot);
        const turn = yield* taken(chatbot, id);
        yield* pass(turnLease + 1);
        const append = both[0].turns.append(turn, entry("late"));
        const take = both[n < 2 ? 0 : 1].turns.take(chatbot, id, null);
        const came = yield* atOnce(2, (at) =>
          at === n % 2
            ? Effect.map(Effect.result(append), (made) => (Result.isSuccess(made) ? 1 : 0))
            : Effect.map(take, (taken) =>
                taken._tag === "Turn" ? taken.turn.newest.length : null,
              ),
        );
        const [made, seen] = n % 2 === 0 ? came : came.toReversed();
        // The chat may be held by who appends.
        yield* same("entries seen by the taker", seen ?? made, made);
        const stored = (yield* peek(chatbot)).find((chat) => chat.id === id);
        yield* same("what lies in the storage", stored!.entries.length, made);
      }
    }),
  ),

  check(
    "a chat that is made while another instance imports comes after the imported ones, or these are refused",
    Effect.fnUntraced(function* () {
      const both = yield* instances;
      const [{ archive, turns }, second] = both;
      for (const asked of [false, true]) {
        const to = yield* newChatbot;
        const turn = yield* taken(to, null);
        const making = yield* Effect.cached(
          Effect.gen(function* () {
            if (asked) return (yield* second.turns.append(turn, entry("q"))).chatId;
            return (yield* second.chats.createChat(to, bare, null)).chat.id;
          }),
        );
        const meanwhile = Effect.gen(function* () {
          yield* Effect.forkDetach(making, { startImmediately: true });
          // It may have to wait for the import.
          yield* Effect.raceFirst(Effect.exit(making), after(100));
        });
        // Their ids are greater than that of a chat that is made before them.
        const { id } = yield* create(yield* newChatbot);
        const time = new Date(1_700_000_000_000);
        const ids = Array.from({ length: 1_050 }, (_, n) => id + 1_000 + n);
        const [last, ...others] = ids.map((one) => chatRecord(one, time)).toReversed();
        const records = Stream.concat(
          Stream.fromIterable(others.toReversed()),
          Stream.unwrap(Effect.as(meanwhile, Stream.make(last!))),
        );
        const imported = yield* Effect.result(archive.import(to, records));
        const made = yield* Effect.result(making);
        // It may also be told that it would wait for long.
        if (Result.isFailure(made)) yield* same("why not", made.failure._tag, "Overloaded");
        const later = Result.isSuccess(made) ? [made.success] : [];
        if (Result.isFailure(imported)) {
          yield* same("why not", imported.failure._tag, "ImportRefused");
        }
        const kept = Result.isSuccess(imported) ? [...ids, ...later] : later;
        const stored = yield* peek(to);
        yield* same(
          "the chats in the storage",
          stored.map((chat) => chat.id),
          kept,
        );
        const all = stored.map(({ entries: _, ...chat }): Chat => chat);
        for (const { chats } of both) {
          yield* same(
            "the newest",
            yield* chats.listChats(to, newestChats),
            chatPage(all, newestChats),
          );
        }
        yield* turns.release(turn);
      }
    }),
  ),

  check(
    "what is read of a chat while it is erased is whole, or not found",
    Effect.fnUntraced(function* () {
      const both = yield* instances;
      const chatbot = yield* newChatbot;
      for (let round = 0; round < 10; round++) {
        const { chat, entries } = yield* conversation(chatbot, [entry("a"), entry("b")]);
        const newestFirst = entries.toReversed();
        const reader = (n: number) =>
          Effect.gen(function* () {
            const { chats, turns } = both[n % 2]!;
            while (true) {
              const page = yield* chats.listEntries(chatbot, chat.id, newest);
              yield* same("its history", page, { items: newestFirst, total: 2 });
              const outcome = yield* turns.take(chatbot, chat.id, null);
              yield* Effect.yieldNow;
              if (outcome._tag !== "Turn") continue;
              yield* same("what a turn brings", outcome.turn.newest, newestFirst);
              yield* turns.release(outcome.turn);
            }
          }).pipe(Effect.catchTag("ChatNotFound", () => Effect.void));
        const reading = yield* Effect.forkChild(atOnce(4, reader), { startImmediately: true });
        yield* after(round % 5);
        yield* both[1].archive.erase(chatbot, { _tag: "Chat", id: chat.id });
        yield* Fiber.join(reading);
      }
    }),
  ),

  check(
    "who is interrupted leaves nothing half done, and nothing that others would wait for",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const both = yield* instances;
      const [{ archive }] = both;
      const time = new Date(1_700_000_000_000);
      const to = yield* newChatbot;
      const many = Array.from({ length: 500 }, (_, n) => chatRecord(n + 1, time));
      yield* archive.import(to, Stream.fromIterable(many));
      const asked: Array<readonly [chat: number, retryKey: RetryKey]> = [];
      for (let n = 0; n < 30; n++) {
        const { chats, turns } = both[n % 2]!;
        const wanted = { ...bare, name: "n", helloMessage: "Hello" };
        const { id } = yield* create(chatbot);
        const retryKey = { key: `key ${n}`, fingerprint: "f" };
        asked.push([id, retryKey]);
        const begun: ReadonlyArray<Fiber.Fiber<unknown, unknown>> = [
          yield* Effect.forkChild(chats.createChat(chatbot, wanted, null)),
          yield* Effect.forkChild(
            Effect.flatMap(turns.take(chatbot, id, retryKey), (taken) =>
              taken._tag === "Turn" ? turns.append(taken.turn, entry("q")) : Effect.void,
            ),
          ),
          yield* Effect.forkChild(archive.erase(chatbot, { _tag: "UserRef", userRef: "nobody" })),
        ];
        for (let step = 0; step < n % 5; step++) yield* Effect.yieldNow;
        if (n % 2 === 1) yield* after(n % 8);
        yield* Fiber.interruptAll(begun);
        for (const fiber of begun) {
          const exit = yield* Fiber.await(fiber);
          if (Exit.isFailure(exit) && !Cause.hasInterruptsOnly(exit.cause)) yield* exit;
        }
        yield* Stream.runDrain(Stream.take(archive.export(to), 1));
      }
      const empty = yield* newChatbot;
      for (const { archive } of both) {
        const endless = Stream.concat(Stream.fromIterable(many), Stream.never);
        const importing = yield* Effect.forkChild(archive.import(empty, endless));
        yield* after(20);
        yield* Fiber.interrupt(importing);
        yield* same("what an import that was interrupted stored", yield* peek(empty), []);
      }
      yield* archive.import(empty, Stream.fromIterable(many));
      for (const chat of yield* peek(chatbot)) {
        const { total } = yield* both[1].chats.listEntries(chatbot, chat.id, newest);
        yield* same("the total of a history", total, chat.entries.length);
        if (chat.name === null) continue;
        yield* same("the hello entries", chat.entries.length, 1);
      }
      yield* pass(turnLease + 1);
      for (const [id, retryKey] of asked) {
        const { turns } = both[1];
        const outcome = yield* turns.take(chatbot, id, retryKey);
        const { items } = yield* both[1].chats.listEntries(chatbot, id, newest);
        const made = outcome._tag === "Done" ? [outcome.entry] : [];
        yield* same("what the ask stored", items, made);
        if (outcome._tag === "Turn") yield* turns.release(outcome.turn);
        const next = yield* turns.take(chatbot, id, null);
        yield* same("its turn afterwards", next._tag, "Turn");
      }
      yield* create(chatbot);
    }),
  ),

  check(
    "who is interrupted writes nothing afterwards, however many wait",
    Effect.fnUntraced(function* () {
      const chatbot = yield* newChatbot;
      const both = yield* instances;
      for (let round = 0; round < 6; round++) {
        const begun = yield* Effect.forEach(Array.from({ length: 90 }).keys(), (n) => {
          const { chats, turns } = both[n % 2]!;
          const retryKey = { key: `key ${round} ${n}`, fingerprint: "f" };
          const kinds: ReadonlyArray<Effect.Effect<unknown, unknown>> = [
            chats.createChat(chatbot, bare, null),
            chats.createChat(chatbot, bare, retryKey),
            Effect.flatMap(turns.take(chatbot, null, null), (taken) =>
              taken._tag === "Turn" ? turns.append(taken.turn, entry("q")) : Effect.void,
            ),
          ];
          return Effect.forkChild(kinds[n % 3]!);
        });
        for (let step = 0; step <= round; step++) yield* Effect.yieldNow;
        if (round % 2 === 1) yield* after(round);
        yield* Fiber.interruptAll(begun);
        const ids = Effect.map(peek(chatbot), (chats) => chats.map(({ id }) => id));
        const then = yield* ids;
        yield* after(20);
        const ours = [yield* create(chatbot), yield* create(chatbot)].map(({ id }) => id);
        const later = (yield* ids).filter((id) => !ours.includes(id));
        yield* same("the chats that were there when it was over", later, then);
      }
    }),
  ),
].map(watchedCheck);
