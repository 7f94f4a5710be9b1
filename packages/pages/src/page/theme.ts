/**
 * Applies the light or dark theme that the person chose on any of the pages. This script runs before a page is painted.
 */
import { storageOf } from "./storage.ts";

const storage = storageOf("localStorage");
const root = document.documentElement;
const apply = () => (root.dataset["theme"] = storage.getItem("parley-theme") ?? "");
apply();
addEventListener("storage", apply);
addEventListener("click", ({ target }) => {
  if (!(target as Element).closest("#theme")) return;
  const isSystemDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const theme = root.dataset["theme"] || (isSystemDark ? "dark" : "light");
  storage.setItem("parley-theme", theme === "dark" ? "light" : "dark");
  apply();
});
