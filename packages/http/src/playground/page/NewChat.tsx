/**
 * The form of a new chat.
 */
import { useEffect, useState } from "preact/hooks";
import type { Client } from "../../client/index.ts";
import { listed } from "./ChatList.tsx";
import { Failure } from "./Failure.tsx";

export const NewChat = ({ client }: { readonly client: Client }) => {
  const [name, setName] = useState("");
  const [userRef, setUserRef] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [isSending, setSending] = useState(false);
  useEffect(() => document.getElementById("name")?.focus(), []);
  const create = async () => {
    setError(null);
    setSending(true);
    try {
      const { id } = await client.createChat({ name: name || null, userRef: userRef || null });
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
        void create();
      }}
    >
      <a class="back" href="#">
        All chats
      </a>
      <h2>New chat</h2>
      <label for="name">Name</label>
      <input
        id="name"
        dir="auto"
        value={name}
        onInput={(event) => setName(event.currentTarget.value)}
      />
      <label for="user-ref">User reference</label>
      <input
        id="user-ref"
        dir="auto"
        aria-describedby="user-ref-help"
        value={userRef}
        onInput={(event) => setUserRef(event.currentTarget.value)}
      />
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
