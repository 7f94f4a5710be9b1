export { layerServer } from "./Serve.ts";
