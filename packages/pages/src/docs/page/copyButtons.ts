/**
 * Adds colours and a copy button to each code block in the guide.
 */
import { color } from "../../page/color.ts";
import { copy } from "../../page/copy.ts";

for (const box of document.querySelectorAll(".code")) {
  const code = box.querySelector("code")!;
  color(code, box.querySelector("span")!.textContent);
  const button = document.createElement("button");
  button.className = "plain";
  button.textContent = "Copy";
  button.onclick = async () => {
    await copy(code.textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 2000);
  };
  box.firstElementChild!.append(button);
}
