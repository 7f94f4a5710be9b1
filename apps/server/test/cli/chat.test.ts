import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { beforeAll, expect, it } from "vitest";
import { startTestModel, type ModelRequest } from "../TestModel.ts";
import { temporaryFolder } from "../TemporaryFolder.ts";
import { here, shell } from "./here.ts";
import { main, run, start } from "./run.ts";

const settings = { PARLEY_STORE: "sqlite", PARLEY_DATA_DIR: temporaryFolder() };
const { json, parley } = shell(settings);

beforeAll(async () => {
  expect((await parley("migrate")).code).toBe(0);
  expect((await parley("chatbot create --workspace Acme --name Helpdesk")).code).toBe(0);
});

const question = "How do I change the port?\n";

/** The questions in all chats, each with the id of its chat. */
const storedQuestions = async () => {
  const { stdout } = await parley("chats export");
  return stdout
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line))
    .flatMap(({ entry }) => (entry === undefined ? [] : [[entry.chat_id, entry.question]]));
};

/**
 * Chats with a model that answers so. Types each input once the output before it has appeared, and resolves with all
 * output and how the command exited.
 */
const talk = async (
  answer: (request: ModelRequest) => unknown,
  steps: Array<readonly [output: string, input: string]>,
) => {
  const model = await startTestModel(answer);
  const { child } = start(
    [],
    { ...settings, ...model.settings },
    ["script", "-qec", `${process.execPath} ${main} chat`, "/dev/null"],
    { stdio: ["pipe", "pipe", "inherit"] },
  );
  const exit = once(child, "exit");
  let output = "";
  let all = "";
  for await (const data of child.stdout!) {
    output += data;
    all += data;
    if (steps.length === 0 || !output.includes(steps[0]![0])) continue;
    child.stdin!.write(steps.shift()![1]);
    output = "";
  }
  child.stdin!.end();
  model.close();
  return { all, exit: await exit };
};

it("parley chat answers each valid question that is piped to it, and prints the id of the chat", async () => {
  const { code, stderr, stdout } = await run(["chat"], settings, question);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "Started chat 1.\n" });
  expect(stdout).toContain("`PARLEY_PORT` is the port, 3000 by default.");
  const lines = `${question}\n${"x".repeat(201)}\na\0b\nAnd the host?`;
  const more = await parley("chat --chat 1", lines);
  expect(more).toMatchObject({ code: 1, stderr: expect.stringMatching(/: 2 asks failed\.$/m) });
  expect(more.stderr.match(/^parley: Not asked: .*\nhint: .*\n/gm)).toHaveLength(2);
  expect(await storedQuestions()).toEqual([
    [1, "How do I change the port?"],
    [1, "How do I change the port?"],
    [1, "And the host?"],
  ]);
  const longer = shell({ ...settings, PARLEY_QUESTION_LENGTH: "300" });
  const long = await longer.parley("chat --chat 1", `${"Which port is it? ".repeat(15)}\n`);
  expect(long.code).toBe(0);
});

it("parley chat exits with 1 if an ask fails, stores no entry for it, and logs nothing without --log-level", async () => {
  const dead = {
    ...settings,
    PARLEY_LLM_BASE_URL: "http://127.0.0.1:1/v1",
    PARLEY_LLM_MODEL: "small",
    PARLEY_LLM_API_KEY: "sk-very-secret",
    PARLEY_ASK_DEADLINE: "1 second",
  };
  const before = await storedQuestions();
  const { code, stderr, stdout } = await here(["chat"], dead, question);
  expect({ code, stdout }).toEqual({ code: 1, stdout: "\n" });
  expect(stderr.split("\n")).toEqual([
    "Started chat 2.",
    expect.stringMatching(/^parley: The ask failed: .+\.$/),
    expect.stringMatching(/^hint: "npx --yes pnpm@12 --silent parley doctor" checks /),
    "parley: 1 ask failed.",
    expect.stringMatching(/^hint: /),
    "",
  ]);
  expect(stderr).not.toContain("secret");
  expect(await storedQuestions()).toEqual(before);
});

it("parley chat cancels an answer on Ctrl-C, shows and continues other chats, and quits on Ctrl-C at the prompt", async () => {
  const answer = ({ end, prompt, say }: ModelRequest) => {
    say("Once upon\x1b[31m");
    if (prompt.includes("A short story?")) end();
  };
  const before = await storedQuestions();
  const { all, exit } = await talk(answer, [
    ["Ctrl-D quits.", "A story?\r"],
    ["Once", "\x03"],
    ["upon\ufffd[31m\r\nStopped.", "A short story?\r"],
    ["Once upon", "/history\r"],
    ["> A short story?\r\nOnce upon", "/open 1\r"],
    ["Chat 1: 4 of 4 entries", "/what\r"],
    ["Ctrl-D quits.", "\x03"],
  ]);
  expect(exit).toEqual([0, null]);
  expect(all).toMatch(/^You talk to Helpdesk \(Acme\)\. /);
  const questions = await storedQuestions();
  expect(questions).toEqual([...before, [expect.any(Number), "A short story?"]]);
  const reads = (await json("audit")).filter(
    ({ action }: { readonly action: string }) => action === "read",
  );
  expect(reads.map(({ detail }: { readonly detail: string }) => detail)).toEqual([
    "chat 1",
    `chat ${questions.at(-1)![0]}`,
  ]);
});

it("parley chat finishes the answer and quits when Ctrl-D is pressed during it", async () => {
  const answer = async ({ end, say }: ModelRequest) => {
    say("Once ");
    await sleep(1000);
    say("upon a time.");
    await sleep(1000);
    end();
  };
  const { all, exit } = await talk(answer, [
    ["Ctrl-D quits.", "A story?\r"],
    ["Once", "\x04"],
  ]);
  expect(exit).toEqual([0, null]);
  expect(all).toContain("upon a time.");
  expect(all).not.toContain("ERROR");
});
