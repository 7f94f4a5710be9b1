const format = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "short" });

/** A time in the reader's zone; pointing at it shows the time as the server sent it. */
export const Time = ({ iso }: { readonly iso: string }) => (
  <time dateTime={iso} title={iso}>
    {format.format(new Date(iso))}
  </time>
);
