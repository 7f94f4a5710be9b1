/**
 * The form of a new chat.
 */
import { useLayoutEffect, useState } from "preact/hooks";
import type { Client } from "../../client/index.ts";
import { listed } from "./ChatList.tsx";
import { Failure } from "./Failure.tsx";

export const NewChat = ({ client }: { readonly client: Client }) => {
  const [error, setError] = useState<unknown>(null);
  const [isSending, setSending] = useState(false);
  // Before the form is shown: keys that are pressed at once belong to it.
  useLayoutEffect(() => document.getElementById("name")?.focus(), []);
  const create = async (fields: FormData) => {
    const field = (name: string) => String(fields.get(name)) || null;
    setError(null);
    setSending(true);
    try {
      const { id } = await client.createChat({ name: field("name"), userRef: field("userRef") });
      listed.value++;
      location.replace(`#chat/${id}`);
    } catch (failed) {
      setError(failed);
      setSending(false);
    }
  };
  return (
    <form
      class="new-chat"
      onSubmit={(event) => {
        event.preventDefault();
        void create(new FormData(event.currentTarget));
      }}
    >
      <a class="back" href="#">
        All chats
      </a>
      <h2>New chat</h2>
      <label for="name">Name</label>
      <input id="name" name="name" dir="auto" />
      <label for="user-ref">User reference</label>
      <input id="user-ref" name="userRef" dir="auto" aria-describedby="user-ref-help" />
      <p id="user-ref-help" class="quiet">
        Your own name of the user. Both may be empty.
      </p>
      <button class="primary" disabled={isSending}>
        Create chat
      </button>
      <Failure error={error} />
    </form>
  );
};
