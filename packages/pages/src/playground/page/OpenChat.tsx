/**
 * An open chat. Its heading shows its name and facts, and has what can be done with it: rename, delete, save.
 */
import { useRef, useState } from "preact/hooks";
import { hasQuestion, ResponseError, type Chat, type Entry } from "@parley/client";
import * as session from "../../page/ChatSession.ts";
import { Conversation, type ConversationProps } from "../../page/Conversation.tsx";
import { Failure } from "../../page/Failure.tsx";
import { focus, Icon, isPhone, useRead } from "../../page/Parts.tsx";
import { nameChat, titleOf } from "../../page/titles.ts";
import { client, route } from "./Session.ts";

/** A link back to the list, because a phone shows either the list or a chat. */
export const Back = () => (
  <a class="plain button phone" href="#chats" title="All chats">
    <Icon name="back" />
  </a>
);

interface OpenChatProps extends Pick<ConversationProps, "note" | "replacement"> {
  readonly bot: string;
  readonly chatId: number;
}

export const OpenChat = ({ bot, chatId, ...props }: OpenChatProps) => {
  const [renamedChat, setRenamedChat] = useState<Chat>();
  const read = useRead(async () => {
    const [chat] = (await client.chats({ id: chatId }).page()).data;
    if (chat) void nameChat(chat);
    return chat;
  });
  const chat = renamedChat ?? read.value;
  const title = titleOf(chat ?? { id: chatId, name: null });
  document.title = `${title} · ${bot}`;
  const header = (total: number | undefined) => (
    <Header {...{ chat, chatId, setRenamedChat, title, total }} />
  );
  return <Conversation {...{ chatId, header, ...props }} />;
};

interface HeaderProps {
  readonly chatId: number;
  readonly title: string;
  /** The number of entries. */
  readonly total: number | undefined;
  readonly chat: Chat | undefined;
  readonly setRenamedChat: (chat: Chat) => void;
}

const Header = ({ chat, chatId, setRenamedChat, title, total }: HeaderProps) => {
  const [isRenaming, setRenaming] = useState(false);
  const renameButton = useRef<HTMLButtonElement>(null);
  const dialog = useRef<HTMLDialogElement>(null);
  const refusedChanges = session.refusedChanges.value;
  const count = total === 1 ? "1 entry" : `${total?.toLocaleString("en") ?? "…"} entries`;
  const close = (renamedChat?: Chat) => {
    if (renamedChat) {
      setRenamedChat(renamedChat);
      void nameChat(renamedChat);
      session.stale.value++;
    }
    setRenaming(false);
    // The button is hidden until the next rendering.
    setTimeout(() => renameButton.current?.focus());
  };
  return (
    <header class="row">
      <div class="heading">
        <Back />
        {isRenaming ? (
          <NameForm name={chat?.name ?? ""} {...{ chatId, close, title }} />
        ) : (
          <div>
            <h2 class="clipped" title={title} dir="auto" tabIndex={-1} ref={isPhone ? focus : null}>
              {title}
            </h2>
            <p class="quiet facts">
              <span>Chat {chatId}</span>
              {chat?.userRef && <bdi>{chat.userRef}</bdi>}
              <span>{count}</span>
            </p>
          </div>
        )}
      </div>
      {chat && !refusedChanges.includes("rename") && (
        <button class="plain" title="Rename" ref={renameButton} onClick={() => setRenaming(true)}>
          <Icon name="edit" />
        </button>
      )}
      {chat && !refusedChanges.includes("delete") && (
        <button class="plain" title="Delete" onClick={() => dialog.current!.showModal()}>
          <Icon name="delete" />
        </button>
      )}
      <button class="plain" title="Save as Markdown" onClick={() => save(chatId, title)}>
        <Icon name="save" />
      </button>
      <dialog ref={dialog} aria-labelledby="deletion">
        <Deletion {...{ chatId, count, title }} close={() => dialog.current!.close()} />
      </dialog>
    </header>
  );
};

interface NameFormProps extends Pick<HeaderProps, "chatId" | "title"> {
  readonly name: string;
  readonly close: (renamedChat?: Chat) => void;
}

/** A field in place of the title. An empty name is none. */
const NameForm = ({ chatId, close, name, title }: NameFormProps) => {
  const [error, setError] = useState<unknown>();
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const text = new FormData(event.currentTarget as HTMLFormElement).get("name");
    client.rename(chatId, String(text).trim() || null).then(close, (error) => {
      session.withdrawIfRefused("rename", error);
      setError(error);
    });
  };
  return (
    <form
      class="stack"
      onSubmit={submit}
      onKeyDown={(event) => event.key === "Escape" && !event.isComposing && close()}
    >
      <div class="row">
        <input
          name="name"
          dir="auto"
          aria-label="Name"
          autoComplete="off"
          maxLength={255}
          placeholder={title}
          defaultValue={name}
          ref={focus}
        />
        <button class="plain" title="Save name">
          <Icon name="check" />
        </button>
        <button type="button" class="plain" title="Cancel" onClick={() => close()}>
          <Icon name="close" />
        </button>
      </div>
      <Failure error={error} />
    </form>
  );
};

interface DeletionProps extends Pick<HeaderProps, "chatId" | "title"> {
  readonly count: string;
  readonly close: () => void;
}

const Deletion = ({ chatId, close, count, title }: DeletionProps) => {
  const [error, setError] = useState<unknown>();
  const erase = async () => {
    try {
      await client.delete(chatId);
    } catch (error) {
      session.withdrawIfRefused("delete", error);
      // If the chat is gone, that is what was asked for.
      if (!(error instanceof ResponseError && error.status === 404)) return setError(error);
    }
    location.replace("#chats");
    route.value = "chats";
    session.forget(chatId);
    session.announcement.value = "The chat is deleted.";
  };
  return (
    <div class="stack">
      <h2 id="deletion">Delete this chat?</h2>
      <p>
        “<bdi>{title}</bdi>” is erased from the server for everyone who can read it: its name and
        user reference, its {count} with sources, ratings and comments. An answer in progress is
        lost. This cannot be undone.
      </p>
      <div class="actions">
        <button onClick={close}>Cancel</button>
        <button class="bad" onClick={erase}>
          Delete chat
        </button>
      </div>
      <Failure error={error} />
    </div>
  );
};

/** Downloads a chat, oldest entry first. */
const save = async (chatId: number, title: string) => {
  const parts = [`# ${title}\n`];
  const toText = (entry: Entry) => {
    const { _createTime, answer, question } = entry;
    const asked = hasQuestion(entry) ? `> ${question.replaceAll("\n", "\n> ")}\n\n` : "";
    return `\n${asked}${answer}\n\n*${_createTime}*\n`;
  };
  const history = client.history(chatId, { limit: 100, orderBy: "id" });
  for await (const entry of history) parts.push(toText(entry));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type: "text/markdown" }));
  link.download = `chat-${chatId}.md`;
  link.click();
  URL.revokeObjectURL(link.href);
};
