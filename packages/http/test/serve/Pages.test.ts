import { expect, it } from "@effect/vitest";
import { Effect, Stream } from "effect";
import { makeTestHandler, usage } from "../TestHandler.ts";

it.live("a large page arrives in pieces of 64 KiB, byte for byte", () =>
  Effect.gen(function* () {
    const text = (length: number) => `${"x".repeat(length % 2)}${"😀漢".repeat(20_000)}`;
    const { send } = yield* makeTestHandler((question) =>
      Stream.make({ _tag: "Delta", text: text(question.length) }, { _tag: "Usage", usage }),
    );
    const created = yield* send("/api/chats", { method: "POST", body: "{}" });
    const chat = (yield* Effect.promise(() => created.json())).data.id;
    for (let n = 1; n <= 10; n++) {
      const body = JSON.stringify({ chat_id: chat, query: "q".repeat(n) });
      yield* send("/ask", { method: "POST", body });
    }
    const response = yield* send(`/api/chats/${chat}/history?orderBy=id`);
    const pieces: Array<Uint8Array> = [];
    yield* Effect.promise(async () => {
      for await (const piece of response.body!) pieces.push(piece);
    });
    const bytes = Buffer.concat(pieces);
    expect(Math.max(...pieces.map(({ length }) => length))).toBe(65_536);
    expect(pieces.length).toBeGreaterThan(8);
    expect(response.headers.get("content-length")).toBe(String(bytes.length));
    const { data } = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
    expect(data.slice(1).map(({ answer }: { readonly answer: string }) => answer)).toEqual(
      Array.from({ length: 10 }, (_, n) => text(n + 1)),
    );
  }).pipe(Effect.scoped),
);
