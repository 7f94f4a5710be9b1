/**
 * Whether a key opens its chatbot.
 */
import type { RegisteredKey } from "../ports/ChatbotRegistry.ts";

export type KeyState = "live" | "expired" | "revoked";

/** What the key is at `now`, in milliseconds since 1970. */
export const keyState = (
  { expiresAt, revokedAt }: Pick<RegisteredKey, "expiresAt" | "revokedAt">,
  now: number,
): KeyState =>
  revokedAt !== null
    ? "revoked"
    : expiresAt !== null && expiresAt.getTime() <= now
      ? "expired"
      : "live";
