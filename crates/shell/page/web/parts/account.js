// What to enter in a phone.
import { html } from "../html.js";
import { phoneDomain, placeText, reach } from "../reach.js";
import { useServer } from "../server.js";

/// Shows server, user name and domain; `children` are further lines, such as the password. Without a user, those that
/// are the same for each user of the first domain.
export function Account({ user, children }) {
  const { status } = useServer();
  if (!status) return null;
  const places = reach(status.listeners, location.hostname);
  const at = user?.lastIndexOf("@") ?? -1;
  const domain = phoneDomain(user ? user.slice(at + 1) : status.domains[0] ?? "", status.domains, places);
  return html`<dl class="facts account">
    <div><dt>SIP server</dt><dd>${places.map((place) => html`<span class="line" key=${placeText(place)}>${placeText(place)}</span>`)}</dd></div>
    ${user && html`<div><dt>User name</dt><dd class="mono">${user.slice(0, at)}</dd></div>`}
    ${domain && html`<div><dt>Domain</dt><dd class="mono">${domain}</dd></div>`}
    ${children}
  </dl>`;
}
