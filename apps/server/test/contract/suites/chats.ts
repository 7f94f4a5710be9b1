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
const names = (chats: ReadonlyArray<Chat>) => chats.map(({ name }) => name);

/** Section 4.3 and "Lists" of the decisions. */
export const chats = (server: Server): void => {
  describe("chats: pages", () => {
    const userRef = unique();
    let oldestFirst: ReadonlyArray<Chat> = [];
    let newestFirst: ReadonlyArray<Chat> = [];
    const list = (query: string) => listChats(server(), `userRef=${userRef}&${query}`);
    beforeAll(async () => {
      const made: Array<Chat> = [];
      for (let n = 0; n < 28; n++)
        made.push(await createChat(server(), { name: `chat ${n}`, userRef }));
      oldestFirst = made;
      newestFirst = made.toReversed();
    });

    it("returns the newest 25 by default, and the total of all", async () => {
      expect(await list("")).toEqual({ data: newestFirst.slice(0, 25), total: 28 });
    });

    for (const [query, from, to] of [
      ["limit=10", 0, 10],
      ["limit=100", 0, 28],
      ["limit=10&page=2", 10, 20],
      ["limit=10&page=3", 20, 28],
      ["page=2", 25, 28],
      ["page=3", 0, 0],
      ["limit=28&page=2", 0, 0],
      ["limit=1&page=9007199254740991", 0, 0],
      ["limit=3&page=3002399751580331", 0, 0],
    ] as const)
      it(`${query}: a page, and the true total`, async () => {
        expect(await list(query)).toEqual({ data: newestFirst.slice(from, to), total: 28 });
      });

    for (const [query, ascending] of [
      ["orderBy=id", true],
      ["orderBy=id&desc=true", false],
      ["desc=true", false],
      ["desc=false", true],
      ["orderBy=_createTime", true],
      ["orderBy=_createTime&desc=true", false],
      ["orderBy=userRef", true],
      ["orderBy=userRef&desc=true", false],
      ["orderBy=userRef&orderBy=id&desc=true&desc=false", true],
      ["orderBy=userRef&orderBy=id&desc=false&desc=true", false],
      ["orderBy=id&orderBy=name", true],
      ["orderBy=id&orderBy=name&desc=true&desc=false", false],
    ] as const)
      it(`${query}: ${ascending ? "oldest" : "newest"} first`, async () => {
        const data = ascending ? oldestFirst : newestFirst;
        expect(await list(`${query}&limit=100`)).toEqual({ data, total: 28 });
        expect((await list(`${query}&limit=5&page=6`)).data).toEqual(data.slice(25));
        expect((await list(`${query}&limit=5&page=3`)).data).toEqual(data.slice(10, 15));
      });
  });

  describe("chats: order and ties", () => {
    const userRef = unique();
    // By code point: U+FFFD before U+1F600, which UTF-16 code units and most locales disagree with.
    const ascending = [
      "",
      " ",
      "10",
      "9",
      "B",
      "a",
      "a",
      "ab",
      "e\u0301",
      "z",
      "é",
      "\ufffd",
      "😀",
    ];
    const shuffled = [9, 2, 12, 5, 0, 7, 11, 3, 10, 6, 1, 8, 4];
    const list = (query: string) => listChats(server(), `userRef=${userRef}&limit=100&${query}`);
    beforeAll(async () => {
      for (const [n, index] of shuffled.entries()) {
        if (n === 4 || n === 9) await createChat(server(), { userRef });
        await createChat(server(), { userRef, name: ascending[index] });
      }
    });

    it("sorts text by code point, absent values after all others", async () => {
      const { data, total } = await list("orderBy=name");
      expect(names(data)).toEqual([...ascending, null, null]);
      expect(total).toBe(15);
    });

    it("reverses the order when descending", async () => {
      const up = await list("orderBy=name");
      const down = await list("orderBy=name&desc=true");
      expect(down.data).toEqual(up.data.toReversed());
    });

    it("breaks ties by id in the direction of the last field", async () => {
      const tied = (data: ReadonlyArray<Chat>) =>
        [null, "a"].map((name) => ids(data.filter((chat) => chat.name === name)));
      for (const [query, sign] of [
        ["orderBy=name", 1],
        ["orderBy=name&desc=true", -1],
        ["orderBy=name&orderBy=userRef&desc=true&desc=false", 1],
        ["orderBy=name&orderBy=userRef&desc=false&desc=true", -1],
        ["orderBy=userRef&orderBy=name&desc=true&desc=false", 1],
        ["orderBy=name&orderBy=id&desc=true&desc=false", 1],
        ["orderBy=name&orderBy=id&desc=false&desc=true", -1],
      ] as const)
        for (const [first = 0, second = 0] of tied((await list(query)).data))
          expect(Math.sign(second - first), query).toBe(sign);
    });

    for (const query of [
      "orderBy=name",
      "orderBy=name&desc=true",
      "orderBy=userRef&orderBy=name&desc=true&desc=true",
    ])
      it(`${query}: walking the pages visits each chat once, in the same order`, async () => {
        const whole = await list(query);
        const walked: Array<Chat> = [];
        for (let page = 1; page <= 6; page++) {
          const part = await listChats(
            server(),
            `userRef=${userRef}&limit=3&page=${page}&${query}`,
          );
          expect(part.total).toBe(15);
          walked.push(...part.data);
        }
        expect(walked).toEqual(whole.data);
      });

    it("applies the fields in the given order", async () => {
      const tag = unique();
      const made: Array<Chat> = [];
      for (const [name, ref] of [
        ["b", `${tag}1`],
        ["a", `${tag}2`],
        ["a", `${tag}1`],
        ["b", `${tag}2`],
      ])
        made.push(await createChat(server(), { name: `${tag}${name}`, userRef: ref }));
      const order = async (query: string) =>
        ids((await listChats(server(), `search=${tag}&${query}`)).data).map((id) =>
          ids(made).indexOf(id),
        );
      expect(await order("orderBy=name&orderBy=userRef")).toEqual([2, 1, 0, 3]);
      expect(await order("orderBy=userRef&orderBy=name")).toEqual([2, 0, 1, 3]);
      expect(await order("orderBy=name&orderBy=userRef&desc=true&desc=false")).toEqual([
        0, 3, 2, 1,
      ]);
      expect(await order("orderBy=name&orderBy=userRef&desc=false&desc=true")).toEqual([
        1, 2, 3, 0,
      ]);
      expect(await order("orderBy=userRef&orderBy=name&desc=true&desc=true")).toEqual([3, 1, 0, 2]);
    });

    // Many chats share a millisecond, so the second field decides, which it can only do when the
    // first one is compared as it is shown.
    it("compares times as they are shown", async () => {
      const tag = unique();
      const made = await Promise.all(
        Array.from({ length: 60 }, (_, n) =>
          createChat(server(), { name: `${(n * 37) % 60}`.padStart(2, "0"), userRef: tag }),
        ),
      );
      const by = (time: number, name: number, id: number) => (a: Chat, b: Chat) =>
        time * (Date.parse(a._createTime) - Date.parse(b._createTime)) ||
        name * (Number(a.name) - Number(b.name)) ||
        id * (a.id - b.id);
      for (const [query, order] of [
        ["orderBy=_createTime&orderBy=name", by(1, 1, 1)],
        ["orderBy=_createTime&orderBy=name&desc=false&desc=true", by(1, -1, -1)],
        ["orderBy=_createTime&orderBy=name&desc=true&desc=false", by(-1, 1, 1)],
        ["orderBy=_createTime&orderBy=id&desc=true&desc=false", by(-1, 0, 1)],
        ["orderBy=_createTime&orderBy=id&desc=false&desc=true", by(1, 0, -1)],
        ["orderBy=_createTime&orderBy=userRef&desc=true&desc=false", by(-1, 0, 1)],
      ] as const) {
        const { data } = await listChats(server(), `userRef=${tag}&limit=100&${query}`);
        expect(data, query).toEqual(made.toSorted(order));
      }
    });

    it("sorts absent userRefs after all others", async () => {
      const tag = unique();
      const absent = await createChat(server(), { name: tag });
      const present = await createChat(server(), { name: tag, userRef: "\u{10ffff}" });
      const order = async (query: string) =>
        ids((await listChats(server(), `search=${tag}&${query}`)).data);
      expect(await order("orderBy=userRef")).toEqual([present.id, absent.id]);
      expect(await order("orderBy=userRef&desc=true")).toEqual([absent.id, present.id]);
    });
  });

  describe("chats: arrays in three spellings", () => {
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
      "orderBy%5B0%5D=name&orderBy%5B1%5D=id&desc%5B0%5D=true&desc%5B1%5D=false",
      "desc=true&orderBy=name&desc=false&orderBy=id",
      "orderBy=name&orderBy=id&desc[]=true&desc[]=false",
      "orderBy[]=name&orderBy[]=id&desc[0]=true&desc[1]=false",
      "orderBy=n%61me&orderBy=i%64&desc=%74rue&desc=false",
    ])
      it(query, async () => {
        const { data } = await listChats(server(), `search=${tag}&${query}`);
        expect(ids(data)).toEqual([order[1], order[0], order[2]]);
      });

    for (const query of ["orderBy=name", "orderBy[]=name", "orderBy[0]=name"])
      it(`${query}: one value`, async () => {
        const { data } = await listChats(server(), `search=${tag}&${query}`);
        expect(ids(data)).toEqual([order[0], order[2], order[1]]);
      });
  });

  describe("chats: invalid values are 422 at their parameter", () => {
    for (const parameter of ["limit", "page", "id"]) {
      for (const [what, text] of notIntegers)
        it(`${parameter}: ${what}`, async () => {
          expectInvalid(await api(server(), `/chats?${parameter}=${text}`), parameter);
        });
    }
    for (const [query, ...parameters] of [
      ["limit=101", "limit"],
      ["limit=0", "limit"],
      ["page=0", "page"],
      ["limit", "limit"],
      ["orderBy=", "orderBy"],
      ["orderBy", "orderBy"],
      ["orderBy=nope", "orderBy"],
      ["orderBy=question", "orderBy"],
      ["orderBy=name,id", "orderBy"],
      ["orderBy=__proto__", "orderBy"],
      ["orderBy=id%3Bdrop%20table%20chat", "orderBy"],
      ["orderBy=name&orderBy=name", "orderBy"],
      ["orderBy=id&orderBy=name&orderBy=id", "orderBy"],
      ["orderBy[]=name&orderBy[]=name", "orderBy"],
      ["orderBy=name&orderBy=nope", "orderBy"],
      ["desc=", "desc"],
      ["desc", "desc"],
      ["desc=TRUE", "desc"],
      ["desc=1", "desc"],
      ["desc=true,false", "desc"],
      ["desc=null", "desc"],
      ["desc=true&desc=false", "desc"],
      ["orderBy=id&desc=true&desc=false", "desc"],
      ["orderBy=id&orderBy=name&desc=true", "desc"],
      ["orderBy=id&orderBy=name&desc=true&desc=maybe", "desc"],
      ["search=a%00b", "search"],
      ["userRef=a%00b", "userRef"],
      ["limit=1&limit=2", "limit"],
      ["page=1&page=2", "page"],
      ["id=1&id=2", "id"],
      ["search=a&search=b", "search"],
      ["userRef=a&userRef=a", "userRef"],
      ["page=0&limit=0", "page", "limit"],
      ["page=x&limit=y&id=z", "page", "limit", "id"],
      ["search=%00&userRef=%00", "search", "userRef"],
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
      it(query, async () => {
        expectInvalid(await api(server(), `/chats?${query}`), ...parameters);
      });

    it("names the parameter alone, as it is called", async () => {
      const { body } = await api(server(), "/chats?limit=0");
      expect(body.errors).toMatchObject([{ path: ["limit"] }]);
    });
  });

  describe("chats: unknown parameters are ignored", () => {
    for (const query of [
      "x=1",
      "Limit=0",
      "chat_id=x",
      "x=%00",
      "&&=&",
      "__proto__=1",
      "__proto__[limit]=x",
    ])
      it(query, async () => {
        const userRef = unique();
        const chat = await createChat(server(), { userRef });
        expect(await listChats(server(), `${query}&userRef=${userRef}`)).toEqual({
          data: [chat],
          total: 1,
        });
      });
  });

  describe("chats: userRef and id", () => {
    it("userRef matches exactly", async () => {
      const tag = unique();
      const refs = [tag, tag.toUpperCase(), `${tag} `, ` ${tag}`, `${tag}x`, `${tag}%`, `${tag}é`];
      const more = [`${tag}e\u0301`, `${tag}_`, `${tag}+`, `${tag}\\`, `${tag}😀`];
      for (const userRef of [...refs, ...more]) {
        const chat = await createChat(server(), { userRef });
        expect(await listChats(server(), `userRef=${encodeURIComponent(userRef)}`)).toEqual({
          data: [chat],
          total: 1,
        });
      }
    });

    it("userRef finds no absent one, also not by its look", async () => {
      await createChat(server());
      for (const text of ["", "null", "undefined"])
        for (const chat of (await listChats(server(), `userRef=${text}&limit=100`)).data)
          expect(chat.userRef).toBe(text);
    });

    it("an empty userRef matches the empty one", async () => {
      const chat = await createChat(server(), { userRef: "" });
      const listed = await listChats(server(), `userRef=&id=${chat.id}`);
      expect(listed).toEqual({ data: [chat], total: 1 });
    });

    it("a plus and %20 are a space, %2B is a plus", async () => {
      const tag = unique();
      const space = await createChat(server(), { userRef: `${tag} x` });
      const plus = await createChat(server(), { userRef: `${tag}+x` });
      expect((await listChats(server(), `userRef=${tag}+x`)).data).toEqual([space]);
      expect((await listChats(server(), `userRef=${tag}%20x`)).data).toEqual([space]);
      expect((await listChats(server(), `userRef=${tag}%2Bx`)).data).toEqual([plus]);
      expect((await listChats(server(), `userRef=${tag}%2bx`)).data).toEqual([plus]);
    });

    it("id returns that chat alone, with total 1", async () => {
      const chat = await createChat(server());
      await createChat(server());
      expect(await listChats(server(), `id=${chat.id}`)).toEqual({ data: [chat], total: 1 });
      expect(await listChats(server(), `id=0${chat.id}`)).toEqual({ data: [chat], total: 1 });
    });

    it("an id past the end of its page: [], total 1", async () => {
      const chat = await createChat(server());
      expect(await listChats(server(), `id=${chat.id}&page=2`)).toEqual({ data: [], total: 1 });
    });

    it("an id that no chat has returns none", async () => {
      expect(await listChats(server(), "id=9007199254740991")).toEqual({ data: [], total: 0 });
    });

    it("filters together: each must hold", async () => {
      const tag = unique();
      const chat = await createChat(server(), { name: `${tag}abc`, userRef: tag });
      const none = { data: [], total: 0 };
      const one = { data: [chat], total: 1 };
      const list = (query: string) => listChats(server(), query);
      expect(await list(`id=${chat.id}&userRef=${tag}&search=${tag}A`)).toEqual(one);
      expect(await list(`id=${chat.id}&userRef=${tag}x`)).toEqual(none);
      expect(await list(`id=${chat.id}&search=${tag}x`)).toEqual(none);
      expect(await list(`userRef=${tag}&search=${tag}x`)).toEqual(none);
      expect(await list(`id=${chat.id + 1}&userRef=${tag}`)).toEqual(none);
    });
  });

  describe("chats: a page and its total are of one moment", () => {
    it("holds while chats are being created", async () => {
      const userRef = unique();
      let creating = true;
      const created = Promise.all(
        Array.from({ length: 6 }, async () => {
          for (let n = 0; n < 10; n++) await createChat(server(), { name: "x", userRef });
        }),
      ).finally(() => {
        creating = false;
      });
      let last = 0;
      for (let n = 0; creating || n < 10; n++) {
        const query = n % 2 === 0 ? "limit=100" : "limit=100&orderBy=name&search=x";
        const { data, total } = await listChats(server(), `userRef=${userRef}&${query}`);
        expect(data).toHaveLength(total);
        expect(total).toBeGreaterThanOrEqual(last);
        last = total;
        const sorted = ids(data).toSorted((a, b) => (n % 2 === 0 ? b - a : a - b));
        expect(ids(data)).toEqual(sorted);
      }
      await created;
      expect((await listChats(server(), `userRef=${userRef}`)).total).toBe(60);
    });

    it("holds without a filter", async () => {
      const whole = async () => {
        const { data, total } = await listChats(server(), "limit=1&orderBy=id");
        const last = await listChats(server(), `limit=1&orderBy=id&page=${total}`);
        expect(data).toHaveLength(1);
        expect(last.data).toHaveLength(1);
      };
      await Promise.all([
        ...Array.from({ length: 20 }, () => createChat(server())),
        ...Array.from({ length: 10 }, whole),
      ]);
    });
  });

  describe("chats: search", () => {
    const userRef = unique();
    const search = async (text: string) =>
      listChats(
        server(),
        `userRef=${userRef}&limit=100&orderBy=id&search=${encodeURIComponent(text)}`,
      );
    const stored = [
      "Plain Words here",
      "100% sure",
      "100 percent",
      "snake_case",
      "snakeXcase",
      "back\\slash",
      "a.b*c(d)[e]^$",
      "Straße",
      "ΟΔΟΣ",
      "οδος",
      "Ångström",
      "A\u030angstro\u0308m II",
      "ﬁne",
      "ＦＵＬＬ",
      "İstanbul",
      "ıssız",
      "ISTANBUL",
      "😀 smile",
      "𐐀 Deseret",
      "Ǆ",
      "①②",
      "tab\there",
      'it\'s "quoted"',
      "",
      " ",
      "한글",
      "\u2126 Ohm",
      "J\u030colly",
    ];
    beforeAll(async () => {
      for (const name of stored) await createChat(server(), { name, userRef });
      await createChat(server(), { userRef });
    });

    for (const [text, ...found] of [
      ["plain", "Plain Words here"],
      ["n W", "Plain Words here"],
      ["Plain Words here!"],
      ["Plain  Words"],
      ["100%", "100% sure"],
      ["1%0"],
      ["_", "snake_case"],
      ["e_c", "snake_case"],
      ["\\", "back\\slash"],
      ["\\%"],
      ["B*C", "a.b*c(d)[e]^$"],
      ["(d)[E]^$", "a.b*c(d)[e]^$"],
      ["a.*c"],
      ["STRAßE", "Straße"],
      ["strasse", "Straße"],
      ["straẞe", "Straße"],
      ["οδοσ", "ΟΔΟΣ", "οδος"],
      ["οδος", "ΟΔΟΣ", "οδος"],
      ["ångström", "Ångström", "A\u030angstro\u0308m II"],
      ["A\u030aNGSTRO\u0308M", "Ångström", "A\u030angstro\u0308m II"],
      ["\u212bngstr", "Ångström", "A\u030angstro\u0308m II"],
      ["angstrom"],
      ["fi", "ﬁne"],
      ["ﬁNE", "ﬁne"],
      ["full", "ＦＵＬＬ"],
      ["i\u0307stanbul", "İstanbul", "ISTANBUL"],
      ["İSTAN", "İstanbul", "ISTANBUL"],
      ["istanbul", "İstanbul", "ISTANBUL"],
      ["ıs", "İstanbul", "ıssız", "ISTANBUL"],
      ["ISSIZ", "ıssız"],
      ["😀", "😀 smile"],
      ["𐐨 DES", "𐐀 Deseret"],
      ["dž", "Ǆ"],
      ["12", "①②"],
      ["tab\tHERE", "tab\there"],
      ["IT'S \"q", 'it\'s "quoted"'],
      ["'; --"],
      ["null"],
      ["\u1112\u1161\u11ab", "한글"],
      ["ω ohm", "\u2126 Ohm"],
      ["\u01f0olly", "J\u030colly"],
      ["jolly"],
      ["x".repeat(300)],
    ] as const)
      it(`${JSON.stringify(text)} finds ${found.length}`, async () => {
        const { data, total } = await search(text);
        expect(names(data)).toEqual(found);
        expect(total).toBe(found.length);
      });

    it("an empty one filters nothing, absent names included", async () => {
      expect((await search("")).total).toBe(stored.length + 1);
    });

    it("a space finds the names with a space, and no absent one", async () => {
      const { data } = await search(" ");
      expect(names(data)).toEqual(stored.filter((name) => name.includes(" ")));
    });

    it("pages its results, and counts all of them", async () => {
      const first = await listChats(server(), `userRef=${userRef}&search=s&limit=2&orderBy=id`);
      const second = await listChats(
        server(),
        `userRef=${userRef}&search=s&limit=2&page=2&orderBy=id`,
      );
      const all = await search("s");
      expect(all.total).toBeGreaterThan(4);
      expect([...first.data, ...second.data]).toEqual(all.data.slice(0, 4));
      expect([first.total, second.total]).toEqual([all.total, all.total]);
    });

    it("finds a long name of characters that grow when folded", async () => {
      const tag = unique().slice(0, 10);
      for (const character of ["\ufdfa", "\u{1d160}", "\u0390", "\u3300"]) {
        const name = tag + character.repeat(245);
        const chat = await createChat(server(), { name, userRef: character.repeat(60) });
        const listed = await listChats(
          server(),
          `orderBy=name&search=${encodeURIComponent(name.slice(0, 100))}`,
        );
        expect(listed).toEqual({ data: [chat], total: 1 });
      }
    });

    it("takes a very long text", async () => {
      expect(await listChats(server(), `search=${"ab%25".repeat(2500)}`)).toEqual({
        data: [],
        total: 0,
      });
    });

    it("searches names only", async () => {
      const tag = unique();
      await createChat(server(), { name: "n", userRef: tag });
      expect(await listChats(server(), `search=${tag}`)).toEqual({ data: [], total: 0 });
    });
  });
};
