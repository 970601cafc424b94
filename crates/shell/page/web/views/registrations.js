// Registered phones.
import { html, useState } from "../html.js";
import { path, query } from "../api.js";
import { clock, count } from "../format.js";
import { Confirm } from "../parts/confirm.js";
import { Empty, Polled } from "../parts/notice.js";
import { Table } from "../parts/table.js";
import { usePoll } from "../poll.js";
import { link } from "../route.js";
import { useMay, useServer } from "../server.js";

const LIMIT = 500;

export function Registrations() {
  const [user, setUser] = useState("");
  const [wanted, setWanted] = useState("");
  const search = (event) => {
    event.preventDefault();
    setWanted(user.trim());
  };
  return html`
    <form class="bar" role="search" onSubmit=${search}>
      <label for="of-user">Address of record</label>
      <input id="of-user" type="search" value=${user} placeholder="alice@example.com" spellcheck="false" autocapitalize="off"
        onInput=${(event) => setUser(event.currentTarget.value)} />
      <button type="submit">Show</button>
      ${wanted && html`<button type="button" onClick=${() => { setUser(""); setWanted(""); }}>Show all</button>`}
    </form>
    <${RegistrationTable} user=${wanted} caption=${wanted ? `Phones of ${wanted}` : "All registered phones"} />`;
}

/// The registrations of a user, or all.
export function RegistrationTable({ user, caption, hides_caption, hides_user }) {
  const { api, tell, status } = useServer();
  const poll = usePoll((signal) => api.get(query("/registrations", { user, limit: LIMIT }), signal), [api, user]);
  const mayRemove = useMay("operator");
  const [removed, setRemoved] = useState(null);
  const remove = async () => {
    await api.delete(query(path("registrations", removed.aor), { contact: removed.contact }));
    setRemoved(null);
    tell(`${removed.contact} of ${removed.aor} is no longer registered.`);
    poll.refresh();
  };
  const columns = [
    !hides_user && { name: "User", is_head: true, class: "mono", cell: (one) => html`<a href=${link("users", one.aor)}>${one.aor}</a>` },
    { name: "Contact", is_head: Boolean(hides_user), class: "mono", cell: (one) => one.contact },
    { name: "From", class: "mono address", cell: (one) => one.source },
    { name: "Expires in", is_number: true, cell: (one) => clock(one.expires_s) },
    { name: "Preference", is_number: true, cell: (one) => one.q },
    status?.cluster && { name: "Member", is_number: true, cell: (one) => one.member ?? "–" },
    mayRemove && {
      name: "Change", hides_name: true, class: "acts",
      cell: (one) => html`<button type="button" onClick=${() => setRemoved(one)} aria-label=${`Unregister ${one.contact} of ${one.aor}`}>Unregister</button>`,
    },
  ].filter(Boolean);
  return html`<${Polled} poll=${poll} what="registrations">
    ${(found) => (found.registrations.length === 0
      ? html`<${Empty} title=${user ? "No phone of this user is registered." : "No phone is registered."}>
          ${user ? "Callers get 480." : html`Add a user under <a href=${link("users")}>Users</a> and register a phone with its name and password.`}
        <//>`
      : html`
        <${Table} caption=${caption} hides_caption=${hides_caption} columns=${columns} rows=${found.registrations} id=${(one) => `${one.aor} ${one.contact} ${one.source}`} />
        ${found.more && html`<p class="hint">The first ${count(LIMIT, "phone")} are shown. Search for an address to see its phones.</p>`}`)}
    <//>
    ${removed && html`<${Confirm} title="Unregister a phone?" verb="Unregister" onConfirm=${remove} onClose=${() => setRemoved(null)}>
      <p><span class="mono">${removed.contact}</span> of <strong class="mono">${removed.aor}</strong> gets no calls until it registers again, which most phones do within the hour.</p>
    <//>`}`;
}
