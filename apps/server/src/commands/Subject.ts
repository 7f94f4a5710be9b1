/**
 * Which chatbot a command is about.
 */
import { ChatbotRegistry } from "@parley/core";
import { Data, Effect, Option } from "effect";
import { Flag } from "effect/cli";

export class NoSuchChatbot extends Data.TaggedError("NoSuchChatbot")<{
  readonly message: string;
}> {}

export const chatbotFlag = Flag.String("chatbot").pipe(
  Flag.optional,
  Flag.withDescription("The chatbot's id or name; not needed when there is only one"),
);

/** What is known of the chatbot that the flag names. */
export const registeredChatbotOf = Effect.fnUntraced(function* (wanted: Option.Option<string>) {
  const registry = yield* ChatbotRegistry;
  const all = yield* registry.list;
  const named = Option.match(wanted, {
    onNone: () => all,
    onSome: (text) => {
      // Others may have ids for names.
      const [byId] = all.filter(({ chatbot }) => String(chatbot.id) === text);
      return byId === undefined ? all.filter(({ chatbot }) => chatbot.name === text) : [byId];
    },
  });
  if (named.length === 1) return named[0]!;
  if (all.length === 0) {
    return yield* new NoSuchChatbot({
      message: 'There is no chatbot yet: "parley chatbot create" makes one.',
    });
  }
  const few = all.slice(0, 10).map(({ chatbot: { id, name } }) => `${id} "${name}"`);
  const known = few.join(", ") + (all.length > few.length ? ", …" : "");
  const what = Option.match(wanted, {
    onNone: () => "Name the chatbot with --chatbot",
    onSome: (text) =>
      named.length === 0 ? `There is no chatbot "${text}"` : `Several chatbots are named "${text}"`,
  });
  return yield* new NoSuchChatbot({ message: `${what}; there are: ${known}.` });
});

/** The chatbot that the flag names. */
export const chatbotOf = (wanted: Option.Option<string>) =>
  Effect.map(registeredChatbotOf(wanted), ({ chatbot }) => chatbot);
