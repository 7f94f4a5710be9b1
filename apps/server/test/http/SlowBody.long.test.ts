import { expect, it } from "vitest";
import { basePath, expectGeneral, raw, requestText } from "../contract/client.ts";
import { launchForTests } from "../contract/launch.ts";

const testServer = launchForTests("memory");

it("a body that does not arrive within thirty seconds is 400, and the connection is closed", async () => {
  const { key, origin } = testServer().target;
  const head = requestText(`POST ${basePath(testServer().target)}/chats HTTP/1.1`, [
    "Host: example.test",
    `x-api-key: ${key}`,
    "Content-Type: application/json",
    "Content-Length: 100",
  ]);
  // Without the second method, `raw` would not wait until the connection is closed.
  const methods = ["POST", "POST"];
  const { answers } = await raw(origin, [head, "{"], { methods, timeout: 50_000 });
  expect(answers).toHaveLength(1);
  expectGeneral(answers[0]!, 400);
  expect(answers[0]!.body.message).toBe("REQUEST_TIMEOUT");
}, 60_000);

it("a request whose headers never end results in 400 after a timeout", async () => {
  const head = "GET / HTTP/1.1\r\nHost: example.test\r\n";
  const { answers } = await raw(testServer().target.origin, [head], { timeout: 25_000 });
  expect(answers).toHaveLength(1);
  expectGeneral(answers[0]!, 400);
});
