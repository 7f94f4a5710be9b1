/**
 * An open chat. Its heading shows its name and facts, and has what can be done with it: rename, delete, save.
 */
import { useRef, useState } from "preact/hooks";
import { hasQuestion, type Chat, type Entry } from "@parley/client";
import { announcement, forget, stale } from "../../page/ChatSession.ts";
import { Conversation, type ConversationProps } from "../../page/Conversation.tsx";
import { Failure } from "../../page/Failure.tsx";
import { focus, Icon, IconButton, isPhone, useChange, useRead } from "../../page/Parts.tsx";
import { nameChat, titleOf } from "../../page/titles.ts";
import { toLocale, translate, weave } from "../../page/words.ts";
import { client, route } from "./Session.ts";

/** A link back to the list, because a phone shows either the list or a chat. */
export const Back = () => (
  <a class="plain button phone" href="#chats" title={translate("All chats")}>
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
  const unreadChat = { id: chatId, name: null, userRef: null, _createTime: "" };
  const chat = renamedChat ?? read.value ?? unreadChat;
  const title = titleOf(chat);
  document.title = `${title} · ${bot}`;
  const [search, setSearch] = useState<string>();
  const header = (total: number | undefined) => (
    <>
      <Header {...{ chat, search, setSearch, title, total }} setChat={setRenamedChat} />
      {search !== undefined && (
        <div>
          <input
            type="search"
            class="wide"
            dir="auto"
            aria-label={translate("Search in this chat")}
            placeholder={translate("Search in this chat")}
            ref={focus}
            onInput={(event) => setSearch(event.currentTarget.value)}
          />
        </div>
      )}
    </>
  );
  return <Conversation {...{ chatId, header, search, ...props }} />;
};

interface HeaderProps {
  readonly chat: Chat;
  readonly title: string;
  /** The number of entries. */
  readonly total: number | undefined;
  readonly setChat: (chat: Chat) => void;
  /** The text to search for in the chat; `undefined` if nobody searches. */
  readonly search: string | undefined;
  readonly setSearch: (search: string | undefined) => void;
}

const Header = ({ chat, search, setChat, setSearch, title, total }: HeaderProps) => {
  /** `undefined` at first, when the button for a new name must not take the focus. */
  const [isRenaming, setRenaming] = useState<boolean>();
  const { error, isOffered, run } = useChange("rename");
  const rename = (event: SubmitEvent) => {
    event.preventDefault();
    const name = new FormData(event.currentTarget as HTMLFormElement).get("name");
    void run(async () => {
      const renamedChat = await client.rename(chat.id, String(name).trim() || null);
      setChat(renamedChat);
      setRenaming(false);
      void nameChat(renamedChat);
      stale.value++;
    });
  };
  const close = () => setRenaming(false);
  if (isRenaming) {
    return (
      <header class="heading">
        <form
          class="stack"
          onSubmit={rename}
          onKeyDown={({ isComposing, key }) => key === "Escape" && !isComposing && close()}
        >
          <div class="row">
            <input
              name="name"
              dir="auto"
              aria-label={translate("Name")}
              maxLength={255}
              placeholder={title}
              defaultValue={chat.name ?? ""}
              ref={focus}
            />
            <button>{translate("Save")}</button>
            <button type="button" onClick={close}>
              {translate("Cancel")}
            </button>
          </div>
          <Failure error={error} />
        </form>
      </header>
    );
  }
  const count =
    total === 1
      ? translate("1 entry")
      : translate("{} entries", total?.toLocaleString(toLocale()) ?? "…");
  return (
    <header class="row">
      <div class="heading">
        <Back />
        <div>
          <h2 class="clipped" title={title} dir="auto" tabIndex={-1} ref={isPhone ? focus : null}>
            {title}
          </h2>
          <p class="quiet facts">
            <span>{translate("Chat {}", chat.id)}</span>
            {chat.userRef && <bdi>{chat.userRef}</bdi>}
            <span>{count}</span>
          </p>
        </div>
      </div>
      <IconButton
        icon="search"
        title={translate("Search in this chat")}
        aria-pressed={search !== undefined}
        onClick={() => setSearch(search === undefined ? "" : undefined)}
      />
      {isOffered && chat._createTime && (
        <IconButton
          icon="edit"
          title={translate("Rename")}
          ref={isRenaming === undefined ? null : focus}
          onClick={() => setRenaming(true)}
        />
      )}
      <Deletion {...{ chat, count, title }} />
      <IconButton
        icon="save"
        title={translate("Save as Markdown")}
        onClick={() => save(chat.id, title)}
      />
    </header>
  );
};

const Deletion = ({
  chat: { id },
  count,
  title,
}: Pick<HeaderProps, "chat" | "title"> & { readonly count: string }) => {
  const dialog = useRef<HTMLDialogElement>(null);
  const [isOpen, setOpen] = useState(false);
  const { error, isOffered, run } = useChange("delete");
  const open = () => {
    setOpen(true);
    dialog.current!.showModal();
  };
  const erase = () =>
    run(async () => {
      await client.delete(id).catch((error) => {
        // If the chat is gone, the purpose is achieved.
        if (error.status !== 404) throw error;
      });
      location.replace("#chats");
      // Without this, the page would read the chat again until `hashchange` fires.
      route.value = "chats";
      forget(id);
      announcement.value = translate("The chat is deleted.");
    });
  return (
    <>
      {isOffered && <IconButton icon="delete" title={translate("Delete")} onClick={open} />}
      <dialog ref={dialog} aria-labelledby="deletion" onClose={() => setOpen(false)}>
        {isOpen && (
          <div class="stack">
            <h2 id="deletion">{translate("Delete this chat?")}</h2>
            <p>
              {weave(
                "“{}” is erased from the server for everyone who can read it: its name and user reference, its {} with sources, ratings and comments. An answer in progress is lost. This cannot be undone.",
                <bdi>{title}</bdi>,
                count,
              )}
            </p>
            <div class="actions">
              <button ref={focus} onClick={() => dialog.current!.close()}>
                {translate("Cancel")}
              </button>
              <button class="bad" onClick={erase}>
                {translate("Delete chat")}
              </button>
            </div>
            <Failure error={error} />
          </div>
        )}
      </dialog>
    </>
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
