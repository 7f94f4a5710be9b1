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

/** Asks that are sent at once in one chat. */
export const asks = Math.max(2, read("PARLEY_FAULTS_ASKS", 50));

/** Requests with one key that are sent at once. */
export const retries = Math.max(2, read("PARLEY_FAULTS_RETRIES", 100));

/** Streams whose first deltas are timed. */
export const deltas = Math.max(1, read("PARLEY_FAULTS_DELTAS", 30));

/** Clients at once that do not read what they asked for. */
export const idlers = Math.max(1, read("PARLEY_FAULTS_IDLERS", 30));

/** How often an ask is killed in the middle of each call of its store. */
export const during = read("PARLEY_FAULTS_DURING", 2);

/** Asks, plain and streamed each, of models that fail at random. */
export const modelAsks = Math.max(200, read("PARLEY_FAULTS_MODEL_ASKS", 300));

/** How long a server that holds a turn is stopped, in milliseconds; longer than the turn's lease. */
export const stopped = Math.max(12_000, read("PARLEY_FAULTS_STOPPED", 12_500));

/** Requests of one chatbot with the ids of another, with row security and as many without. */
export const probes = Math.max(100, read("PARLEY_FAULTS_PROBES", 1_000));

/** How long a test may take, in milliseconds. */
export const patience = 60_000 + creates * 200 + kills * 20_000;
