/**
 * A queue that serves the keys in turn, and each key's visitors in turn, however many items each of them has in it.
 */
import type { Client } from "@parley/core";

interface Line<Item> {
  readonly visitors: Map<string | null, Array<Item>>;
  size: number;
}

export class FairQueue<Item> {
  size = 0;
  /** The key at the front is served next. An empty line is removed. */
  readonly #lines = new Map<string | null, Line<Item>>();

  /** The number of keys with items in the queue. */
  get keys(): number {
    return this.#lines.size;
  }

  /** The number of items of the client's key. */
  sizeOf({ apiKeyId = null }: Client): number {
    return this.#lines.get(apiKeyId)?.size ?? 0;
  }

  push({ apiKeyId = null, visitor = null }: Client, item: Item): void {
    const line = this.#lines.get(apiKeyId) ?? { visitors: new Map(), size: 0 };
    const items = line.visitors.get(visitor) ?? [];
    items.push(item);
    this.#change(apiKeyId, line, visitor, items, 1);
  }

  /** Takes the next item of a client that is ready. Returns `undefined` if there is none. */
  shift(isReady: (client: Client) => boolean = () => true): Item | undefined {
    for (const [apiKeyId, line] of this.#lines)
      for (const [visitor, items] of line.visitors) {
        if (!isReady({ apiKeyId, visitor })) continue;
        const item = items.shift()!;
        line.visitors.delete(visitor);
        this.#lines.delete(apiKeyId);
        this.#change(apiKeyId, line, visitor, items, -1);
        return item;
      }
    return undefined;
  }

  remove({ apiKeyId = null, visitor = null }: Client, item: Item): void {
    const line = this.#lines.get(apiKeyId);
    const items = line?.visitors.get(visitor);
    const index = items?.indexOf(item) ?? -1;
    if (index < 0) return;
    items!.splice(index, 1);
    this.#change(apiKeyId, line!, visitor, items!, -1);
  }

  #change(
    apiKeyId: string | null,
    line: Line<Item>,
    visitor: string | null,
    items: Array<Item>,
    by: 1 | -1,
  ): void {
    this.size += by;
    line.size += by;
    if (items.length > 0) line.visitors.set(visitor, items);
    else line.visitors.delete(visitor);
    if (line.size > 0) this.#lines.set(apiKeyId, line);
    else this.#lines.delete(apiKeyId);
  }
}
