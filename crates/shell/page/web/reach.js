// How phones reach the server: from its listeners, and from the address that the browser used.

const TRANSPORTS = { udp: "UDP", tcp: "TCP", tls: "TLS", ws: "WebSocket", wss: "secure WebSocket" };

/// Returns `{ host, port, transports }` for each address and port at which phones reach the server, the one that the
/// browser used first. `listeners` are those of a status, such as `udp:192.0.2.2:5060`; `browserHost` is that of the page.
export function reach(listeners, browserHost) {
  const host = browserHost.replace(/^\[|\]$/g, "");
  const found = new Map();
  for (const listener of listeners.filter((one) => !one.includes("closing"))) {
    const [, scheme, plain, bracketed, port] = /^([a-z]+):(?:([^[\]:]+)|\[([^\]]+)\]):(\d+)/.exec(listener) ?? [];
    if (!TRANSPORTS[scheme]) continue;
    const own = plain ?? bracketed;
    // A listener on all addresses also has the one that the browser used.
    const at = isAny(own) ? (isLoopback(host) ? null : host) : own;
    const key = `${at} ${port}`;
    if (!found.has(key)) found.set(key, { host: at, port: Number(port), transports: [] });
    const { transports } = found.get(key);
    if (!transports.includes(TRANSPORTS[scheme])) transports.push(TRANSPORTS[scheme]);
  }
  const all = [...found.values()];
  // Other machines do not reach a loopback address.
  const outside = all.filter((one) => !isLoopback(one.host ?? ""));
  const offered = outside.length > 0 ? outside : all;
  const used = offered.filter((one) => one.host === host);
  return used.length > 0 ? used : offered;
}

/// Returns what a phone has as its domain. Nobody else's `localhost` is this server, which takes its own addresses for its
/// first domain.
export function phoneDomain(domain, domains, places) {
  const isOwn = domain === domains[0] && isLoopback(domain);
  return (isOwn && places[0]?.host) || domain;
}

/// Formats a place for a person: 192.0.2.2, port 5060, UDP or TCP.
export const placeText = ({ host, port, transports }) => `${host ?? "the address of the server"}, port ${port}, ${transports.join(" or ")}`;

const isAny = (host) => host === "0.0.0.0" || host === "::" || host === "*";
const isLoopback = (host) => host === "localhost" || host === "::1" || /^127\./.test(host);
