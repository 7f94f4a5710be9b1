import { ServerResponse } from "node:http";

let ended: Array<() => void> = [];
const sendEnded = (): void => {
  const responses = ended;
  ended = [];
  for (const end of responses) end();
};

/**
 * Responses that end in one turn of the event loop are sent back to back at its end, so that their clients wake up once
 * and not once for each. Where no other request has arrived, that is immediately. Head and body go out in one write.
 */
export class BatchedResponse extends ServerResponse {
  override end(...rest: ReadonlyArray<any>): this {
    if (ended.push(() => Reflect.apply(super.end, this, rest)) === 1) setImmediate(sendEnded);
    return this;
  }
}
// Effect sets it, and Node then writes an empty piece after the body. Our bodies are whole texts, whose length is
// right.
Object.defineProperty(BatchedResponse.prototype, "strictContentLength", {
  get: () => false,
  set: () => {},
});
