import type { Client } from "@parley/core/ports";

type Line<Item> = Map<string | null | undefined, Array<Item>>;

/** A queue that serves the keys in turn, and each key's visitors in turn, however many items each of them has in it. */
export class FairQueue<Item> {
  /** The key at the front is served next, and in its line the visitor at the front. None of them has no items. */
  readonly #lines = new Map<Client["apiKeyId"], Line<Item>>();

  /** The number of keys with items in the queue. */
  get keys(): number {
    return this.#lines.size;
  }

  push({ apiKeyId, visitor }: Client, item: Item): void {
    const line: Line<Item> = this.#lines.get(apiKeyId) ?? new Map();
    const items = line.get(visitor) ?? [];
    items.push(item);
    this.#lines.set(apiKeyId, line.set(visitor, items));
  }

  /** Takes the next item of a client that is ready. Returns `undefined` if there is none. */
  shift(isReady: (client: Client) => boolean = () => true): Item | undefined {
    for (const [apiKeyId, line] of this.#lines)
      for (const [visitor, [item]] of line)
        if (isReady({ apiKeyId, visitor })) {
          this.remove({ apiKeyId, visitor }, item!);
          return item;
        }
    return undefined;
  }

  /** Removes an item, if it is in the queue. Its client is then the last to be served. */
  remove({ apiKeyId, visitor }: Client, item: Item): void {
    const line = this.#lines.get(apiKeyId);
    const items = line?.get(visitor) ?? [];
    const index = items.indexOf(item);
    if (line === undefined || index < 0) return;
    items.splice(index, 1);
    line.delete(visitor);
    if (items.length > 0) line.set(visitor, items);
    this.#lines.delete(apiKeyId);
    if (line.size > 0) this.#lines.set(apiKeyId, line);
  }
}
