import { execFileSync } from "node:child_process";
import { describe, expect, it } from "vitest";
import { here } from "./here.ts";

const completions = async (shell: string): Promise<string> => {
  const { code, stderr, stdout } = await here(["--completions", shell], {});
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  return stdout;
};

describe("completions", () => {
  it.each(["bash", "zsh", "fish", "powershell"])("of %s know the commands", async (shell) => {
    const script = await completions(shell);
    for (const command of ["workspace", "chatbot", "rotate", "provision", "audit", "doctor"]) {
      expect(script).toContain(command);
    }
  });

  it("complete in bash", async () => {
    const completed = (...words: ReadonlyArray<string>) =>
      execFileSync("bash", ["-c", `${script}\n${complete}`, "bash", "parley", ...words], {
        encoding: "utf8",
      }).trim();
    const script = await completions("bash");
    const complete = `COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=\${#COMP_LINE}
_parley parley "\${COMP_WORDS[COMP_CWORD]}" "\${COMP_WORDS[COMP_CWORD - 1]}"; echo "\${COMPREPLY[*]}"`;
    expect(completed("work")).toBe("workspace");
    expect(completed("key", "")).toBe("create list change revoke rotate generate");
    expect(completed("chatbot", "set", "--moderation", "")).toBe("off words endpoint");
    expect(completed("key", "create", "--sc")).toBe("--scopes");
  });
});
