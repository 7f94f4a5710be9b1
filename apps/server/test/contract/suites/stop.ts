import { expect, it } from "vitest";
import {
  api,
  askApi,
  createChat,
  expectGeneral,
  expectInvalid,
  unique,
  type Server,
} from "../client.ts";

/** `DELETE {ask_url}/` in docs/interface.md, for asks that are not in progress. */
export const stop = (server: Server): void => {
  const stopAsk = (key?: string, path = "/") =>
    askApi(
      server(),
      { method: "DELETE", headers: key === undefined ? {} : { "idempotency-key": key } },
      path,
    );

  it("a stop of an answered ask returns the entry, and changes nothing", async () => {
    const call = { json: { query: "port" }, headers: { "idempotency-key": unique() } };
    const { data } = (await askApi(server(), call)).body;
    for (const path of ["/", ""]) {
      const response = await stopAsk(call.headers["idempotency-key"], path);
      expect(response.status, response.text).toBe(200);
      expect(response.body).toEqual({ status: 200, data: { stopped: false, entry: data } });
    }
    const query = "/?include=metadata,feedback";
    const { entry } = (await stopAsk(call.headers["idempotency-key"], query)).body.data;
    expect(entry).toEqual((await askApi(server(), call, query)).body.data);
    expect(Object.keys(entry).length).toBe(Object.keys(data).length + 3);
    const again = await askApi(server(), call);
    expect(again.body.data).toEqual(data);
  });

  it("a key that is unknown, or made a chat or a post, names no ask", async () => {
    const headers = { "idempotency-key": unique() };
    await api(server(), "/chats", { json: {}, headers });
    const chat = await createChat(server());
    const post = { "idempotency-key": unique() };
    await api(server(), `/chats/${chat.id}/history`, {
      json: { text: "t" },
      headers: post,
      key: server().postKey,
    });
    for (const key of [unique(), headers["idempotency-key"], post["idempotency-key"]]) {
      const response = await stopAsk(key);
      expectGeneral(response, 404);
      expect(response.body.message).toBe("ASK_DOES_NOT_EXIST");
    }
  });

  it("a stop needs a valid Idempotency-Key and the scope of asks", async () => {
    expectInvalid(await stopAsk(), "Idempotency-Key");
    expectInvalid(await stopAsk("é"), "Idempotency-Key");
    expectInvalid(await stopAsk(unique(), "/?include=activity"), "include");
  });
};
