// The view is in the address, so that it can be linked and the browser's Back works: #/users/alice%40example.com
import { useEffect, useState } from "./html.js";

export const link = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;

/// Returns `{ view, rest }`, such as `users` and `["alice@example.com"]`.
export function useRoute() {
  const [route, setRoute] = useState(read);
  useEffect(() => {
    const changed = () => setRoute(read());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

function read() {
  const [view = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  return { view: view || "overview", rest };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
