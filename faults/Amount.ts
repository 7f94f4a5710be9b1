/**
 * How much a run does: little by default, as much as wanted by the environment.
 */
const read = (name: string, fallback: number): number => {
  const text = process.env[name];
  if (text === undefined || text === "") return fallback;
  if (!/^[0-9]+$/.test(text)) throw new Error(`${name} must be a whole number, not "${text}".`);
  return Number(text);
};

/** Requests of one round: creates and asks together. */
export const creates = read("PARLEY_FAULTS_CREATES", 160);

/** Kills in one round, spread over it. */
export const kills = Math.max(1, read("PARLEY_FAULTS_KILLS", Math.ceil(creates / 400)));

/** Decides which requests are made and when the kills come; printed, so that a run can be repeated. */
export const seed = read("PARLEY_FAULTS_SEED", Math.floor(Math.random() * 1_000_000));

/** How long a test may take, in milliseconds. */
export const patience = 60_000 + creates * 200 + kills * 20_000;
