import { beforeAll, describe, expect, it } from "vitest";
import {
  api,
  createChat,
  expectInvalid,
  listChats,
  unique,
  type Chat,
  type Server,
} from "../client.ts";
import { notIntegers } from "./values.ts";

const ids = (chats: ReadonlyArray<Chat>): ReadonlyArray<number> => chats.map(({ id }) => id);

/**
 * The sections "List chats" and "Lists" in docs/interface.md. The conformance kit tests all orders, ties, filters and
 * searches.
 */
export const chats = (server: Server): void => {
  describe("chats: pages", () => {
    const userRef = unique();
    let newestFirst: ReadonlyArray<Chat> = [];
    const list = (query: string) => listChats(server(), `userRef=${userRef}&${query}`);
    beforeAll(async () => {
      const created: Array<Chat> = [];
      for (let n = 0; n < 28; n++)
        created.push(await createChat(server(), { name: `chat ${n}`, userRef }));
      newestFirst = created.toReversed();
    });

    for (const [query, from, to] of [
      ["", 0, 25],
      ["limit=100", 0, 28],
      ["limit=10&page=2", 10, 20],
      ["page=2", 25, 28],
      ["page=3", 0, 0],
      ["limit=1&page=9007199254740991", 0, 0],
    ] as const)
      it(`a list of chats with ${query || "no parameters"} returns a page, newest first, and the overall total`, async () => {
        expect(await list(query)).toEqual({ data: newestFirst.slice(from, to), total: 28 });
      });

    for (const [query, ascending] of [
      ["orderBy=id", true],
      ["desc=true", false],
      ["desc=false", true],
      ["orderBy=_createTime&desc=true", false],
    ] as const)
      it(`a list of chats with ${query} is ${ascending ? "oldest" : "newest"} first`, async () => {
        const data = ascending ? newestFirst.toReversed() : newestFirst;
        expect(await list(`${query}&limit=100`)).toEqual({ data, total: 28 });
      });
  });

  describe("chats: arrays in three notations", () => {
    const tag = unique();
    const order: Array<number> = [];
    beforeAll(async () => {
      for (const name of ["x", "y", "x"])
        order.push((await createChat(server(), { name: `${tag}${name}` })).id);
    });
    for (const query of [
      "orderBy=name&orderBy=id&desc=true&desc=false",
      "orderBy[]=name&orderBy[]=id&desc[]=true&desc[]=false",
      "orderBy[0]=name&orderBy[1]=id&desc[0]=true&desc[1]=false",
      "orderBy=name&orderBy=id&desc[]=true&desc[]=false",
      "orderBy=n%61me&orderBy=i%64&desc=%74rue&desc=false",
    ])
      it(`a list of chats accepts the arrays ${query}`, async () => {
        const { data } = await listChats(server(), `search=${tag}&${query}`);
        expect(ids(data)).toEqual([order[1], order[0], order[2]]);
      });

    for (const query of ["orderBy=name", "orderBy[]=name", "orderBy[0]=name"])
      it(`a list of chats accepts the single value ${query}`, async () => {
        const { data } = await listChats(server(), `search=${tag}&${query}`);
        expect(ids(data)).toEqual([order[0], order[2], order[1]]);
      });
  });

  describe("chats: an invalid value results in 422 with the parameter's name", () => {
    for (const parameter of ["limit", "page", "id"]) {
      for (const [what, text] of notIntegers)
        it(`a list of chats rejects ${what} as ${parameter}`, async () => {
          expectInvalid(await api(server(), `/chats?${parameter}=${text}`), parameter);
        });
    }
    for (const [query, ...parameters] of [
      ["limit=101", "limit"],
      ["orderBy=nope", "orderBy"],
      ["orderBy=name&orderBy=name", "orderBy"],
      ["desc=1", "desc"],
      ["desc=true&desc=false", "desc"],
      ["orderBy=id&orderBy=name&desc=true", "desc"],
      ["search=a%00b", "search"],
      ["limit=1&limit=2", "limit"],
      ["userRef=a&userRef=a", "userRef"],
      [
        "page=0&limit=101&id=a&desc=b&orderBy=c&search=%00&userRef=%00",
        "page",
        "limit",
        "id",
        "desc",
        "orderBy",
        "search",
        "userRef",
      ],
    ] as const)
      it(`a list of chats rejects ${query}`, async () => {
        expectInvalid(await api(server(), `/chats?${query}`), ...parameters);
      });
  });

  describe("chats: unknown parameters are ignored", () => {
    for (const query of ["x=1", "chat_id=x", "x=%00", "__proto__[limit]=x"])
      it(`a list of chats ignores ${query}`, async () => {
        const userRef = unique();
        const chat = await createChat(server(), { userRef });
        expect(await listChats(server(), `${query}&userRef=${userRef}`)).toEqual({
          data: [chat],
          total: 1,
        });
      });
  });

  describe("chats: userRef and id", () => {
    it("an empty userRef matches chats whose userRef is empty", async () => {
      const chat = await createChat(server(), { userRef: "" });
      const listed = await listChats(server(), `userRef=&id=${chat.id}`);
      expect(listed).toEqual({ data: [chat], total: 1 });
    });

    it("in a userRef, + and %20 both mean a space, and %2B means a plus", async () => {
      const tag = unique();
      const space = await createChat(server(), { userRef: `${tag} x` });
      const plus = await createChat(server(), { userRef: `${tag}+x` });
      expect((await listChats(server(), `userRef=${tag}+x`)).data).toEqual([space]);
      expect((await listChats(server(), `userRef=${tag}%20x`)).data).toEqual([space]);
      expect((await listChats(server(), `userRef=${tag}%2Bx`)).data).toEqual([plus]);
      expect((await listChats(server(), `userRef=${tag}%2bx`)).data).toEqual([plus]);
    });

    it("the parameter id returns only the chat with that id, and a total of 1", async () => {
      const chat = await createChat(server());
      await createChat(server());
      expect(await listChats(server(), `id=${chat.id}`)).toEqual({ data: [chat], total: 1 });
      expect(await listChats(server(), `id=0${chat.id}`)).toEqual({ data: [chat], total: 1 });
    });
  });

  describe("chats: search", () => {
    it("a search finds part of a name in any case, decodes percent-encoding, and combines with the other filters", async () => {
      const userRef = unique();
      const chat = await createChat(server(), { name: "100% Straße", userRef });
      for (const name of ["100 percent", "", null]) await createChat(server(), { name, userRef });
      const list = (query: string) => listChats(server(), `userRef=${userRef}&${query}`);
      for (const query of ["search=0%25+strasse", `search=STRA%C3%9FE&id=${chat.id}`])
        expect(await list(query), query).toEqual({ data: [chat], total: 1 });
      expect((await list("search=")).total).toBe(4);
      expect(await list(`search=strasse&id=${chat.id + 1}`)).toEqual({ data: [], total: 0 });
    });

    it("a search accepts a very long string", async () => {
      expect(await listChats(server(), `search=${"ab%25".repeat(2500)}`)).toEqual({
        data: [],
        total: 0,
      });
    });
  });
};
