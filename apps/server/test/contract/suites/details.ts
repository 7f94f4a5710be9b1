import { describe, expect, it } from "vitest";
import { api, expectNoEndpoint, basePath, type Server } from "../client.ts";

/** The section "Get chatbot details" in docs/interface.md, and the request ids in "Requests and responses". */
export const details = (server: Server): void => {
  describe("details", () => {
    it("the details are the name, description and workspace of the key's chatbot", async () => {
      const answer = await api(server(), "/details");
      const { name, description, workspaceName } = server().chatBot;
      expect(answer.body).toEqual({
        status: 200,
        data: { chatBotName: name, chatBotDescription: description, workspaceName },
      });
    });

    it("a key for another chatbot returns that chatbot's details", async () => {
      const mine = await api(server(), "/details");
      const other = await api(server(), "/details", { key: server().otherKey });
      expect(other.status).toBe(200);
      expect(other.text).not.toBe(mine.text);
    });

    it("a response has the client's x-request-id if it is valid, and otherwise a new one", async () => {
      const idOf = async (requestId: string) =>
        (await api(server(), "/details", { headers: { "x-request-id": requestId } })).headers[
          "x-request-id"
        ];
      for (const id of ["a", "A-1_2.3", "x".repeat(128)]) expect(await idOf(id)).toBe(id);
      for (const id of ["", "a b", "a,b", "é", "x".repeat(129)]) {
        expect(await idOf(id)).not.toBe(id);
        expect(await idOf(id)).not.toBe(await idOf(id));
      }
    });

    for (const query of [
      "?",
      "?x=1",
      "?limit=abc",
      "?orderBy=nope&desc=",
      "?%zz",
      "?a[0]=1&a[0]=2",
    ])
      it(`the details ignore unknown parameters: ${query}`, async () => {
        expect((await api(server(), `/details${query}`)).status).toBe(200);
      });

    for (const accept of ["application/xml", "text/html", "*/*", "text/event-stream", "bogus"])
      it(`the details are JSON, whatever Accept says: ${accept}`, async () => {
        expect((await api(server(), "/details", { headers: { accept } })).status).toBe(200);
      });

    it("a request for the details needs no content type, and any content type is ignored", async () => {
      const headers = { "content-type": "text/plain" };
      expect((await api(server(), "/details", { headers })).status).toBe(200);
    });

    for (const method of ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"])
      it(`${method} /details is not an endpoint`, async () => {
        const answer = await api(server(), "/details", { method });
        expectNoEndpoint(answer, method, `${basePath(server())}/details`);
      });
  });
};
