/**
 * The key that asked, with its entry, and the rate of a key.
 */
export const keys = `
alter table entry add column key_id text;
alter table api_key add column rate_per_minute int;
`;
