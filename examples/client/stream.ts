import { makeClient } from "@parley/client";

const parley = makeClient({
  origin: process.env["PARLEY_ORIGIN"] ?? "http://127.0.0.1:3000",
  apiKey: process.env["API_KEY"],
});

for await (const event of parley.stream({ query: "How do I change the port?" })) {
  if (event.type === "restart") console.log("\n…"); // drop the text so far
  if (event.type === "delta") process.stdout.write(event.text);
  if (event.type === "entry") console.log(`\n(chat ${event.entry.chat_id})`);
}
