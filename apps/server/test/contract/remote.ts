/**
 * Runs the contract's suites about well-formed HTTP against a server at any address; see `run.ts`. Tests that need other
 * keys than the two are skipped.
 */
import { beforeAll, beforeEach } from "vitest";
import { createChat, listEntries, type Target } from "./client.ts";
import { interfaces } from "./suite.ts";

const {
  PARLEY_KEY,
  PARLEY_OTHER_KEY,
  PARLEY_URL,
  PARLEY_BASE = "/api",
  PARLEY_ASK = "/ask",
} = process.env;

let skip: (note: string) => void;
beforeEach((context) => {
  skip = context.skip;
});

const { origin } = new URL(PARLEY_URL!);
const keys = { key: PARLEY_KEY!, fullKey: PARLEY_KEY!, otherKey: PARLEY_OTHER_KEY! };
let target: Target;
const server = () => target;

beforeAll(async () => {
  const baseUrl = origin + PARLEY_BASE;
  const response = await fetch(`${baseUrl}/details`, { headers: { "x-api-key": keys.key } });
  const { data } = (await response.json()) as { data: Record<string, string> };
  const chatBot: Target["chatBot"] = {
    name: data["chatBotName"]!,
    description: data["chatBotDescription"]!,
    workspaceName: data["workspaceName"]!,
    helloMessage: "",
    moderationErrorMessage: "",
  };
  const addresses = { ...keys, baseUrl, askUrl: origin + PARLEY_ASK, origin };
  const { id } = await createChat({ ...addresses, chatBot } as Target);
  const hello =
    (await listEntries({ ...addresses, chatBot } as Target, id)).data.at(-1)?.answer ?? "";
  target = new Proxy({ ...addresses, chatBot: { ...chatBot, helloMessage: hello } } as Target, {
    get: (values, name) => {
      if (!(name in values)) skip(`needs a key of another kind: ${String(name)}`);
      return values[name as keyof Target];
    },
  });
});

interfaces(server);
