import { beforeAll, describe, expect, it } from "vitest";
import { createChat, listChats, unique, type Chat, type Server } from "../client.ts";

/**
 * The sections "List chats" and "Lists" in docs/interface.md. The conformance kit tests all orders, ties, filters and
 * searches.
 */
export const chats = (server: Server): void => {
  describe("chats", () => {
    const userRef = unique();
    let newestFirst: ReadonlyArray<Chat> = [];
    const list = (query: string) => listChats(server(), `userRef=${userRef}&${query}`);
    beforeAll(async () => {
      const created: Array<Chat> = [];
      for (let n = 0; n < 28; n++)
        created.push(await createChat(server(), { name: `chat ${n}`, userRef }));
      newestFirst = created.toReversed();
    });

    it("a list of chats returns a page, by default the 25 newest, and the overall total", async () => {
      for (const [query, from, to, ascending] of [
        ["", 0, 25],
        ["limit=100", 0, 28],
        ["limit=10&page=2", 10, 20],
        ["page=2", 25, 28],
        ["page=3", 0, 0],
        ["limit=1&page=9007199254740991", 0, 0],
        ["orderBy=id&limit=3", 0, 3, true],
        ["desc=true&limit=3", 0, 3],
        ["desc=false&limit=3", 0, 3, true],
        ["orderBy=_createTime&desc=true&limit=3", 0, 3],
        // Unknown parameters.
        ["x=1&chat_id=x&__proto__[limit]=x&y=%00", 0, 25],
      ] as const) {
        const data = ascending ? newestFirst.toReversed() : newestFirst;
        expect(await list(query), query).toEqual({ data: data.slice(from, to), total: 28 });
      }
    });

    it("a list of chats accepts arrays in three notations", async () => {
      const tag = unique();
      const ids: Array<number> = [];
      for (const name of ["x", "y", "x"])
        ids.push((await createChat(server(), { name: `${tag}${name}` })).id);
      const [first, second, third] = ids;
      for (const [order, ...queries] of [
        [
          [second, first, third],
          "orderBy=name&orderBy=id&desc=true&desc=false",
          "orderBy[]=name&orderBy[]=id&desc[]=true&desc[]=false",
          "orderBy[0]=name&orderBy[1]=id&desc[0]=true&desc[1]=false",
          "orderBy=name&orderBy=id&desc[]=true&desc[]=false",
          "orderBy=n%61me&orderBy=i%64&desc=%74rue&desc=false",
        ],
        [[first, third, second], "orderBy=name", "orderBy[]=name", "orderBy[0]=name"],
      ] as const)
        for (const query of queries) {
          const { data } = await listChats(server(), `search=${tag}&${query}`);
          expect(
            data.map(({ id }) => id),
            query,
          ).toEqual(order);
        }
    });

    it("in a userRef, + and %20 both mean a space, %2B means a plus, and an empty one is a value", async () => {
      const tag = unique();
      const space = await createChat(server(), { userRef: `${tag} x` });
      const plus = await createChat(server(), { userRef: `${tag}+x` });
      const none = await createChat(server(), { userRef: "" });
      for (const [query, chat] of [
        [`userRef=${tag}+x`, space],
        [`userRef=${tag}%20x`, space],
        [`userRef=${tag}%2Bx`, plus],
        [`userRef=${tag}%2bx`, plus],
        [`userRef=&id=${none.id}`, none],
        [`id=0${plus.id}`, plus],
      ] as const)
        expect(await listChats(server(), query), query).toEqual({ data: [chat], total: 1 });
    });

    it("a search finds part of a name in any case, decodes percent-encoding, and combines with the other filters", async () => {
      const userRef = unique();
      const chat = await createChat(server(), { name: "100% Straße", userRef });
      for (const name of ["100 percent", "", null]) await createChat(server(), { name, userRef });
      const list = (query: string) => listChats(server(), `userRef=${userRef}&${query}`);
      for (const query of ["search=0%25+strasse", `search=STRA%C3%9FE&id=${chat.id}`])
        expect(await list(query), query).toEqual({ data: [chat], total: 1 });
      expect((await list("search=")).total).toBe(4);
      for (const query of [`search=strasse&id=${chat.id + 1}`, `search=${"ab%25".repeat(2500)}`])
        expect(await list(query)).toEqual({ data: [], total: 0 });
    });
  });
};
