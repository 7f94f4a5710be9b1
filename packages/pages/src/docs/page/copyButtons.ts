/**
 * Adds a copy button to each code block in the guide.
 */
import { copy } from "../../page/copy.ts";

for (const box of document.querySelectorAll(".code")) {
  const button = document.createElement("button");
  button.className = "plain";
  button.textContent = "Copy";
  button.onclick = async () => {
    await copy(box.querySelector("code")!.textContent!);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 2000);
  };
  box.firstElementChild!.append(button);
}
