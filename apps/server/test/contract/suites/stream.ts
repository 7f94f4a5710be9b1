import { beforeAll, describe, expect, it } from "vitest";
import {
  askApi,
  askStream,
  deltaText,
  expectGeneral,
  expectInvalid,
  expectNoChat,
  listEntries,
  parseEvents,
  unique,
  type Server,
  type StreamEvent,
} from "../client.ts";

/** "Streaming an answer" in docs/interface.md. */
export const stream = (server: Server): void => {
  describe("ask: streaming", () => {
    let events: ReadonlyArray<StreamEvent> = [];
    let type = "";
    let caching = "";
    const idempotencyKey = unique();
    const call = {
      json: { query: "How do I change the port?" },
      headers: { "idempotency-key": idempotencyKey },
    };
    const resumeAfter = async (eventId: string) => {
      const headers = { ...call.headers, "last-event-id": eventId };
      return parseEvents((await askStream(server(), { ...call, headers })).text);
    };
    beforeAll(async () => {
      const answer = await askStream(server(), call);
      type = answer.headers["content-type"] ?? "";
      caching = answer.headers["cache-control"] ?? "";
      events = parseEvents(answer.text);
    });

    it("a stream sends deltas, then one entry with the body of a plain response", async () => {
      expect(type).toMatch(/^text\/event-stream/);
      expect(caching).toBe("no-store, no-transform");
      const last = events.at(-1);
      expect(events.filter(({ event }) => event !== "delta")).toEqual([last]);
      expect(last?.event).toBe("entry");
      expect(Object.keys(last?.data).toSorted()).toEqual(["data", "status"]);
      expect(last?.data.status).toBe(201);
      expect(deltaText(events)).toBe(last?.data.data.answer);
      const listed = await listEntries(server(), last?.data.data.chat_id);
      expect(listed).toEqual({ data: [last?.data.data], total: 1 });
    });

    it("each event's id ends with the number of code points sent so far", () => {
      let sent = 0;
      const turns = new Set<string>();
      for (const { data, event, id } of events) {
        if (event === "delta") sent += [...data.text].length;
        const point = id.lastIndexOf(".");
        turns.add(id.slice(0, point));
        expect(id.slice(point + 1)).toBe(String(sent));
      }
      expect(turns.size).toBe(1);
    });

    it("a stream resumes after the last event that the client received", async () => {
      const firstDelta = events.find(({ event }) => event === "delta");
      const rest = await resumeAfter(firstDelta?.id ?? "");
      expect(firstDelta?.data.text + deltaText(rest)).toBe(deltaText(events));
      expect(rest.at(-1)?.data).toEqual(events.at(-1)?.data);
    });

    it("a stream ignores a Last-Event-ID from another turn", async () => {
      const again = await resumeAfter("nonsense.5");
      expect(deltaText(again)).toBe(deltaText(events));
      expect(again.at(-1)?.data).toEqual(events.at(-1)?.data);
    });

    it("an ask streams if its Accept names event streams, unless with a quality of 0", async () => {
      for (const [accept, streams] of [
        ["application/json, text/event-stream;q=0", false],
        ["text/event-stream; q=0.000, */*", false],
        ["text/event-streams", false],
        ["application/json;q=0, TEXT/EVENT-STREAM ; q=0.1", true],
        ["text/event-stream;charset=utf-8", true],
      ] as const) {
        const answer = await askStream(server(), { json: { query: "port" }, headers: { accept } });
        const type = answer.headers["content-type"];
        expect(type?.startsWith("text/event-stream"), accept).toBe(streams);
      }
    });

    it("an error before the first delta is plain JSON", async () => {
      const headers = { accept: "text/event-stream" };
      expectInvalid(await askApi(server(), { json: {}, headers }), "query");
      expectNoChat(
        await askApi(server(), { json: { chat_id: 9007199254740991, query: "x" }, headers }),
      );
      expectGeneral(await askApi(server(), { json: {}, headers, key: null }), 401);
      expectGeneral(await askApi(server(), { json: {}, headers, key: server().readKey }), 403);
    });
  });
};
