/**
 * A shop whose pages contain the widget: its site and its Parley server.
 */
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { launch } from "../../apps/server/test/contract/launch.ts";

export type Site = Awaited<ReturnType<typeof startSite>>;

export const startSite = async (listener: RequestListener) => {
  const site = createServer(listener);
  await once(site.listen(0, "127.0.0.1"), "listening");
  const { port } = site.address() as AddressInfo;
  return {
    /**
     * For a page on `localhost`, the server on 127.0.0.1 is another site, and in private windows such as the tests'
     * Chromium blocks storage in cross-site frames.
     */
    originOf: (name = "localhost") => `http://${name}:${port}`,
    close: () => {
      site.close();
      site.closeAllConnections();
    },
  };
};

export type Shop = Awaited<ReturnType<typeof launchShop>>;

/** Starts a server with keys for widgets on pages of these origins. */
export const launchShop = async (
  keys: ReadonlyArray<string>,
  origins: ReadonlyArray<string>,
  settings: Readonly<Record<string, string>> = {},
) => {
  const directory = await mkdtemp(join(tmpdir(), "parley-shop-"));
  const provision = join(directory, "provision.json");
  const widget = {
    scopes: ["read", "write", "ask", "delete"],
    visitors: true,
    origins,
    anonymous: true,
    visitorRatePerMinute: 1000,
    tokensPerDay: 1_000_000,
  };
  const chatbot = {
    workspace: "Shop",
    name: "Shop assistant",
    helloMessage: "Hello! 👋",
    suggestedQuestions: ["Ports"],
    keys: keys.map((key) => ({ ...widget, key })),
  };
  await writeFile(provision, JSON.stringify({ chatbots: [chatbot] }));
  const server = await launch("memory", { PARLEY_PROVISION: provision, ...settings });
  return {
    ...server.target,
    stop: async () => {
      await server.stop();
      await rm(directory, { recursive: true, force: true });
    },
  };
};
