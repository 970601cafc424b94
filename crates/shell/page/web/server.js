// What all views share: the API, the session, the last status, and messages to the user.
import { createContext, useContext } from "./html.js";
import { may } from "./session.js";

export const ServerContext = createContext(null);

/// Returns `api`, `session`, `status` (null before the first), `history`, and `tell(text)`.
export const useServer = () => useContext(ServerContext);

/// Returns whether the session's role includes `role`.
export function useMay(role) {
  return may(useServer().session.role, role);
}
