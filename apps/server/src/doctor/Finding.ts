/**
 * What a check of `parley doctor` found.
 */

export interface Finding {
  /** What was looked at, such as `database`. */
  readonly check: string;
  readonly status: "ok" | "warning" | "failed";
  readonly message: string;
  /** What can be done about it. */
  readonly hint: string | null;
}

export const ok = (check: string, message: string): Finding => ({
  check,
  status: "ok",
  message,
  hint: null,
});

/** Something that works, but hardly as it was meant. */
export const warning = (check: string, message: string, hint: string): Finding => ({
  check,
  status: "warning",
  message,
  hint,
});

export const failed = (check: string, message: string, hint: string | null): Finding => ({
  check,
  status: "failed",
  message,
  hint,
});
