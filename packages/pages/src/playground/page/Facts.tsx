import type { Entry } from "@parley/client";
import { Icon, Time } from "../../page/Parts.tsx";

/** The details of an entry, which unfold below it. */
export const Facts = ({ _createTime, flagged, id, moderation }: Entry) => (
  <details>
    <summary title="Details">
      <Icon name="more" />
    </summary>
    <span class="facts">
      <Time iso={_createTime} dateStyle="medium" />
      <span>Entry {id}</span>
      <span>Moderation: {moderation}</span>
      <span>{flagged ? "Flagged" : "Not flagged"}</span>
    </span>
  </details>
);
