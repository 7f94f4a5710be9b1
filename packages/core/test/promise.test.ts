import { Administration, Asking, scopes } from "@parley/core";
import { ChatArchive, ChatbotDirectory, ChatbotRegistry } from "@parley/core/ports";
import {
  ArgumentInvalid,
  BudgetSpent,
  ChatNotFound,
  IdempotencyKeyReused,
  openParley,
  StorageUnavailable,
  UserRefNotGranted,
  type AnswerEvent,
  type AnswererFunction,
  type AskError,
  type Bot,
  type Parley,
  type StoredEntry,
} from "@parley/core/promise";
import { memory } from "@parley/store-memory";
import { Effect, Layer, Redacted, Stream, type Context } from "effect";
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { afterAll, afterEach, expect, it, vi } from "vitest";

const instances: Array<Parley> = [];
afterEach(() => void vi.useRealTimers());
afterAll(() => Promise.all(instances.map((parley) => parley.close())));

const open = async (answerer: AnswererFunction = () => "a", options: object = {}) => {
  const parley = await openParley({ store: memory(), answerer, log: false, ...options });
  instances.push(parley);
  return parley;
};
const declaration = { workspace: "Acme", name: "Support" };
const openBot = async (answerer?: AnswererFunction, options?: object) =>
  (await open(answerer, options)).chatbot(declaration);

/** A memory store in which these methods of a port are replaced. */
const storeWith = <Id, Port extends object>(
  port: Context.Service<Id, Port>,
  change: (service: Port) => Partial<Port>,
) =>
  Layer.effect(
    port,
    Effect.map(port, (service) => ({ ...service, ...change(service) })),
  ).pipe(Layer.provideMerge(memory()));

const makeSignal = () => {
  let send!: () => void;
  const signal = new Promise<void>((resolve) => (send = resolve));
  return { send, sent: signal };
};

const collect = async <A>(items: AsyncIterable<A>) => {
  const all: Array<A> = [];
  for await (const item of items) all.push(item);
  return all;
};
const total = async (bot: Bot) => (await bot.chats().page()).total;

/** An answerer that yields a piece, then waits for the test to call `goOn`. `aborted` resolves if its signal aborts. */
const makeSlowAnswer = () => {
  const [goOn, aborted] = [makeSignal(), makeSignal()];
  const answerer: AnswererFunction = async function* ({ signal }) {
    signal.addEventListener("abort", aborted.send);
    yield "one ";
    await goOn.sent;
    yield "two";
  };
  return { answerer, goOn: goOn.send, aborted: aborted.sent };
};

it("a bot asks, streams and reads the history", async () => {
  const bot = await openBot(async function* ({ earlier, question }) {
    yield `${(await collect(earlier)).length} earlier, `;
    yield question;
  });
  const chat = await bot.createChat({ userRef: "user-7" });
  const events = await collect(bot.stream(chat.id, "Hi?"));
  const { entry } = await bot.ask(chat.id, "And now?");
  expect(events.at(-1)).toMatchObject({ type: "entry", entry: { answer: "0 earlier, Hi?" } });
  const text = events.flatMap((event) => (event.type === "delta" ? [event.text] : []));
  expect(text.join("")).toBe("0 earlier, Hi?");
  expect(entry.answer).toBe("1 earlier, And now?");
  expect(await collect(bot.history(chat.id, { orderBy: "id" }))).toEqual([
    (events.at(-1) as Extract<AnswerEvent, { type: "entry" }>).entry,
    entry,
  ]);
  expect(await bot.usage()).toMatchObject([{ group: null, answers: 2 }]);
});

it("a bot reads a list page by page, each row once, in the given order", async () => {
  const bot = await openBot();
  for (const name of ["a", "b", null]) await bot.createChat({ name });
  const query = { limit: 2, orderBy: "name" } as const;
  expect((await collect(bot.chats(query))).map(({ name }) => name)).toEqual(["a", "b", null]);
  expect(await bot.chats({ ...query, page: 2 }).page()).toMatchObject({
    total: 3,
    page: 2,
    data: [{ name: null }],
  });
  expect((await collect(bot.chats(query).pages())).map(({ data }) => data.length)).toEqual([2, 1]);
});

it("every option that is `undefined` counts as absent", async () => {
  const absent = undefined;
  const parley = await open(undefined, {
    moderator: absent,
    actor: absent,
    answerMillis: absent,
  });
  const bot = await parley.chatbot(declaration);
  const call = { signal: absent, idempotencyKey: absent };
  const chat = await bot.createChat({ name: absent, userRef: absent }, call);
  const ask = { ...call, onDisconnect: absent };
  await bot.ask(chat.id, "q", ask);
  await collect(bot.stream(chat.id, "q", ask));
  const list = { limit: absent, page: absent, orderBy: absent, desc: absent, id: absent };
  expect((await bot.history(chat.id, list, { signal: absent }).page()).total).toBe(2);
  for (const query of [{ search: absent }, { userRef: absent }, list])
    expect((await bot.chats(query, { signal: absent }).page()).total).toBe(1);
  expect(await bot.usage({ since: absent, by: absent })).toHaveLength(1);
  expect(await collect(bot.export({ userRef: absent }))).toHaveLength(5);
  const key = { name: absent, scopes: absent, expiresAt: absent, ratePerMinute: absent };
  expect(await bot.createKey(key)).toMatchObject({ id: expect.any(String) });
});

it("a bot erases, exports and imports chats", async () => {
  const parley = await open();
  const bot = await parley.chatbot(declaration);
  const other = await parley.chatbot({ ...declaration, name: "Copy" });
  for (const userRef of ["user-7", "user-8"]) {
    const chat = await bot.createChat({ userRef });
    await bot.ask(chat.id, "Hi?");
  }
  expect(await other.import(bot.export())).toBe(2);
  expect(await bot.erase({ userRef: "user-7" })).toBe(1);
  expect(await bot.erase("all")).toBe(1);
  expect([await total(bot), await total(other)]).toEqual([0, 2]);
  await expect(other.import(["{}\n"])).rejects.toMatchObject({ name: "ImportRefused" });
  await expect(other.import(5 as any)).rejects.toMatchObject({ name: "ArgumentInvalid" });
});

it("an import keeps a character that two pieces of text share", async () => {
  const parley = await open();
  const bot = await parley.chatbot(declaration);
  const other = await parley.chatbot({ ...declaration, name: "Copy" });
  await bot.createChat({ name: "😀" });
  const text = (await collect(bot.export())).join("");
  // Each piece is one UTF-16 code unit.
  await other.import(text.split(""));
  expect((await other.chats().page()).data[0]!.name).toBe("😀");
});

it("rows and export lines have their fields in a fixed order", async () => {
  const bot = await openBot();
  const chat = await bot.createChat({ userRef: "user-7", name: "Invoice" });
  const { entry } = await bot.ask(chat.id, "Hi?");
  expect(Object.keys(chat)).toEqual(["id", "name", "userRef", "createTime"]);
  expect(Object.keys(entry).join()).toBe("id,chatId,question,answer,moderation,flagged,createTime");
  expect(Object.keys(bot.chatbot).join()).toBe("id,workspaceName,name,description,settings");
  const lines = await collect(bot.export());
  const records = lines.flatMap((line) => Object.entries<object>(JSON.parse(line)));
  expect(records.map(([kind, fields]) => `${kind}: ${Object.keys(fields).join()}`)).toEqual([
    "version: ",
    "chat: id,name,userRef,_createTime",
    "entry: id,chat_id,question,answer,moderation,flagged,_createTime,usage,metadata,rating,comment",
    "end: chats,entries",
  ]);
});

it("the error for an invalid import line names the field and the rule that it breaks", async () => {
  const bot = await openBot();
  const chat = { id: 1, name: null, userRef: null, _createTime: "2026-01-31" };
  await expect(bot.import([JSON.stringify({ chat })])).rejects.toMatchObject({
    reason:
      "line 1 is not a valid export line: chat._createTime: " +
      "must be a time such as 2026-01-31T09:30:00.000Z",
  });
});

it("a bot creates keys that are valid until they are revoked", async () => {
  const parley = await open();
  const bot = await parley.chatbot(declaration);
  const { id, key } = await bot.createKey({ scopes: ["ask"] });
  const authenticated = await parley.authenticate(key);
  expect(authenticated.scopes).toEqual(["ask"]);
  expect(authenticated.bot.chatbot).toEqual(bot.chatbot);
  await bot.revokeKey(id);
  // The process caches the look-up of a key for a second.
  await new Promise((resolve) => setTimeout(resolve, 1_100));
  await expect(parley.authenticate(key)).rejects.toMatchObject({ name: "KeyRejected" });
  await expect(bot.revokeKey(id)).rejects.toMatchObject({ name: "KeyNotFound" });
  for (const wrong of ["\0", "\ud800", 5, undefined])
    await expect(bot.revokeKey(wrong as string)).rejects.toMatchObject({
      name: "ArgumentInvalid",
      field: "keyId",
    });
});

it("a bot opened with a key asks only within that key's budget", async () => {
  const parley = await open();
  const { chatbot } = await parley.chatbot(declaration);
  const { key } = await Administration.use((administration) =>
    administration.createKey(chatbot.id, { scopes, tokensPerDay: 1 }, "test"),
  ).pipe(Effect.provide(parley.layer), Effect.runPromise);
  const { bot } = await parley.authenticate(Redacted.value(key));
  await bot.ask(null, "q");
  await expect(bot.ask(null, "q")).rejects.toBeInstanceOf(BudgetSpent);
  await expect(collect(bot.stream(null, "q"))).rejects.toBeInstanceOf(BudgetSpent);
});

it("a bot opened with a user's key has only that user's chats", async () => {
  const boundTo = (visitor: string) =>
    Layer.effect(
      ChatbotDirectory,
      Effect.map(ChatbotDirectory, (directory) => ({
        ...directory,
        find: (id: string) =>
          Effect.map(directory.find(id), (grant) => grant && { ...grant, visitor }),
      })),
    );
  const parley = await open(undefined, { store: Layer.provideMerge(boundTo("ann"), memory()) });
  const bot = await parley.chatbot(declaration);
  const [own, other] = [
    await bot.createChat({ userRef: "ann" }),
    await bot.createChat({ userRef: "bob" }),
  ];
  const { key } = await bot.createKey();
  const ann = (await parley.authenticate(key)).bot;
  expect((await ann.chats().page()).data).toEqual([own]);
  expect((await ann.createChat()).userRef).toBe("ann");
  await expect(ann.createChat({ userRef: "bob" })).rejects.toBeInstanceOf(UserRefNotGranted);
  expect(() => ann.as("bob")).toThrow(UserRefNotGranted);
  expect((await ann.as("ann").chats().page()).total).toBe(2);
  await expect(ann.post(other.id, "t")).rejects.toBeInstanceOf(ChatNotFound);
  await expect(ann.history(other.id).page()).rejects.toBeInstanceOf(ChatNotFound);
  await expect(ann.ask(other.id, "q")).rejects.toBeInstanceOf(ChatNotFound);
  await expect(collect(ann.stream(other.id, "q"))).rejects.toBeInstanceOf(ChatNotFound);
});

it("a repeated call returns what its idempotency key stored, and a different call with the key is rejected", async () => {
  const bot = await openBot();
  const options = { idempotencyKey: "k" };
  const [first, second] = [await bot.ask(null, "q", options), await bot.ask(null, "q", options)];
  expect(second).toEqual({ entry: first.entry, replayed: true });
  await expect(bot.ask(null, "other", options)).rejects.toBeInstanceOf(IdempotencyKeyReused);
  const other = { idempotencyKey: "another" };
  expect(await bot.createChat({}, other)).toEqual(await bot.createChat({}, other));
});

it("a bot of one user has only that user's chats, keys and rights", async () => {
  const parley = await open();
  const bot = await parley.chatbot(declaration);
  const [ann, bob] = [bot.as("ann"), bot.as("bob")];
  const options = { idempotencyKey: "k" };
  const [own, other] = [await ann.ask(null, "q", options), await bob.ask(null, "q", options)];
  expect(own.entry.chatId).not.toBe(other.entry.chatId);
  expect(await ann.ask(null, "q", options)).toEqual({ ...own, replayed: true });
  const [{ entry }, chatId] = [own, other.entry.chatId];
  const creation = { idempotencyKey: "c" };
  expect(await ann.createChat({}, creation)).not.toEqual(await bob.createChat({}, creation));
  for (const [name, user] of Object.entries({ ann, bob })) {
    const { data, total } = await user.chats().page();
    expect([total, new Set(data.map(({ userRef }) => userRef))]).toEqual([2, new Set([name])]);
  }
  expect((await ann.chats({ userRef: "bob" }).page()).total).toBe(0);
  await expect(ann.createChat({ userRef: "bob" })).rejects.toBeInstanceOf(UserRefNotGranted);
  for (const call of [
    () => ann.history(chatId).page(),
    () => ann.ask(chatId, "q"),
    () => collect(ann.stream(chatId, "q")),
    () => ann.rename(chatId, "n"),
    () => ann.rate(chatId, other.entry.id, { rating: "bad" }),
    () => ann.delete(chatId),
  ])
    await expect(call()).rejects.toBeInstanceOf(ChatNotFound);
  await expect(ann.rate(entry.chatId, 999, {})).rejects.toMatchObject({ name: "EntryNotFound" });
  expect(await ann.delete(entry.chatId)).toMatchObject({ id: entry.chatId, userRef: "ann" });
  expect(await total(bot)).toBe(3);
  const none = ["as", "post", "erase", "usage", "export", "import", "createKey", "revokeKey"];
  expect(none.filter((method) => method in ann)).toEqual([]);
});

it("a bot of one user shares the chats and the keys of that user's visitor tokens", async () => {
  const parley = await open();
  const bot = await parley.chatbot(declaration);
  const services = await Effect.runPromise(Layer.build(parley.layer).pipe(Effect.scoped));
  const visitor = { visitor: "ann", chatId: null, question: "q", idempotencyKey: "k" };
  const asking = Effect.provideContext(
    Asking.use((service) => service.ask(bot.chatbot, visitor)),
    services,
  );
  const { entry } = await Effect.runPromise(asking);
  const { entry: replay } = await bot.as("ann").ask(null, "q", { idempotencyKey: "k" });
  expect([replay.id, replay.chatId]).toEqual([entry.id, entry.chatId]);
});

it("a chat is renamed, an entry rated and both are read with what the reader asks for", async () => {
  const bot = await openBot(async function* () {
    yield "a";
    yield { _tag: "Metadata", metadata: { sources: [{ title: "T" }] } };
  });
  const [chat, other] = [await bot.createChat({ name: "old" }), await bot.createChat()];
  const include = ["metadata"] as const;
  const { entry } = await bot.ask(chat.id, "q", { include });
  const metadata = { sources: [{ title: "T" }] };
  expect(entry.metadata).toEqual(metadata);
  expect((await collect(bot.stream(chat.id, "r", { include }))).at(-1)).toMatchObject({
    entry: { metadata },
  });
  expect((await bot.ask(chat.id, "s")).entry).not.toHaveProperty("metadata");
  const post = await bot.post(chat.id, "From Ann", { metadata: { author: "Ann" } });
  expect(post).toMatchObject({ question: "", metadata: { author: "Ann" } });

  expect(await bot.rename(chat.id, "new")).toEqual({ ...chat, name: "new" });
  expect(await bot.rename(chat.id, null)).toEqual({ ...chat, name: null });
  await bot.rate(chat.id, entry.id, { rating: "bad", comment: "No." });
  const rated = await bot.rate(chat.id, entry.id, { rating: null });
  expect(rated).toMatchObject({ id: entry.id, rating: null, comment: "No." });
  await bot.rate(chat.id, entry.id, { rating: "good", comment: null });

  const query = { after: entry.id, orderBy: "id", include: ["metadata", "feedback"] } as const;
  const { data, total } = await bot.history(chat.id, query).page();
  expect([total, data.map(({ answer }) => answer)]).toEqual([3, ["a", "a", "From Ann"]]);
  expect(data[2]).toEqual({ ...post, rating: null, comment: null });
  const first = bot.history(chat.id, { id: entry.id, include: ["feedback"] });
  const { metadata: _, ...plain } = entry;
  expect((await first.page()).data).toEqual([{ ...plain, rating: "good", comment: null }]);

  const byActivity = { orderBy: "lastEntryTime", desc: true, include: ["activity"] } as const;
  const chats = await collect(bot.chats(byActivity));
  expect(chats).toEqual(
    expect.arrayContaining([
      { ...chat, name: null, entries: 4, lastEntryTime: post.createTime },
      { ...other, entries: 0, lastEntryTime: other.createTime },
    ]),
  );
  expect(chats.map(({ lastEntryTime }) => lastEntryTime)).toEqual(
    chats.map(({ lastEntryTime }) => lastEntryTime).toSorted((a, b) => +b! - +a!),
  );
  expect((await bot.chats().page()).data[0]).toEqual(other);
});

it("onEntry is called once for each entry that this process stores, and what it throws changes nothing", async () => {
  const lines: Array<string> = [];
  const stored: Array<string> = [];
  let announce = () => {};
  const parley = await open(() => "a", {
    moderator: (question: string) => (question === "bad" ? "hate" : null),
    log: (line: string) => void lines.push(line),
    onEntry: ({ chat, chatbot, entry, usage }: StoredEntry) => {
      stored.push([chatbot, chat.id, chat.userRef, entry.question, entry.answer, usage].join(" "));
      announce();
      throw new RangeError("secret");
    },
  });
  const bot = await parley.chatbot({ ...declaration, helloMessage: "Hello!" });
  const chatbot = bot.chatbot.id;
  const { id } = await bot.createChat({ userRef: "u" }, { idempotencyKey: "c" });
  await bot.createChat({ userRef: "u" }, { idempotencyKey: "c" });
  for (const idempotencyKey of ["k", "k"])
    await Promise.all([bot.ask(id, "q", { idempotencyKey }), bot.ask(id, "q", { idempotencyKey })]);
  await bot.ask(id, "bad");
  await bot.post(id, "From Ann", { idempotencyKey: "p" });
  await bot.post(id, "From Ann", { idempotencyKey: "p" });
  const copy = await parley.chatbot({ ...declaration, name: "Copy" });
  await copy.import(bot.export());
  const last = makeSignal();
  announce = last.send;
  const { entry } = await bot.ask(null, "last");
  await last.sent;
  const { moderationErrorMessage } = bot.chatbot.settings;
  expect(stored).toEqual([
    `${chatbot} ${id} u  Hello! `,
    `${chatbot} ${id} u q a `,
    `${chatbot} ${id} u bad ${moderationErrorMessage} `,
    `${chatbot} ${id} u  From Ann `,
    `${chatbot} ${entry.chatId}  last a `,
  ]);
  await parley.close();
  expect(lines).toHaveLength(5);
  expect(lines[0]).toMatch(/onEntry failed: RangeError at \S*promise\.test\.ts:\d+:\d+/);
  expect(lines.join()).not.toContain("secret");
});

it("onError receives the error of an ask that fails, with the answerer's error as its cause", async () => {
  const failure = makeSignal();
  const errors: Array<AskError> = [];
  const thrown = new RangeError("secret");
  const bot = await openBot(
    () => {
      throw thrown;
    },
    { onError: (error: AskError) => (errors.push(error), failure.send()) },
  );
  const error = await bot.ask(null, "q").catch((error: unknown) => error);
  await failure.sent;
  expect(errors).toEqual([error]);
  expect(error).toMatchObject({ name: "AnswerUnavailable", cause: thrown });
});

it("a question may be as long as questionLength says, and 200 code points by default", async () => {
  const bots = [await openBot(), await openBot(undefined, { questionLength: 20_000 })];
  for (const [index, length] of [200, 20_000].entries()) {
    await bots[index]!.ask(null, "🙂".repeat(length));
    await expect(bots[index]!.ask(null, "🙂".repeat(length + 1))).rejects.toMatchObject({
      field: "question",
    });
  }
});

it("chatbot() creates the chatbot once, and later changes only the given fields", async () => {
  const parley = await open();
  const both = await Promise.all([
    parley.chatbot({ ...declaration, helloMessage: "Hello!" }),
    parley.chatbot(declaration),
  ]);
  expect(both[0].chatbot.id).toBe(both[1].chatbot.id);
  const changed = await parley.chatbot({ ...declaration, instructions: "Be brief." });
  expect(changed.chatbot.settings).toMatchObject({
    helloMessage: "Hello!",
    instructions: "Be brief.",
  });
  const chat = await changed.createChat();
  expect(await collect(changed.history(chat.id))).toMatchObject([{ answer: "Hello!" }]);
});

it("chatbot() creates the chatbot again if it is deleted before its settings are changed", async () => {
  const store = Layer.effect(
    ChatbotRegistry,
    Effect.map(ChatbotRegistry, (registry) => {
      const deleteFirst: typeof registry.change = (id, ...rest) =>
        Effect.andThen(registry.delete(id, "other"), registry.change(id, ...rest));
      return { ...registry, change: deleteFirst };
    }),
  ).pipe(Layer.provideMerge(memory()));
  const parley = await open(() => "a", { store });
  const old = await parley.chatbot(declaration);
  const { chatbot } = await parley.chatbot({ ...declaration, helloMessage: "Hello!" });
  expect(chatbot.id).not.toBe(old.chatbot.id);
  expect(chatbot.settings.helloMessage).toBe("Hello!");
});

it("a chatbot whose hello message is empty creates chats without an entry", async () => {
  const parley = await open();
  const bot = await parley.chatbot({ ...declaration, helloMessage: "" });
  const chat = await bot.createChat();
  expect((await bot.history(chat.id).page()).total).toBe(0);
});

const wrong: ReadonlyArray<readonly [field: string, call: (bot: Bot) => Promise<unknown>]> = [
  ["name", (bot) => bot.createChat({ name: "n".repeat(256) })],
  ["question", (bot) => bot.ask(null, "\u0085")],
  ["chatId", (bot) => bot.ask("7" as any, "q")],
  ["page", (bot) => collect(bot.history(1, { page: 0 }))],
  ["limit", (bot) => bot.chats({ limit: 101 }).page()],
  ["userRef", (bot) => bot.chats({ userRef: "\ud800" }).page()],
  ["orderBy", (bot) => bot.chats({ orderBy: ["name", "name"] }).page()],
  ["desc", (bot) => bot.chats({ desc: [true, false] }).page()],
  ["pages", (bot) => bot.chats({ pages: 2 } as any).page()],
  ["nam", (bot) => bot.createChat({ nam: "n" } as any)],
  ["idempotencykey", (bot) => bot.ask(null, "q", { idempotencykey: "k" } as any)],
  ["onDisconnect", (bot) => collect(bot.stream(null, "q", { onDisconnect: "stop" as any }))],
  ["user", (bot) => collect(bot.export({ user: "user-7" } as any))],
  ["idleSince", (bot) => bot.erase({ idleSince: new Date(NaN) })],
  ["", (bot) => bot.erase({} as any)],
  ["since", (bot) => bot.usage({ since: new Date(NaN) })],
  ["scopes.0", (bot) => bot.createKey({ scopes: ["all" as any] })],
  ["", (bot) => bot.createChat({}, null as any)],
  ["signal", (bot) => bot.ask(null, "q", { signal: {} as any })],
  ["include.0", (bot) => bot.ask(null, "q", { include: ["sources" as any] })],
  ["expiresAt", (bot) => bot.createKey({ expiresAt: new Date(0) })],
  ["userRef", async (bot) => bot.as("")],
  ["rating", (bot) => bot.rate(1, 1, { rating: "ok" as any })],
  ["name", (bot) => bot.rename(1, undefined as any)],
  ["text", (bot) => bot.post(1, " ")],
  ["metadata", (bot) => bot.post(1, "t", { metadata: { at: new Date() as any } })],
];
it.each(
  wrong.map(([field, call]) => [String(call).replace("(bot) => ", ""), field, call] as const),
)("%s rejects with an ArgumentInvalid whose field is `%s`", async (_, field, call) => {
  const error = await (async () => call(await openBot()))().catch((error: unknown) => error);
  expect(error).toBeInstanceOf(ArgumentInvalid);
  expect(error).toMatchObject({ name: "ArgumentInvalid", field });
  expect((error as ArgumentInvalid).message).toContain((error as ArgumentInvalid).reason);
});

it("the error for an invalid chatbot declaration or openParley option names the field", async () => {
  const parley = await open();
  await expect(parley.chatbot({ ...declaration, name: "" })).rejects.toMatchObject({
    field: "name",
  });
  await expect(parley.chatbot({ ...declaration, hello: "Hello!" } as any)).rejects.toMatchObject({
    field: "hello",
  });
  for (const [field, options] of Object.entries({
    store: { store: memory },
    answerer: { answerer: "Yes." },
    answerMillis: { answerMillis: NaN },
    log: { log: true },
    logs: { logs: false },
    questionLength: { questionLength: 20_001 },
    onEntry: { onEntry: "log" },
  })) {
    await expect(open(undefined, options)).rejects.toMatchObject({ field });
  }
});

const leaveBy: Record<string, (bot: Bot) => Promise<unknown>> = {
  "leaving the loop": async (bot) => {
    for await (const _ of bot.stream(null, "q")) break;
  },
  "closing an iterator whose next event is pending": async (bot) => {
    const iterator = bot.stream(null, "q")[Symbol.asyncIterator]();
    await iterator.next();
    const pending = iterator.next();
    await iterator.return!();
    expect(await pending).toMatchObject({ done: true });
  },
  "aborting the signal": async (bot) => {
    const controller = new AbortController();
    const reason = new Error("the user pressed Stop");
    const loop = async () => {
      for await (const _ of bot.stream(null, "q", { signal: controller.signal })) {
        controller.abort(reason);
      }
    };
    await expect(loop()).rejects.toBe(reason);
  },
  "aborting the signal of an ask with `cancel`": async (bot) => {
    const controller = new AbortController();
    const { signal } = controller;
    const answer = bot.ask(null, "q", { signal, onDisconnect: "cancel" });
    setTimeout(() => controller.abort(), 20);
    await expect(answer).rejects.toBe(await Promise.resolve(answer).catch(() => signal.reason));
  },
};
it.each(Object.entries(leaveBy))(
  "hanging up by %s aborts the answerer's signal, and nothing is stored",
  async (_, leave) => {
    const { aborted, answerer } = makeSlowAnswer();
    const bot = await openBot(answerer);
    await leave(bot);
    await aborted;
    expect(await total(bot)).toBe(0);
  },
);

it("the answer to an ask, or to a stream with `finish`, is stored even if its caller hangs up", async () => {
  const { answerer, goOn } = makeSlowAnswer();
  const bot = await openBot(answerer);
  const controller = new AbortController();
  const answer = bot.ask(null, "q", { signal: controller.signal, idempotencyKey: "a" });
  for await (const _ of bot.stream(null, "q", { onDisconnect: "finish", idempotencyKey: "s" })) {
    break;
  }
  controller.abort("over");
  await expect(answer).rejects.toBe("over");
  goOn();
  for (const idempotencyKey of ["a", "s"]) {
    const { entry, replayed } = await bot.ask(null, "q", { idempotencyKey });
    expect([entry.answer, replayed]).toEqual(["one two", true]);
  }
  expect(await total(bot)).toBe(2);
});

it("a call whose signal is already aborted starts nothing", async () => {
  let calls = 0;
  const bot = await openBot(() => `${++calls}`);
  const signal = AbortSignal.abort("before");
  await expect(bot.ask(null, "q", { signal })).rejects.toBe("before");
  await expect(collect(bot.stream(null, "q", { signal }))).rejects.toBe("before");
  await expect(bot.createChat({}, { signal })).rejects.toBe("before");
  expect([calls, await total(bot)]).toEqual([0, 0]);
});

it("a stream that is never read, or is closed before it is read, starts nothing", async () => {
  let calls = 0;
  const bot = await openBot(() => `${++calls}`);
  bot.stream(null, "q");
  const iterator = bot.stream(null, "q")[Symbol.asyncIterator]();
  await iterator.return!();
  expect(await iterator.next()).toMatchObject({ done: true });
  expect([calls, await total(bot)]).toEqual([0, 0]);
});

const done = { done: true, value: undefined };
/** Rejects if the call does not settle within a second. */
const withinASecond = <A>(call: Promise<A>) =>
  Promise.race([
    call,
    new Promise<never>((_, reject) => setTimeout(reject, 1000, new Error("no result"))),
  ]);

it("a stream's iterator settles every call, whenever it is closed or its signal is aborted", async () => {
  const { answerer } = makeSlowAnswer();
  const bot = await openBot(answerer);
  for (let microtasks = 0; microtasks < 30; microtasks++) {
    for (const isAborted of [false, true]) {
      const controller = new AbortController();
      const { signal } = controller;
      const iterator = bot.stream(null, "q", { signal })[Symbol.asyncIterator]();
      const steps = Promise.allSettled([iterator.next(), iterator.next()]);
      for (let at = 0; at < microtasks; at++) await Promise.resolve();
      if (isAborted) controller.abort("over");
      else expect(await withinASecond(iterator.return!())).toEqual(done);
      const settled = await withinASecond(steps);
      const rejections = settled.filter(({ status }) => status === "rejected");
      expect(rejections).toEqual(isAborted ? [{ status: "rejected", reason: "over" }] : []);
      expect(await withinASecond(iterator.next())).toEqual(done);
      expect(await withinASecond(iterator.return!())).toEqual(done);
      expect(await withinASecond(iterator.next())).toEqual(done);
    }
  }
  expect(await total(bot)).toBe(0);
});

it("a stream's iterator stays done even if its signal is aborted later", async () => {
  const bot = await openBot();
  const controller = new AbortController();
  const { signal } = controller;
  const iterator = bot.stream(null, "q", { signal })[Symbol.asyncIterator]();
  const steps = [iterator.next(), iterator.next(), iterator.next(), iterator.next()];
  expect((await Promise.all(steps)).map((step) => step.done)).toEqual([false, false, true, true]);
  controller.abort("over");
  expect(await iterator.next()).toEqual(done);
  expect(await iterator.return!()).toEqual(done);
});

/** Opens Parley with a chatbot that has `retentionDays`; `erasures` lists what is erased, and by which actor. */
const openRetaining = async () => {
  const erasures: Array<unknown> = [];
  const parley = await open(undefined, {
    store: storeWith(ChatArchive, () => ({
      erase: (_, which, actor) => Effect.sync(() => erasures.push([which, actor])),
    })),
  });
  await parley.chatbot({ ...declaration, retentionDays: 2 });
  return { parley, erasures };
};
const minutes = (count: number) => vi.advanceTimersByTimeAsync(count * 60_000);

it("openParley erases expired chats a minute after it opened and then about every hour, until close", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  const { erasures, parley } = await openRetaining();
  const erasure = [{ _tag: "IdleFor", millis: 2 * 86_400_000 }, "retention"];
  await minutes(0.9);
  expect(erasures).toEqual([]);
  await minutes(0.2);
  expect(erasures).toEqual([erasure]);
  // The pause between runs varies by up to 12 minutes.
  await minutes(47);
  expect(erasures).toHaveLength(1);
  await minutes(26);
  expect(erasures).toEqual([erasure, erasure]);
  await parley.close();
  expect(vi.getTimerCount()).toBe(0);
});

it("eraseExpired erases expired chats at once, and returns whether that succeeded", async () => {
  const { erasures, parley } = await openRetaining();
  expect(await parley.eraseExpired()).toBe(true);
  expect(erasures).toEqual([[{ _tag: "IdleFor", millis: 2 * 86_400_000 }, "retention"]]);
  const store = storeWith(ChatArchive, () => ({ erase: () => Effect.die("no") }));
  const broken = await open(undefined, { store });
  await broken.chatbot({ ...declaration, retentionDays: 2 });
  expect(await broken.eraseExpired()).toBe(false);
});

it("where every timer keeps its program alive, as in a Worker, openParley leaves none behind", async () => {
  const timers = new Set<unknown>();
  vi.stubGlobal("setTimeout", () => timers.add(timers.size + 1) && timers.size);
  vi.stubGlobal("clearTimeout", (timer: unknown) => timers.delete(timer));
  try {
    await openRetaining();
    expect(timers).toEqual(new Set());
  } finally {
    vi.unstubAllGlobals();
  }
});

it("a script that does not call close still exits by itself", async () => {
  const script = `
      import { openParley } from "@parley/core/promise";
      import { memory } from "@parley/store-memory";
      const parley = await openParley({ store: memory(), answerer: () => "a" });
      const bot = await parley.chatbot({ workspace: "W", name: "N", retentionDays: 1 });
      console.log((await bot.ask(null, "q")).entry.answer);`;
  const root = `${import.meta.dirname}/../../..`;
  const args = ["--input-type=module", "--eval", script];
  const options = { cwd: root, timeout: 30_000 };
  const { stdout } = await promisify(execFile)(process.execPath, args, options);
  expect(stdout).toBe("a\n");
}, 40_000);

it("close waits for asks and streams in progress, and rejects later calls", async () => {
  const { answerer, goOn } = makeSlowAnswer();
  const parley = await open(answerer);
  const bot = await parley.chatbot(declaration);
  const answer = bot.ask(null, "q");
  const iterator = bot.stream(null, "q")[Symbol.asyncIterator]();
  await iterator.next();
  let isClosed = false;
  const closing = parley.close().then(() => (isClosed = true));
  await expect(bot.createChat()).rejects.toBeInstanceOf(StorageUnavailable);
  await expect(collect(bot.stream(null, "q"))).rejects.toBeInstanceOf(StorageUnavailable);
  goOn();
  expect((await answer).entry.answer).toBe("one two");
  expect(isClosed).toBe(false);
  const events = await collect({ [Symbol.asyncIterator]: () => iterator });
  expect(events.at(-1)).toMatchObject({ type: "entry", entry: { answer: "one two" } });
  await closing;
  await parley.close();
});

it("close ends an export whose reader has stopped, once the time limit for answers is over", async () => {
  let isReleased = false;
  const release = Effect.sync(() => (isReleased = true));
  const store = storeWith(ChatArchive, (archive) => ({
    export: (...args) => Stream.ensuring(archive.export(...args), release),
  }));
  const parley = await open(undefined, { answerMillis: 50, store });
  const bot = await parley.chatbot(declaration);
  for (const question of ["q", "r"]) await bot.ask(null, question);
  const lines = bot.export()[Symbol.asyncIterator]();
  await lines.next();
  await lines.next();
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  const closing = parley.close();
  await vi.advanceTimersByTimeAsync(5_049);
  expect(isReleased).toBe(false);
  await vi.advanceTimersByTimeAsync(1);
  await closing;
  expect(isReleased).toBe(true);
});

it("two instances in one process share neither data nor logs", async () => {
  const lines: [Array<string>, Array<string>] = [[], []];
  const logged = makeSignal();
  const failing: AnswererFunction = async ({ signal }) => {
    await new Promise((resolve) => setTimeout(resolve, 20));
    throw new Error(`down ${signal.aborted}`);
  };
  const [a, b] = await Promise.all(
    lines.map((own) =>
      openBot(failing, { log: (line: string) => (own.push(line), logged.send()) }),
    ),
  );
  await a!.createChat();
  const controller = new AbortController();
  const answer = a!.ask(null, "q", { signal: controller.signal });
  setTimeout(() => controller.abort("over"), 5);
  await expect(answer).rejects.toBe("over");
  await logged.sent;
  expect(lines[0].join("\n")).toContain("the answerer threw Error");
  expect(await total(b!)).toBe(0);
  expect(lines[1]).toEqual([]);
});
