import { handler } from "./service.ts";

export const dynamic = "force-dynamic";
export { handler as GET, handler as POST, handler as PATCH, handler as DELETE };
