/**
 * `widget.js`: adds to a site's page a button that opens the chat window in a frame. It adds only one element with a
 * shadow root, and the global `parley`. The page's Content Security Policy need not allow inline styles, because
 * constructed style sheets and individually set style properties do not count as inline.
 */
import type { FromPage, FromWindow, Greeting } from "./Messages.ts";

const texts = {
  en: ["Chat", "Close", "Loading the chat…", "The chat is not available at the moment."],
  de: ["Chat", "Schließen", "Der Chat wird geladen …", "Der Chat ist derzeit nicht verfügbar."],
} as const;

/** Matches screens that the window fills: phones, in either orientation. */
const small = "(max-width: 640px), (max-height: 440px)";

const css = `
:host { all: initial !important; color-scheme: light dark !important }
* { box-sizing: border-box; z-index: 2147483647; inset: auto }
button { position: fixed; bottom: 20px; width: 56px; height: 56px; padding: 14px; border: 1px solid transparent; border-radius: 50%; cursor: pointer; background: #0f5c5c; box-shadow: 0 2px 12px #0005 }
button:focus-visible { outline: 3px solid Highlight; outline-offset: 2px }
path { fill: none; stroke: currentcolor; stroke-width: 2; stroke-linecap: round; stroke-linejoin: round }
[aria-expanded=false] path + path, [aria-expanded=true] path:first-child { display: none }
dialog { position: fixed; bottom: 92px; width: 400px; height: min(680px, 100dvh - 112px); max-width: none; max-height: none; margin: 0; padding: 0; overflow: hidden; border: 1px solid transparent; border-radius: 14px; box-shadow: 0 6px 40px #0005; background: Canvas; color: CanvasText; font: 16px/1.5 system-ui, sans-serif }
.right { right: 20px } .left { left: 20px }
p { margin: 24px }
dialog button { position: static; margin: 0 24px; width: 48px; height: 48px; color: #fff }
.ready button { display: none }
iframe { position: absolute; inset: 0; width: 100%; height: 100%; border: 0; visibility: hidden }
.ready iframe { visibility: visible }
@media ${small} { dialog { inset: 0; width: 100%; height: 100dvh; border-radius: 0 } }
@media print { section { display: none } }`;

/** Returns black or white, whichever contrasts more with an sRGB colour in the form `rgb(…)` or `color(srgb …)`. */
const legibleOn = (color: string): string => {
  const [r = 0, g = 0, b = 0] = (color.match(/[\d.]+(e-\d+)?/g) ?? []).map((text) => {
    const part = Number(text) / (color.startsWith("rgb") ? 255 : 1);
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";
};

const root = document.documentElement;

/** Adds the elements to the page. Until the window is ready, `note` says why not, and `exit` closes the dialog. */
const draw = (dataset: DOMStringMap, title: string, closeLabel: string) => {
  const side =
    /left|right/.exec(dataset["position"] ?? "")?.[0] ??
    (getComputedStyle(root).direction === "rtl" ? "left" : "right");
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
  exit.setAttribute("aria-label", closeLabel);
  const button = create("button", section);
  for (const element of [section, dialog, button]) element.setAttribute("aria-label", title);
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
  button.style.backgroundColor = dataset["color"] ?? "";
  root.append(shadow.host);
  const color = getComputedStyle(button).backgroundColor;
  // Converts notations such as `oklch(…)` to sRGB.
  button.style.color = `color-mix(in srgb, ${color}, ${color})`;
  const textColor = legibleOn(getComputedStyle(button).color);
  button.style.color = textColor;
  const colors = [color, textColor] as const;
  return { button, colors, dialog, exit, note, section, shadow };
};

const mount = ({ dataset, src }: HTMLScriptElement) => {
  const locale = /^de\b/i.test(dataset["locale"] ?? root.lang) ? "de" : "en";
  const [title, closeLabel, loadingText, failureText] = texts[locale];
  const { button, colors, dialog, exit, note, section, shadow } = draw(dataset, title, closeLabel);

  const isReady = () => dialog.classList.contains("ready");
  let frame: HTMLIFrameElement | undefined;
  let port: MessagePort | undefined;
  let opener: Element | null;
  const send = (message: FromPage) => port?.postMessage(message);

  /** Reads a token from the site's own backend. */
  const read = async (url: string) => {
    const response = await fetch(url, { cache: "no-store", signal: AbortSignal.timeout(20_000) });
    if (response.ok) return response.json();
    return response.status < 500 ? {} : null;
  };
  const greet = (target: HTMLIFrameElement) => {
    const channel = new MessageChannel();
    port = channel.port1;
    port.onmessage = async ({ data }: MessageEvent<FromWindow>) => {
      if (data === "ready") {
        dialog.classList.add("ready");
        note.textContent = "";
        frame?.focus();
        send("open");
      }
      if (data === "close") close();
      if (data === "token") send({ token: await read(dataset["tokenUrl"]!).catch(() => null) });
    };
    const greeting: Greeting = { locale, colors, isKnown: dataset["tokenUrl"] !== undefined };
    // Only the server's document may receive the greeting.
    target.contentWindow!.postMessage(greeting, new URL(src).origin, [channel.port2]);
    setTimeout(() => isReady() || (note.textContent = failureText), 4000);
  };
  const open = () => {
    if (dialog.open) return;
    opener = shadow.activeElement ?? document.activeElement;
    if (frame === undefined) {
      note.textContent = loadingText;
      frame = document.createElement("iframe");
      frame.title = title;
      frame.allow = "clipboard-write";
      frame.src = new URL(`widget/${encodeURIComponent(dataset["key"] ?? "")}`, src).href;
      frame.onload = ({ target }) => greet(target as HTMLIFrameElement);
      dialog.append(frame);
    }
    // A window that fills the screen is modal, so that it keeps the focus.
    if (matchMedia(small).matches) dialog.showModal();
    else dialog.show();
    button.setAttribute("aria-expanded", "true");
    send("open");
  };
  const close = () => {
    const hadFocus = dialog.contains(shadow.activeElement);
    dialog.close();
    if (hadFocus) (opener as HTMLElement | null)?.focus();
  };
  dialog.onclose = () => {
    button.setAttribute("aria-expanded", "false");
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
  Object.assign(window, { parley: Object.freeze({ open, close }) });
};

const script =
  document.currentScript ?? document.querySelector('script[data-key][src*="/widget.js"]');
const start = () => {
  try {
    // The script may be loaded twice.
    if (!document.querySelector("parley-widget")) mount(script as HTMLScriptElement);
  } catch (error) {
    // For example in an old browser: the page still works without the button.
    console.warn("Parley widget cannot start:", error);
  }
};
if (document.readyState === "loading") addEventListener("DOMContentLoaded", start);
else start();
