/**
 * Builds the services of the core on a store and an answerer, for programs that embed Parley. The server wires its own.
 */
import { Layer } from "effect";
import { Digest, SecureRandom } from "effect/crypto";
import { optionsOf } from "../model/Options.ts";
import { Answerer, type AnswererFunction } from "../ports/Answerer.ts";
import { Moderator, type ModeratorFunction } from "../ports/Moderator.ts";
import type { StorePorts } from "../ports/Store.ts";
import { Access } from "./access/Access.ts";
import { Administration } from "./Administration.ts";
import { Asking } from "./asking/Asking.ts";
import { Chats } from "./Chats.ts";
import { layerEntryEvents } from "./asking/EntryEvents.ts";

/**
 * Provides the four services, the ports of the store, and the services that `keyRecord` and `generateKey` need. Without
 * a moderator, no question is flagged. To change the limits, provide `AskLimits` to the layer.
 */
export const layerParley = <
  StoreError,
  StoreNeeds,
  AnswererError = never,
  AnswererNeeds = never,
  ModeratorError = never,
  ModeratorNeeds = never,
>(options: {
  readonly store: Layer.Layer<StorePorts, StoreError, StoreNeeds>;
  readonly answerer: AnswererFunction | Layer.Layer<Answerer, AnswererError, AnswererNeeds>;
  readonly moderator?: ModeratorFunction | Layer.Layer<Moderator, ModeratorError, ModeratorNeeds>;
}): Layer.Layer<
  Access | Administration | Asking | Chats | StorePorts | Digest.Digest | SecureRandom.SecureRandom,
  StoreError | AnswererError | ModeratorError,
  StoreNeeds | AnswererNeeds | ModeratorNeeds
> => {
  const {
    answerer,
    moderator = Moderator.layerOff,
    store,
  } = optionsOf("layerParley", options, { store: true, answerer: true, moderator: false });
  return Layer.mergeAll(Access.layer, Administration.layer, Asking.layer, Chats.layer).pipe(
    Layer.provideMerge(layerEntryEvents),
    Layer.provide([
      typeof answerer === "function" ? Answerer.layerFunction(answerer) : answerer,
      typeof moderator === "function" ? Moderator.layerFunction(moderator) : moderator,
    ]),
    Layer.provideMerge(Layer.mergeAll(store, Digest.layerWebCrypto, SecureRandom.layerWebCrypto)),
  );
};
