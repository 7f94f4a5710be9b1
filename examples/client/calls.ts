import { ConnectionError, makeClient, ResponseError, ValidationError } from "@parley/client";
import { Effect, Stream } from "effect";

const parley = makeClient({
  origin: process.env["PARLEY_ORIGIN"] ?? "http://127.0.0.1:3000",
  apiKey: process.env["API_KEY"],
});

const chat = await parley.createChat({ name: "A question", userRef: "user-1" });
const entry = await parley.ask({ chat_id: chat.id, query: "How do I change the port?" });
console.log(entry.flagged);

// Row by row, across all pages:
for await (const { name } of parley.chats({ userRef: "user-1", orderBy: "id" })) console.log(name);

// Page by page, or a single page:
for await (const { data, total } of parley.history(chat.id, { limit: 10 }).pages()) {
  console.log(data.length, total);
}
const { total } = await parley.chats({ search: "question", limit: 1 }).page();
console.log(total);

await parley.rename(chat.id, "Ports");
await parley.rate(chat.id, entry.id, { rating: "good", comment: "That was it" });

// Only what was stored after an entry that you know, with what is kept with each entry:
const query = { after: entry.id - 1, include: ["metadata", "feedback"] } as const;
for await (const { comment, rating } of parley.history(chat.id, query))
  console.log(rating, comment);

try {
  await parley.ask({ query: "" });
} catch (error) {
  if (error instanceof ValidationError) {
    for (const { message, path } of error.errors) console.log(message, path);
  } else if (error instanceof ResponseError) {
    console.log(error.status, error.code, error.message, error.requestId);
  } else if (error instanceof ConnectionError) {
    console.log(error.cause);
  } else throw error; // your signal's reason
}

const leave = new AbortController();
const details = parley.details({ signal: leave.signal });
leave.abort("left");
console.log(await details.catch((reason) => reason));

const asking = Effect.tryPromise((signal) => parley.ask({ query: "Hello" }, { signal }));
const streaming = Stream.fromAsyncIterable(parley.stream({ query: "Hello" }), (error) => error);
console.log((await Effect.runPromise(asking)).question);
console.log((await Effect.runPromise(Stream.runCollect(streaming))).at(-1)?.type);
