/**
 * `widget.js`: adds to a site's page a button that opens the chat window in a frame. It adds only one element with a
 * shadow root, and the global `parley`. The page's Content Security Policy need not allow inline styles, because
 * constructed style sheets and individually set style properties do not count as inline.
 */
import { storageOf } from "../../page/storage.ts";
import { legibleOn } from "./colors.ts";
import type { FromPage, FromWindow, Greeting } from "./Messages.ts";

const german: Readonly<Record<string, string>> = {
  "Close the chat": "Chat schließen",
  "Loading the chat…": "Der Chat wird geladen …",
  "New answer": "Neue Antwort",
  "This chat is not available at the moment.": "Dieser Chat ist derzeit nicht verfügbar.",
};

/** Matches screens that the window fills: phones, in either orientation. */
const small = "(max-width: 640px), (max-height: 440px)";

const css = `
:host { all: initial !important; position: fixed !important; z-index: 9999999999 !important; color-scheme: light dark !important }
* { box-sizing: border-box; inset: auto }
section { all: unset; --side: 20px; --bottom: 20px }
button { position: fixed; bottom: var(--bottom); width: 56px; height: 56px; padding: 14px; border: 1px solid transparent; border-radius: 50%; cursor: pointer; background: #0f5c5c; box-shadow: 0 2px 12px #0005 }
button:focus-visible { outline: 3px solid var(--brand); outline-offset: 2px; box-shadow: 0 0 0 2px var(--on), 0 0 0 7px var(--on) }
path { fill: none; stroke: currentcolor; stroke-width: 2; stroke-linecap: round; stroke-linejoin: round }
[aria-expanded=false] path + path, [aria-expanded=true] path:first-child { display: none }
.unread::after { content: ""; position: absolute; top: -1px; right: -1px; width: 16px; height: 16px; border: 2px solid #fff; border-radius: 50%; background: #c62828 }
dialog { position: fixed; bottom: calc(var(--bottom) + 72px); width: 400px; height: min(680px, 100dvh - var(--bottom) - 92px); max-width: none; max-height: none; margin: 0; padding: 0; overflow: hidden; border: 1px solid transparent; border-radius: 14px; box-shadow: 0 6px 40px #0005; background: Canvas; color: CanvasText; font: 16px/1.5 system-ui, sans-serif }
.right { right: var(--side) } .left { left: var(--side) }
p { margin: 24px }
dialog button { position: static; margin: 0 24px; width: 48px; height: 48px; color: #fff }
.ready button { display: none }
iframe { position: absolute; inset: 0; width: 100%; height: 100%; border: 0; visibility: hidden }
.ready iframe { visibility: visible }
@media ${small} { dialog { inset: 0; width: 100%; height: 100dvh; border-radius: 0 } }
@media print { section { display: none } }`;

const root = document.documentElement;
const storage = storageOf("sessionStorage");
const sharedStorage = storageOf("localStorage");
const warn = (text: string) => console.warn(`Parley widget: ${text}`);

type Call = readonly [name: string, ...values: ReadonlyArray<string>];
declare global {
  interface Window {
    parley?: { readonly calls?: Array<Call> };
  }
}

/** Reads the replacements of phrases in the attribute `data-texts`. */
const readTexts = (json = "{}"): Record<string, string> => {
  try {
    return { ...JSON.parse(json) };
  } catch (error) {
    warn(`data-texts is ignored: ${error}`);
    return {};
  }
};

/** Adds the elements to the page. Until the window is ready, `note` says why not, and `exit` closes the dialog. */
const draw = ({ color = "", offset = "", position = "", theme }: DOMStringMap) => {
  const dir = getComputedStyle(root).direction;
  const side = /left|right/.exec(position)?.[0] ?? (dir === "rtl" ? "left" : "right");
  const create = <Name extends keyof HTMLElementTagNameMap>(name: Name, parent: Node) =>
    parent.appendChild(document.createElement(name));

  const shadow = document.createElement("parley-widget").attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(css);
  shadow.adoptedStyleSheets = [sheet];
  const section = create("section", shadow);
  const dialog = create("dialog", section);
  const note = create("p", dialog);
  const exit = create("button", dialog);
  exit.textContent = "✕";
  const button = create("button", section);
  note.setAttribute("role", "status");
  button.setAttribute("aria-expanded", "false");
  const svg = (name: string, parent: Node, attributes: Record<string, string>) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) element.setAttribute(key, attributes[key]!);
    return parent.appendChild(element);
  };
  const icon = svg("svg", button, { viewBox: "0 0 24 24", "aria-hidden": "true" });
  svg("path", icon, { d: "M4 5h16v11h-9l-4 4v-4H4z" });
  svg("path", icon, { d: "M6 6l12 12M18 6L6 18" });
  dialog.className = button.className = side;
  const { style } = section;
  if (theme === "light" || theme === "dark") style.colorScheme = theme;
  const [bottom, aside] = (offset.match(/\d+/g) ?? []).toReversed();
  if (bottom !== undefined) style.setProperty("--bottom", `${bottom}px`);
  if (aside !== undefined) style.setProperty("--side", `${aside}px`);
  button.style.backgroundColor = color;
  root.append(shadow.host);
  // Above whatever the page contains, even if the page transforms its root. Safari 16 does without.
  section.popover = "manual";
  section.showPopover?.();
  const background = getComputedStyle(button).backgroundColor;
  // Converts notations such as `oklch(…)` to sRGB.
  button.style.color = `color-mix(in srgb, ${background}, ${background})`;
  const brand = getComputedStyle(button).color;
  const colors = [brand, legibleOn(brand)] as const;
  button.style.color = colors[1];
  style.setProperty("--brand", brand);
  style.setProperty("--on", colors[1]);
  return { button, colors, dialog, dir, exit, note, section, shadow };
};

const mount = ({ dataset, src }: HTMLScriptElement, calls: ReadonlyArray<Call>) => {
  const address = new URL(src);
  // The command line shows the id of a key with its prefix.
  const key = (dataset["key"] || address.searchParams.get("key") || "").replace(
    /^prl_(?=\w{12}$)/,
    "",
  );
  const lang = dataset["locale"] || root.lang || "en";
  const replacements = readTexts(dataset["texts"]);
  const builtIn = /^de\b/i.test(lang) ? german : {};
  const translate = (phrase: string) => replacements[phrase] ?? builtIn[phrase] ?? phrase;
  const { button, colors, dialog, dir, exit, note, section, shadow } = draw(dataset);
  const title = dataset["title"] || translate("Chat");
  exit.setAttribute("aria-label", translate("Close the chat"));
  for (const element of [section, dialog]) element.setAttribute("aria-label", title);

  const isReady = () => dialog.classList.contains("ready");
  let frame: HTMLIFrameElement | undefined;
  let port: MessagePort | undefined;
  let opener: Element | null;
  let questions: ReadonlyArray<string> = [];
  const send = (message: FromPage) => port?.postMessage(message);
  const emit = (name: string, detail?: object) =>
    dispatchEvent(new CustomEvent(`parley:${name}`, { detail }));

  // What lasts from page to page in this tab: an open window, and a question without an answer.
  const name = `parley-widget-${key}`;
  const [wasOpen, wasAsking] = storage.getItem(name)?.split(" ") ?? [];
  let isAsking = wasAsking === "1";
  const keep = () => storage.setItem(name, [dialog.open, isAsking].map(Number).join(" "));
  /** Shows whether there is an answer that the visitor has seen in no tab. */
  const mark = () => {
    const isUnread = !dialog.open && sharedStorage.getItem(name) !== null;
    button.classList.toggle("unread", isUnread);
    button.setAttribute("aria-label", isUnread ? `${title}: ${translate("New answer")}` : title);
  };

  /** Reads a token from the site's own backend. */
  const read = async (url: string) => {
    const response = await fetch(url, { cache: "no-store", signal: AbortSignal.timeout(20_000) });
    if (response.ok) return response.json();
    return response.status < 500 ? {} : null;
  };
  const fail = (reason: string) => {
    note.textContent = translate("This chat is not available at the moment.");
    warn(reason);
  };
  const greet = (target: HTMLIFrameElement) => {
    const channel = new MessageChannel();
    port = channel.port1;
    port.onmessage = async ({ data }: MessageEvent<FromWindow>) => {
      if (data === "ready") {
        dialog.classList.add("ready");
        note.textContent = "";
        for (const ask of questions) send({ ask });
        questions = [];
        if (!dialog.open || shadow.activeElement === null) return;
        frame?.focus();
        send("open");
      } else if (data === "close") close();
      else if (data === "token")
        send({ token: await read(dataset["tokenUrl"]!).catch(() => null) });
      else if ("asking" in data) {
        isAsking = data.asking;
        keep();
      } else {
        if (data.event === "answer" && !dialog.open) {
          sharedStorage.setItem(name, "1");
          mark();
        }
        emit(data.event, data.detail);
      }
    };
    const { contact, logo, theme = "", title } = dataset;
    const greeting: Greeting = {
      colors,
      contact,
      dir,
      lang,
      theme,
      title,
      locale: builtIn === german ? "de" : "en",
      logo: logo && new URL(logo, document.baseURI).href,
      texts: replacements,
      isKnown: dataset["tokenUrl"] !== undefined,
    };
    // Only the server's document may receive the greeting.
    target.contentWindow!.postMessage(greeting, address.origin, [channel.port2]);
    setTimeout(() => {
      if (isReady() || frame !== target || note.textContent !== translate("Loading the chat…"))
        return;
      fail(
        `the window did not open: the key ${key} is unknown or ${location.origin} is not among its origins. ` +
          `To allow it among others: parley key set prl_${key} --origins …,${location.origin}`,
      );
    }, 4000);
  };
  const load = () => {
    if (frame !== undefined) return;
    if (key === "")
      return fail(
        "data-key is missing; a tag manager may have dropped it. Put the id of the key into the script's address: widget.js?key=…",
      );
    if (key.startsWith("prl_"))
      return fail(
        "data-key is a whole API key, which everybody can now read. Revoke it, and put the id of another key here: the twelve characters after prl_",
      );
    note.textContent = translate("Loading the chat…");
    frame = document.createElement("iframe");
    frame.title = title;
    frame.allow = "clipboard-write";
    frame.src = new URL(
      `widget/${encodeURIComponent(key)}${dataset["logo"] ? "?logo" : ""}`,
      address,
    ).href;
    frame.onload = ({ target }) => greet(target as HTMLIFrameElement);
    dialog.append(frame);
  };
  const show = () => {
    button.setAttribute("aria-expanded", "true");
    sharedStorage.removeItem(name);
    mark();
    keep();
  };
  const open = () => {
    if (dialog.open) return;
    opener = shadow.activeElement ?? document.activeElement;
    load();
    // A window that fills the screen is modal, so that it keeps the focus.
    if (matchMedia(small).matches) dialog.showModal();
    else dialog.show();
    show();
    send("open");
    emit("open");
  };
  const close = () => {
    const hadFocus = dialog.contains(shadow.activeElement);
    dialog.close();
    // The page may change before the dialog's event.
    keep();
    if (hadFocus) (opener as HTMLElement | null)?.focus();
  };
  const block = ({ blockedURI, effectiveDirective }: SecurityPolicyViolationEvent) => {
    if (/^(frame|child)-src$/.test(effectiveDirective) && blockedURI.startsWith(address.origin))
      fail(
        `the page's Content Security Policy blocks the window. Add ${address.origin} to frame-src`,
      );
  };
  const end = new AbortController();
  document.addEventListener("securitypolicyviolation", block, end);
  addEventListener("storage", mark, end);
  dialog.onclose = () => {
    button.setAttribute("aria-expanded", "false");
    emit("close");
    if (isReady()) return;
    // The next attempt loads a new frame.
    frame?.remove();
    frame = undefined;
  };
  exit.onclick = close;
  button.onclick = () => {
    // Safari does not focus a button that is clicked.
    button.focus();
    if (dialog.open) close();
    else open();
  };
  section.onkeydown = ({ key }) => void (key === "Escape" && close());
  mark();
  if (wasOpen === "1" && !matchMedia(small).matches) {
    load();
    // The method `show` would take the focus from the page.
    dialog.open = true;
    show();
  } else if (isAsking) load();
  const methods: Record<string, (text: string) => void> = {
    open,
    close,
    ask: (text) => {
      open();
      if (isReady()) send({ ask: text });
      else questions = [...questions, text];
    },
    destroy: () => {
      end.abort();
      for (const each of [storage, sharedStorage]) each.removeItem(name);
      shadow.host.remove();
      port?.close();
      frame = undefined;
      if (isFree) delete window.parley;
    },
  };
  if (isFree) window.parley = methods;
  for (const [name, text = ""] of calls) methods[name]?.(text);
};

const script = document.currentScript ?? document.querySelector('script[src*="/widget.js"]');
/** The calls before the button is there. A page may have collected some before this script ran. */
const calls: Array<Call> = window.parley?.calls ?? [];
/** Whether the page has nothing else of this name. */
const isFree = !window.parley || calls === window.parley.calls;
const start = () => {
  try {
    // The script may be loaded twice.
    if (!document.querySelector("parley-widget")) mount(script as HTMLScriptElement, calls);
  } catch (error) {
    // For example in an old browser: the page still works without the button.
    console.warn("Parley widget cannot start:", error);
  }
};
if (!document.querySelector("parley-widget")) {
  const names = ["open", "close", "ask", "destroy"];
  const methods = names.map((name) => [name, (text: string) => void calls.push([name, text])]);
  if (isFree) window.parley = { ...Object.fromEntries(methods), calls };
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", start);
  else start();
}
