/**
 * Debian's Chromium with one page, driven over the DevTools protocol, and a log of its network activity.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Duplex } from "node:stream";

const program = "/usr/bin/chromium";

/** Without these, the browser's own traffic would count as the page's. */
const quiet = [
  "--disable-background-networking",
  "--disable-component-extensions-with-background-pages",
  "--disable-component-update",
  "--disable-default-apps",
  "--disable-domain-reliability",
  "--disable-extensions",
  "--disable-field-trial-config",
  "--disable-sync",
  "--disable-features=AutofillServerCommunication,CertificateTransparencyComponentUpdater,MediaRouter,NetworkTimeServiceQuerying,OptimizationHints,Translate",
  "--metrics-recording-only",
  "--no-default-browser-check",
  "--no-first-run",
  "--no-pings",
  "--no-service-autorun",
];

interface Message {
  readonly id?: number;
  readonly method?: string;
  readonly params?: Record<string, any>;
  readonly result?: Record<string, any>;
  readonly error?: { readonly message: string };
}

export interface Chromium {
  /** Sends one DevTools command to the page. */
  readonly send: (method: string, params?: object) => Promise<Record<string, any>>;
  /** The value of an expression in the page; a promise is awaited. */
  readonly evaluate: (expression: string) => Promise<any>;
  /** Resolves when the expression is truthy in the page; rejects after 20 s. */
  readonly until: (expression: string) => Promise<void>;
  /** Closes the browser; returns the page's requests, from the network log. */
  readonly close: () => Promise<PageRequests>;
}

/** The page's requests, whether or not they received a response. */
export interface PageRequests {
  readonly urls: ReadonlyArray<string>;
  /** The hosts looked up for a request or ahead of one, with scheme; `~notfound` stands for any other machine's. */
  readonly hosts: ReadonlyArray<string>;
}

type NetLogParams = Readonly<Record<string, string>>;

interface NetLog {
  readonly constants: { readonly logEventTypes: Readonly<Record<string, number>> };
  readonly events: ReadonlyArray<{
    readonly type: number;
    readonly params?: NetLogParams;
  }>;
}

/**
 * The requests from the site's pages. No switch silences all of the browser's own traffic, but in the network log that
 * traffic has no page as its initiator and no site in its isolation key.
 */
const readNetLog = async (file: string, site: string): Promise<PageRequests> => {
  const { constants, events } = JSON.parse(await readFile(file, "utf8")) as NetLog;
  const valuesOf = (event: string, param: string, isOfPage: (params: NetLogParams) => boolean) => {
    const type = constants.logEventTypes[event];
    if (type === undefined) throw new Error(`this Chromium's network log has no event ${event}`);
    const values = events.flatMap(({ params, type: its }) => {
      const value = its === type ? params?.[param] : undefined;
      return value !== undefined && isOfPage(params!) ? [value] : [];
    });
    return [...new Set(values)];
  };
  const isOfSite = (key: string | undefined) => key?.startsWith(`${site} `) === true;
  return {
    urls: valuesOf(
      "URL_REQUEST_START_JOB",
      "url",
      ({ initiator, network_isolation_key: key }) => initiator !== "not an origin" || isOfSite(key),
    ),
    hosts: valuesOf("HOST_RESOLVER_MANAGER_REQUEST", "host", ({ network_anonymization_key: key }) =>
      isOfSite(key),
    ),
  };
};

/**
 * Starts Chromium with an empty profile. `name`, a host name without a subdomain, resolves to this machine; no other
 * name resolves.
 */
export const startChromium = async (name: string): Promise<Chromium> => {
  if (!existsSync(program)) {
    throw new Error(`${program} is missing: install Debian's package chromium`);
  }
  const directory = await mkdtemp(join(tmpdir(), "parley-chromium-"));
  const netLog = join(directory, "net-log.json");
  const child = spawn(
    program,
    [
      ...quiet,
      "--headless=new",
      // Chromium's sandbox refuses to run as root.
      "--no-sandbox",
      "--disable-dev-shm-usage",
      "--disable-gpu",
      "--window-size=1280,900",
      `--user-data-dir=${join(directory, "profile")}`,
      `--log-net-log=${netLog}`,
      "--net-log-capture-mode=Everything",
      "--no-proxy-server",
      `--host-resolver-rules=MAP ${name} 127.0.0.1 , MAP * ~NOTFOUND , EXCLUDE 127.0.0.1`,
      "--remote-debugging-pipe",
      "about:blank",
    ],
    {
      cwd: directory,
      stdio: ["ignore", "ignore", "pipe", "pipe", "pipe"],
      env: { ...process.env, HOME: directory },
    },
  );
  let log = "";
  child.stderr!.on("data", (chunk: Buffer) => (log += chunk.toString()));
  const exit = once(child, "exit");
  const killAtExit = () => child.kill("SIGKILL");
  process.once("exit", killAtExit);

  const [, , , commands, answers] = child.stdio as unknown as ReadonlyArray<Duplex>;
  const calls = new Map<number, PromiseWithResolvers<Record<string, any>>>();
  let last = 0;
  let rest = "";
  answers!.setEncoding("utf8").on("data", (chunk: string) => {
    const messages = (rest + chunk).split("\0");
    rest = messages.pop()!;
    for (const { id, error, result } of messages.map((text) => JSON.parse(text) as Message)) {
      const call = id === undefined ? undefined : calls.get(id);
      if (error !== undefined) call?.reject(new Error(error.message));
      else call?.resolve(result ?? {});
    }
  });
  commands!.on("error", () => undefined);
  void exit.then(() => {
    for (const { reject } of calls.values()) reject(new Error(`Chromium ended:\n${log}`));
  });
  const command = async (method: string, params: object = {}, sessionId?: string) => {
    const answer = Promise.withResolvers<Record<string, any>>();
    const id = ++last;
    calls.set(id, answer);
    commands!.write(JSON.stringify({ id, method, params, sessionId }) + "\0");
    try {
      return await answer.promise;
    } finally {
      calls.delete(id);
    }
  };

  const { targetInfos } = await command("Target.getTargets");
  const { targetId } = targetInfos.find(({ type }: { type: string }) => type === "page");
  const { sessionId } = await command("Target.attachToTarget", { targetId, flatten: true });
  const send: Chromium["send"] = (method, params) => command(method, params, sessionId);
  const evaluate: Chromium["evaluate"] = async (expression) => {
    const { exceptionDetails, result } = await send("Runtime.evaluate", {
      expression,
      awaitPromise: true,
      returnByValue: true,
      userGesture: true,
    });
    if (exceptionDetails !== undefined) {
      throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    }
    return result.value;
  };
  return {
    send,
    evaluate,
    until: async (expression) => {
      const deadline = Date.now() + 20_000;
      // While the page navigates, the browser ends evaluations.
      const isTrue = () =>
        evaluate(expression).catch((error: Error) => {
          if (!/navigated or closed/.test(error.message)) throw error;
        });
      while (!(await isTrue())) {
        if (Date.now() > deadline) {
          throw new Error(
            `never true in the page: ${expression}\n${await evaluate("document.body.innerText.slice(0, 4000)")}`,
          );
        }
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    },
    close: async () => {
      // The network log is complete only after a clean exit.
      void command("Browser.close").catch(() => undefined);
      const deadline = setTimeout(killAtExit, 10_000);
      await exit;
      clearTimeout(deadline);
      process.removeListener("exit", killAtExit);
      try {
        return await readNetLog(netLog, `http://${name}`);
      } finally {
        await rm(directory, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
      }
    },
  };
};
