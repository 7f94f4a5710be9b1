/**
 * Chatbots on Cloudflare Workers: each has a Durable Object of its own, with its chats in the object's storage.
 */
import { Administration, keyId } from "@parley/core";
import { openParley, type Parley } from "@parley/core/promise";
import { makeVisitorTokens, makeWebHandler, type WebHandler } from "@parley/http";
import { DurableObject, type DurableObjectState, type Namespace } from "cloudflare:workers";
import { Effect, Redacted } from "effect";
import { layerDurable } from "./DurableRows.ts";

interface Env {
  /** A secret, which creates chatbots and keys. */
  readonly ADMIN_TOKEN: string;
  readonly CHATBOTS: Namespace<Chatbot>;
  readonly DIRECTORY: Namespace<Directory>;
}

type NewKey = Parameters<Administration["Service"]["createKey"]>[1];

const hour = 3_600_000;

/** One chatbot, and everything that it has. */
export class Chatbot extends DurableObject<Env> {
  private readonly parley: Promise<Parley>;
  private readonly server: Promise<WebHandler>;

  constructor(context: DurableObjectState, env: Env) {
    super(context, env);
    this.parley = openParley({
      store: layerDurable(context.storage),
      // Here goes `languageModel(…)`, or a function that calls your own service.
      answerer: async function* ({ question }) {
        yield "You asked: ";
        yield question;
      },
    });
    this.server = this.parley.then((parley) => makeWebHandler(parley.layer));
  }

  async fetch(request: Request): Promise<Response> {
    return (await this.server).handler(request);
  }

  /** Creates a key and, with the first, the chatbot. */
  async createKey(name: string, key: NewKey): Promise<{ id: string; key: string }> {
    const { storage } = this.ctx;
    if ((await storage.getAlarm()) === null) await storage.setAlarm(Date.now() + hour);
    const parley = await this.parley;
    const bot = await parley.chatbot({ workspace: "Workers", name, helloMessage: "Hello!" });
    const create = Administration.use((all) => all.createKey(bot.chatbot.id, key, "worker"));
    const created = await Effect.runPromise(Effect.provide(create, parley.layer));
    return { id: created.id, key: Redacted.value(created.key) };
  }

  /** Parley sets no timer, which would keep the object in memory. */
  async alarm(): Promise<void> {
    await (await this.parley).eraseExpired();
    await this.ctx.storage.setAlarm(Date.now() + hour);
  }
}

/** Knows to which chatbot a key belongs. */
export class Directory extends DurableObject<Env> {
  find(key: string): string | undefined {
    return this.ctx.storage.kv.get(key);
  }
  add(key: string, chatbot: string): void {
    this.ctx.storage.kv.put(key, chatbot);
  }
}

const tokens = makeVisitorTokens();
/** The chatbots of keys that this isolate has seen. A key never moves. */
const chatbots = new Map<string, string>();

/** Finds the chatbot of the request's key or visitor token. */
const chatbotOf = async (request: Request, directory: Pick<Directory, "find">): Promise<string> => {
  const credential = request.headers.get("x-api-key") ?? "";
  const id = keyId(credential) ?? tokens.keyId(credential);
  // This chatbot does not exist, so its object refuses the request, in the contract's words.
  if (id === null) return "";
  const name = chatbots.get(id) ?? (await directory.find(id));
  if (name !== undefined) chatbots.set(id, name);
  return name ?? "";
};

export default {
  fetch: async (request: Request, env: Env): Promise<Response> => {
    const directory = env.DIRECTORY.getByName("");
    if (new URL(request.url).pathname !== "/keys")
      return env.CHATBOTS.getByName(await chatbotOf(request, directory)).fetch(request);
    if (request.headers.get("authorization") !== `Bearer ${env.ADMIN_TOKEN}`)
      return new Response(null, { status: 401 });
    const { chatbot, ...newKey } = (await request.json()) as NewKey & { readonly chatbot: string };
    const { id, key } = await env.CHATBOTS.getByName(chatbot).createKey(chatbot, newKey);
    await directory.add(id, chatbot);
    return Response.json({ key }, { status: 201 });
  },
};
