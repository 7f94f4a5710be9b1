/** Serves the example in a process of its own, which the test kills. The argument is the folder of its storage. */
import { startWorker } from "./Workerd.ts";

const classes = { CHATBOTS: "Chatbot", DIRECTORY: "Directory" };
const options = { bindings: { ADMIN_TOKEN: "admin" }, storage: process.argv[2]! };
const { origin } = await startWorker("../../examples/worker/worker.ts", classes, options);
console.log(origin);
