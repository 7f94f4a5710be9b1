import { expect, it } from "vitest";
import { api, type Server } from "../client.ts";

/** The section "Get chatbot details" in docs/interface.md, and the request ids in "Requests and responses". */
export const details = (server: Server): void => {
  it("the details are the name, description and workspace of the key's chatbot", async () => {
    const answer = await api(server(), "/details");
    const { name, description, workspaceName } = server().chatBot;
    expect(answer.body).toEqual({
      status: 200,
      data: { chatBotName: name, chatBotDescription: description, workspaceName },
    });
    const other = await api(server(), "/details", { key: server().otherKey });
    expect(other.status).toBe(200);
    expect(other.text).not.toBe(answer.text);
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

  it("the details are JSON, whatever the parameters, Accept and the content type", async () => {
    for (const query of ["?", "?x=1", "?limit=abc", "?orderBy=nope&desc=", "?%zz"])
      expect((await api(server(), `/details${query}`)).status, query).toBe(200);
    for (const headers of [
      ...["application/xml", "text/event-stream", "bogus"].map((accept) => ({ accept })),
      { "content-type": "text/plain" },
    ])
      expect((await api(server(), "/details", { headers })).status).toBe(200);
  });
};
