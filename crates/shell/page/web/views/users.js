// Users: list, and one user.
import { html, useState } from "../html.js";
import { ApiError, query } from "../api.js";
import { Account } from "../parts/account.js";
import { Dialog, FormDialog } from "../parts/dialog.js";
import { Field } from "../parts/field.js";
import { Lamp } from "../parts/lamp.js";
import { Empty, Polled, Warning } from "../parts/notice.js";
import { PasswordField, PasswordShown, newPassword } from "../parts/password.js";
import { Table } from "../parts/table.js";
import { EVERY_MS, usePoll } from "../poll.js";
import { link } from "../route.js";
import { useMay, useServer } from "../server.js";
import { User } from "./user.js";

const PAGE = 100;
/// Maximum number of users in one answer of the server.
const MAX_LIMIT = 1000;
/// Above this number of contacts the list does not count those of each user.
const MOST_COUNTED = 2000;

/// Part of the address that opens the form for a new user: #/users//add
const ADD = "add";
export const linkToAdd = link("users", "", ADD);

export function Users({ rest }) {
  return rest[0] ? html`<${User} user=${rest[0]} key=${rest[0]} />` : html`<${List} isToAdd=${rest[1] === ADD} />`;
}

function List({ isToAdd }) {
  const { api, status } = useServer();
  const [search, setSearch] = useState("");
  const [pages, setPages] = useState(1);
  const mayChange = useMay("administrator");
  const [isAdding, setAdding] = useState(isToAdd && mayChange);
  const poll = usePoll((signal) => load(api, search.trim(), pages, signal), [api, search, pages], 2 * EVERY_MS);
  const contacts = useContacts();
  const change = (text) => {
    setSearch(text);
    setPages(1);
  };
  return html`
    <div class="bar" role="search">
      <label for="search">Search</label>
      <input id="search" type="search" value=${search} placeholder="Part of an address" spellcheck="false" autocapitalize="off"
        onInput=${(event) => change(event.currentTarget.value)} />
      ${mayChange && html`<button type="button" class="primary" onClick=${() => setAdding(true)}>Add a user</button>`}
    </div>
    <${Polled} poll=${poll} what="users">
      ${(found) => (found.users.length === 0
        ? html`<${Nobody} search=${search} mayChange=${mayChange} />`
        : html`
          <${Table} caption="Users" hides_caption columns=${columns(contacts, status?.domains ?? [])} rows=${found.users} id=${(user) => user.aor} />
          ${found.more && html`<p class="more"><button type="button" onClick=${() => setPages(pages + 1)}>Show more users</button></p>`}`)}
    <//>
    ${isAdding && html`<${Add} onClose=${() => setAdding(false)} onAdded=${poll.refresh} />`}`;
}

/// Returns the first pages of users.
async function load(api, search, pages, signal) {
  const users = [];
  let more = true;
  while (more && users.length < pages * PAGE) {
    const limit = Math.min(MAX_LIMIT, pages * PAGE - users.length);
    const found = await api.get(query("/users", { search, limit, after: users[users.length - 1]?.aor }), signal);
    users.push(...found.users);
    more = found.more;
  }
  return { users, more };
}

/// Returns the number of contacts by user; null if there are too many to count.
function useContacts() {
  const { api, status } = useServer();
  const isCounted = status !== null && status.registrations <= MOST_COUNTED;
  const poll = usePoll(async (signal) => {
    if (!isCounted) return null;
    const { registrations } = await api.get(`/registrations?limit=${MOST_COUNTED}`, signal);
    return registrations.reduce((counts, { aor }) => counts.set(aor, (counts.get(aor) ?? 0) + 1), new Map());
  }, [api, isCounted]);
  return poll.value;
}

function columns(contacts, domains) {
  return [
    { name: "User", is_head: true, class: "mono", cell: (user) => html`<a href=${link("users", user.aor)}>${user.aor}</a>` },
    { name: "State", cell: (user) => html`<${State} user=${user} isServed=${isServed(user.aor, domains)} />` },
    contacts && { name: "Phones", is_number: true, cell: (user) => contacts.get(user.aor) ?? 0 },
    { name: "Also called as", class: "mono", cell: (user) => (user.aliases ?? []).join(", ") || "–" },
  ].filter(Boolean);
}

/// Whether the server serves the domain of an address.
const isServed = (aor, domains) => domains.length === 0 || domains.includes(aor.slice(aor.lastIndexOf("@") + 1));

function State({ user, isServed }) {
  if (!isServed) return html`<${Lamp} kind="warn">${user.enabled ? "domain not served" : "disabled, domain not served"}<//>`;
  return html`<${Lamp} kind=${user.enabled ? "good" : "off"}>${user.enabled ? "enabled" : "disabled"}<//>`;
}

function Nobody({ search, mayChange }) {
  if (search) return html`<${Empty} title="No user matches.">Search for less, or for another part of the address.<//>`;
  if (!mayChange) return html`<${Empty} title="No user yet.">An administrator can add one.<//>`;
  return html`<${Empty} title="No user yet: add one.">
    A phone registers with the user's name, its password, and:
    <${Account} />
  <//>`;
}

function Add({ onClose, onAdded }) {
  const { api, session, tell } = useServer();
  const [name, setName] = useState("");
  const [password, setPassword] = useState(newPassword);
  const [added, setAdded] = useState(null);
  const domain = session.domains?.[0] ?? "example.com";
  const submit = async () => {
    const aor = name.trim().replace(/^sips?:/i, "");
    if (aor === "") throw new ApiError(422, "A name is missing", `Enter a name, such as alice or alice@${domain}.`);
    const user = await api.post("/users", { aor, password });
    setAdded(user);
    tell(`${user.aor} was added.`);
    onAdded();
  };
  if (added) {
    return html`<${Dialog} title="The user is added" onClose=${onClose} key="added">
      ${added.note && html`<${Warning} title="This user cannot register" text=${`${added.note}.`} />`}
      <${PasswordShown} user=${added.aor} password=${password} />
      <div class="actions">
        <a class="button" href=${link("users", added.aor)}>Open this user</a>
        <button type="button" class="primary" autofocus onClick=${onClose}>Done</button>
      </div>
    <//>`;
  }
  return html`<${FormDialog} title="Add a user" verb="Add" onSubmit=${submit} onClose=${onClose} key="add">
    <${Field} label="Name" hint=${`alice stands for alice@${domain}.`} value=${name} onInput=${setName} class="mono" autofocus
      autocomplete="off" spellcheck="false" autocapitalize="off" />
    <${PasswordField} value=${password} onInput=${setPassword} />
  <//>`;
}
