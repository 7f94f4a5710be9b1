/**
 * Connections to the database that fall silent without being closed, as when a firewall has dropped them or PostgreSQL
 * is frozen.
 */
import type { Socket } from "node:net";
import { assert, it } from "@effect/vitest";
import { defaultEntryQuery, defaultChatQuery } from "@parley/core";
import { AskDeadline, ChatStore, TurnStore } from "@parley/core/ports";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Exit, Fiber, Layer, Redacted, Schedule, Scope } from "effect";
import { startRelay } from "../apps/server/test/Relay.ts";
import { freshSchema, optionsOf } from "../packages/store-pg/test/PostgresUnderTest.ts";

/** Starts a relay that can silence its open connections, silence new ones as well, or delay PostgreSQL's responses. */
const startPath = (url: string) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const sockets = new Set<Socket>();
      let silent = false;
      let delay = 0;
      const relay = await startRelay(url, (near, far) => {
        if (silent) return;
        near.pipe(far);
        far.on("data", (bytes) => {
          if (delay === 0) near.write(bytes);
          else setTimeout(() => near.write(bytes), delay);
        });
        sockets.add(near).add(far);
      });
      const forget = () => {
        for (const socket of sockets) socket.unpipe().pause();
      };
      const freeze = (frozen: boolean) => {
        silent = frozen;
        forget();
      };
      const slow = (millis: number) => {
        delay = millis;
      };
      return { ...relay, forget, freeze, slow };
    }),
    ({ close }) => Effect.sync(close),
  );

const measure = (effect: Effect.Effect<unknown, unknown>) =>
  Effect.suspend(() => {
    const begun = Date.now();
    return Effect.map(Effect.exit(effect), (exit) => ({ exit, millis: Date.now() - begun }));
  });

/** A deadline of 5 s, with a margin for a busy machine. */
const inTime = 6_000;

const isFailing = (effect: Effect.Effect<unknown, unknown>) => Effect.flip(effect);

const byName = [{ field: "name", descending: false }] as const;
const entry = { question: "q", answer: "a", moderation: "none", flagged: false, usage: null };

const options = optionsOf(freshSchema());
const layer = Layer.unwrap(Effect.as(Layer.build(layerPostgres(options)), Layer.empty));

/** Opens a store through a relay, with connections of each kind. */
const connect = Effect.gen(function* () {
  yield* Layer.build(layer);
  const path = yield* startPath(Redacted.value(options.url));
  const scope = yield* Scope.make();
  const stores = yield* Layer.buildWithScope(
    layerPostgres({ ...options, url: Redacted.make(path.url) }),
    scope,
  );
  const chatbot = yield* Effect.provideContext(registerChatbot, stores);
  const chats = yield* Effect.provideContext(ChatStore, stores);
  const turns = yield* Effect.provideContext(TurnStore, stores);
  let names = 0;
  const create = Effect.suspend(() => {
    const name = `chat ${++names}`;
    const key = names % 2 === 0 ? { key: name, fingerprint: "f" } : null;
    return chats.createChat(chatbot, { name, userRef: null, helloMessage: null }, key);
  });
  const take = Effect.suspend(() =>
    turns.take(chatbot, null, { key: `ask ${++names}`, fingerprint: "f" }),
  );
  const list = chats.listChats(chatbot, defaultChatQuery);
  yield* Effect.replicateEffect(Effect.all([create, take, list]), 30, { concurrency: 30 });
  const bulk = chats.listChats(chatbot, { ...defaultChatQuery, orderBy: byName });
  return { bulk, chatbot, chats, create, list, path, scope, take, turns };
});

it.live(
  "a store recovers within seconds after its connections fall silent, and loses and duplicates nothing",
  () =>
    Effect.gen(function* () {
      const { chatbot, chats, create, list, path, take, turns } = yield* connect;
      const { chat } = yield* create;
      const takeResult = yield* turns.take(chatbot, chat.id, null);
      if (takeResult._tag !== "TurnTaken") return assert.fail("the turn is free");

      path.forget();
      const appending = yield* Effect.forkChild(measure(turns.append(takeResult.turn, entry)));
      const lost = yield* measure(create);
      assert.isTrue(Exit.isFailure(lost.exit));
      assert.isBelow(lost.millis, inTime);
      // A second silent connection would cost five seconds.
      const acknowledged: Array<string | null> = [];
      for (let n = 0; n < 10; n++) {
        const { chat } = yield* Effect.timeout(create, "4 seconds");
        acknowledged.push(chat.name);
        yield* Effect.timeout(Effect.andThen(take, list), "4 seconds");
      }
      const appended = yield* Fiber.join(appending);
      assert.isTrue(Exit.isSuccess(appended.exit));
      assert.isBelow(appended.millis, 2 * inTime);

      const { items, total } = yield* chats.listChats(chatbot, {
        ...defaultChatQuery,
        limit: 100,
      });
      const names = items.map(({ name }) => name);
      assert.strictEqual(new Set(names).size, total);
      assert.includeMembers(names, acknowledged);
      const history = yield* turns.take(chatbot, chat.id, null);
      assert.strictEqual(history._tag === "TurnTaken" && history.turn.newest.length, 1);
    }).pipe(Effect.scoped),
  { timeout: 60_000 },
);

it.live(
  "a store responds in time while its database is frozen, recovers afterwards, and can be closed during a freeze",
  () =>
    Effect.gen(function* () {
      const { bulk, chatbot, chats, create, list, path, scope, take, turns } = yield* connect;
      const { chat } = yield* create;
      const takeResult = yield* turns.take(chatbot, chat.id, null);
      if (takeResult._tag !== "TurnTaken") return assert.fail("the turn is free");
      path.freeze(true);
      const history = chats.listEntries(chatbot, chat.id, defaultEntryQuery);
      // A creation with a key, and one without.
      const quick = [create, create, take, list, history];
      const tries = yield* Effect.forEach([...quick, bulk], measure, { concurrency: 10 });
      for (const [n, { exit, millis }] of tries.entries()) {
        assert.isTrue(Exit.isFailure(exit));
        assert.isBelow(millis, n < quick.length ? inTime : 2 * inTime);
      }
      const deadline = Date.now() + 3_000;
      const append = turns.append(takeResult.turn, entry);
      const appended = yield* measure(Effect.provideService(append, AskDeadline, deadline));
      assert.isTrue(Exit.isFailure(appended.exit));
      assert.isBelow(appended.millis, 3_000 + inTime);
      // The database is known to be unavailable now, so nothing waits for it any more.
      const many = Array.from({ length: 20 }, () => [...quick, bulk]).flat();
      const refused = yield* measure(Effect.all(many.map(isFailing)));
      assert.isTrue(Exit.isSuccess(refused.exit));
      assert.isBelow(refused.millis, inTime);
      const patientAppend = Effect.provideService(append, AskDeadline, Date.now() + 20_000);
      const appending = yield* Effect.forkChild(patientAppend);
      yield* Effect.sleep("1 second");
      path.freeze(false);
      assert.strictEqual((yield* Fiber.join(appending)).answer, entry.answer);
      // A costly list may first wait its ten seconds on a dead connection, which looks like a slow statement.
      yield* Effect.all([create, take, list, bulk], { concurrency: 4 }).pipe(
        Effect.retry(Schedule.spaced("100 millis")),
        Effect.timeout(3 * inTime),
      );
      path.freeze(true);
      yield* Effect.forEach([create, take, list], measure, { concurrency: 3 });
      const begun = Date.now();
      yield* Scope.close(scope, Exit.void);
      assert.isBelow(Date.now() - begun, inTime);
    }).pipe(Effect.scoped),
  { timeout: 60_000 },
);

it.live(
  "a store responds in time to a call whose statements are too slow only in total",
  () =>
    Effect.gen(function* () {
      const { chatbot, chats, create, list, path, turns } = yield* connect;
      const { chat } = yield* create;
      const chatToCreate = { name: "keyed", userRef: null, helloMessage: null };
      const createWithKey = chats.createChat(chatbot, chatToCreate, {
        key: "keyed",
        fingerprint: "f",
      });
      const replay = yield* Effect.as(createWithKey, createWithKey);
      const takeResult = yield* turns.take(chatbot, chat.id, null);
      if (takeResult._tag !== "TurnTaken") return assert.fail("the turn is free");
      yield* turns.release(takeResult.turn);
      path.slow(3_500);
      const lost = turns.renew(takeResult.turn);
      const takeKeyed = turns.take(chatbot, chat.id, { key: "ask", fingerprint: "f" });
      const quick = [replay, lost, takeKeyed, list];
      for (const { millis } of yield* Effect.forEach(quick, measure, { concurrency: 10 })) {
        assert.isBelow(millis, inTime);
      }
      path.slow(0);
    }).pipe(Effect.scoped),
  { timeout: 60_000 },
);
