import { launchForTests } from "./launch.ts";
import { contract } from "./suite.ts";

const testServer = launchForTests("memory");
contract(() => testServer().target);
