import { Answerer, Asking, Moderator, defaultSettings } from "@parley/core";
import { layerMemoryWith } from "@parley/store-memory";
import { Channel, Effect, Layer, Stream, Scope } from "effect";
import { Digest } from "effect/crypto";
const { toEventStream } = await import("./src/serve/EventStream.ts");
const pieces = 200, par = 32, rounds = Number(process.argv[2] ?? 40);
let mode = process.argv[3] ?? "full";
let tick: Array<() => void> = [];
const turn = () => new Promise<void>((r) => { if (tick.push(r) === 1) setImmediate(() => { const t = tick; tick = []; for (const f of t) f(); }); });
async function* gen() { for (let n = 1; n <= pieces; n++) { await turn(); yield `piece ${n} `; } }
const chatbot: any = { id: 1, name: "Bot", description: "", workspaceName: "W", settings: defaultSettings };
const answerer = Layer.succeed(Answerer, Answerer.of({ answer: () => Stream.fromAsyncIterable(gen(), (c) => c as never).pipe(Stream.map((text) => ({ _tag: "Delta" as const, text }))) }));
const layer = Asking.layer.pipe(Layer.provide([Moderator.layerOff, Digest.layerWebCrypto, answerer]), Layer.provideMerge(layerMemoryWith([chatbot])));
let bytes = 0;
const one = (asking: any) => Effect.scoped(Effect.gen(function* () {
  if (mode === "gen") { yield* Effect.promise(async () => { for await (const x of gen()) bytes += x.length; }); return; }
  if (mode === "source") { yield* Stream.runForEachArray(Stream.fromAsyncIterable(gen(), (c) => c as never).pipe(Stream.map((text) => ({ _tag: "Delta" as const, text }))), (a) => { bytes += a[0].text.length; return Effect.void; }); return; }
  if (mode === "ask") { yield* asking.ask(chatbot, { chatId: null, question: "q", key: null }); return; }
  if (mode === "events") { yield* Stream.runForEachArray(asking.stream(chatbot, { chatId: null, question: "q", key: null }), (a: any) => { bytes += a.length; return Effect.void; }) as any; return; }
  if (mode === "direct") {
    const scope = yield* Effect.scope; const pull: any = yield* Channel.toPullScoped(asking.stream(chatbot, { chatId: null, question: "q", key: null }).channel, scope);
    const enc = new TextEncoder();
    const encode = (name: string, data: object, id?: string): string => `event: ${name}\n${id === undefined ? "" : `id: ${id}\n`}data: ${JSON.stringify(data)}\n\n`;
    const encodeEvent = (event: any): string => encode("delta", { text: event.text ?? "x" }, `${event.reached.turn}.${event.reached.points}`);
    yield* Stream.fromPull(Effect.succeed(Effect.map(pull, (es: any) => [enc.encode(es.map(encodeEvent).join(""))] as const))).pipe(Stream.orDie, Stream.runForEachArray((a: any) => { bytes += a[0].length; return Effect.void; }));
    return;
  }
  if (mode === "combs") {
    const scope = yield* Effect.scope; const pull: any = yield* Channel.toPullScoped(asking.stream(chatbot, { chatId: null, question: "q", key: null }).channel, scope);
    const encode = (name: string, data: object, id?: string): string => `event: ${name}\n${id === undefined ? "" : `id: ${id}\n`}data: ${JSON.stringify(data)}\n\n`;
    const encodeEvent = (event: any): string => encode("delta", { text: event.text ?? "x" }, `${event.reached.turn}.${event.reached.points}`);
    const first: any = yield* pull;
    const enc = new TextEncoder();
    const toBytes = (es: any) => Effect.succeed([enc.encode(es.map(encodeEvent).join(""))] as const);
    const body = Stream.concat(Stream.fromArray(first), Stream.fromPull(Effect.succeed(pull))).pipe(Stream.mapArray((es: any) => [es.map(encodeEvent).join("")] as any), Stream.catchCause((c) => Stream.failCause(c)), Stream.encodeText);
    yield* body.pipe(Stream.orDie, Stream.runForEachArray((a: any) => { bytes += a[0].length; return Effect.void; }));
    return;
  }
  const response: any = yield* toEventStream((pulse: any) => asking.stream(chatbot, { chatId: null, question: "q", key: null }, null, pulse), (() => Effect.void) as any);
  yield* response.body.stream.pipe(Stream.orDie, Stream.runForEachArray((a: any) => { bytes += a[0].length; return Effect.void; }));
}));
await Effect.runPromise(Effect.gen(function* () {
  const asking = yield* Asking;
  for (const m of process.argv[3] ? [mode] : ["gen","source","ask","events","full","gen","source","ask","events","full","gen","source","ask","events","full"]) {
    mode = m; const c = process.cpuUsage();
    for (let r = 0; r < rounds; r++) yield* Effect.all(Array.from({ length: par }, () => one(asking)), { concurrency: par, discard: true });
    const d = process.cpuUsage(c); console.log(m.padEnd(8), ((d.user + d.system) / (rounds * par * pieces)).toFixed(2), "us/piece");
  }
}).pipe(Effect.provide(layer) as any) as any);
