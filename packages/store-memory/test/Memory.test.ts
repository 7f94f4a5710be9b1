import { assert, it } from "@effect/vitest";
import { ChatArchive, ChatStore } from "@parley/core";
import { layerMemory } from "@parley/store-memory";
import { Effect } from "effect";
import { TestClock } from "effect/testing";

it.effect("times do not go back with the clock, even when the newest chat was erased", () =>
  Effect.gen(function* () {
    const chats = yield* ChatStore;
    const archive = yield* ChatArchive;
    const create = Effect.map(
      chats.createChat(1, { name: null, userRef: null, helloMessage: "Hello" }, null),
      ({ chat }) => chat,
    );
    yield* TestClock.setTime(1_000);
    const { id } = yield* create;
    yield* archive.erase(1, { _tag: "Chat", id });
    yield* TestClock.setTime(500);
    const { createTime } = yield* create;
    assert.strictEqual(createTime.getTime(), 1_000);
  }).pipe(Effect.provide(layerMemory)),
);
