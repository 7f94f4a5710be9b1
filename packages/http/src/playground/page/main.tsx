import { render } from "preact";
import { Playground } from "./Playground.tsx";
import { readAddress } from "./Session.ts";

readAddress();
addEventListener("hashchange", readAddress);
render(<Playground />, document.body);
