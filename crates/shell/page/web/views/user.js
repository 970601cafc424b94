// One user: password, state, aliases, phones.
import { html, useState } from "../html.js";
import { path } from "../api.js";
import { Confirm } from "../parts/confirm.js";
import { Dialog, FormDialog } from "../parts/dialog.js";
import { Field } from "../parts/field.js";
import { Lamp } from "../parts/lamp.js";
import { Polled, Warning } from "../parts/notice.js";
import { PasswordField, PasswordShown, newPassword } from "../parts/password.js";
import { EVERY_MS, usePoll } from "../poll.js";
import { link } from "../route.js";
import { useMay, useServer } from "../server.js";
import { RegistrationTable } from "./registrations.js";

export function User({ user }) {
  const { api } = useServer();
  const poll = usePoll((signal) => api.get(path("users", user), signal), [api, user], 2 * EVERY_MS);
  return html`
    <p class="trail"><a href=${link("users")}>All users</a></p>
    <h2 class="mono subject">${user}</h2>
    <${Polled} poll=${poll} what="the user">
      ${(found) => html`
        ${found.note && html`<${Warning} title="This user cannot register" text=${`${found.note}.`} />`}
        <${Facts} user=${found} />
        <${Changes} user=${found} onChanged=${poll.refresh} />
        <${Aliases} user=${found} onChanged=${poll.refresh} />`}
    <//>
    <section aria-labelledby="phones">
      <h2 id="phones">Phones</h2>
      <${RegistrationTable} user=${user} caption=${`Registered phones of ${user}`} hides_user hides_caption />
    </section>`;
}

function Facts({ user }) {
  return html`<dl class="facts">
    <div><dt>State</dt><dd><${Lamp} kind=${user.enabled ? "good" : "off"}>${user.enabled ? "enabled" : "disabled: it can neither register nor call"}<//></dd></div>
    ${user.realm && html`<div><dt>Realm</dt><dd class="mono">${user.realm}</dd></div>`}
    ${user.algorithms && html`<div><dt>Password hashes</dt><dd>${user.algorithms.join(", ")}</dd></div>`}
    ${user.created_s > 0 && html`<div><dt>Added</dt><dd>${new Date(user.created_s * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" })}</dd></div>`}
  </dl>`;
}

function Changes({ user, onChanged }) {
  const { api, tell } = useServer();
  const [open, setOpen] = useState(null);
  const close = () => setOpen(null);
  const url = path("users", user.aor);
  const setEnabled = async (enabled) => {
    await api.patch(url, { enabled });
    close();
    tell(`${user.aor} is ${enabled ? "enabled" : "disabled"}.`);
    onChanged();
  };
  const enable = () => setEnabled(true).catch((error) => tell(error.message));
  const remove = async () => {
    await api.delete(url);
    tell(`${user.aor} was removed.`);
    location.hash = link("users");
  };
  if (!useMay("administrator")) return null;
  return html`
    <div class="bar">
      <button type="button" onClick=${() => setOpen("password")}>New password</button>
      ${user.enabled
        ? html`<button type="button" key="disable" onClick=${() => setOpen("disable")}>Disable</button>`
        : html`<button type="button" key="enable" onClick=${enable}>Enable</button>`}
      <button type="button" class="danger" onClick=${() => setOpen("remove")}>Remove</button>
    </div>
    ${open === "password" && html`<${ChangePassword} user=${user.aor} onClose=${close} />`}
    ${open === "disable" && html`<${Confirm} title="Disable this user?" verb="Disable" is_harmless onConfirm=${() => setEnabled(false)} onClose=${close}>
      <p><strong class="mono">${user.aor}</strong> can neither register nor call until it is enabled again. Its phones are unregistered within seconds. Its password is kept.</p>
    <//>`}
    ${open === "remove" && html`<${Confirm} title="Remove this user?" verb="Remove" onConfirm=${remove} onClose=${close}>
      <p><strong class="mono">${user.aor}</strong> and its aliases are removed. This cannot be undone; to keep the password, disable the user instead.</p>
    <//>`}`;
}

function ChangePassword({ user, onClose }) {
  const { api, tell } = useServer();
  const [password, setPassword] = useState(newPassword);
  const [isSet, setSet] = useState(false);
  const submit = async () => {
    await api.patch(path("users", user), { password });
    setSet(true);
    tell(`${user} has a new password.`);
  };
  if (isSet) {
    return html`<${Dialog} title="The password is changed" onClose=${onClose} key="set">
      <${PasswordShown} user=${user} password=${password} />
      <div class="actions"><button type="button" class="primary" autofocus onClick=${onClose}>Done</button></div>
    <//>`;
  }
  return html`<${FormDialog} title=${`New password for ${user}`} verb="Change" onSubmit=${submit} onClose=${onClose} key="change">
    <${PasswordField} value=${password} onInput=${setPassword} />
    <p class="hint">A phone with the old password can stay registered until its registration expires; unregister it below to be sure.</p>
  <//>`;
}

function Aliases({ user, onChanged }) {
  const { api, tell } = useServer();
  const mayChange = useMay("administrator");
  const [isAdding, setAdding] = useState(false);
  const [removed, setRemoved] = useState(null);
  const [alias, setAlias] = useState("");
  const aliases = user.aliases ?? [];
  const add = async () => {
    await api.put(path("users", user.aor, "aliases", alias.trim()));
    setAdding(false);
    setAlias("");
    tell(`${user.aor} can be called as ${alias.trim()}.`);
    onChanged();
  };
  const remove = async () => {
    await api.delete(path("users", user.aor, "aliases", removed));
    setRemoved(null);
    tell(`${removed} was removed.`);
    onChanged();
  };
  return html`<section aria-labelledby="aliases">
    <h2 id="aliases">Also called as</h2>
    ${aliases.length === 0 && html`<p class="hint">No alias. An alias is another address of this user, such as a short number.</p>`}
    ${aliases.length > 0 && html`<ul class="chips">
      ${aliases.map((one) => html`<li key=${one}><span class="mono">${one}</span>
        ${mayChange && html`<button type="button" aria-label=${`Remove the alias ${one}`} onClick=${() => setRemoved(one)}>×</button>`}
      </li>`)}
    </ul>`}
    ${mayChange && html`<p><button type="button" onClick=${() => setAdding(true)}>Add an alias</button></p>`}
    ${isAdding && html`<${FormDialog} title=${`Add an alias of ${user.aor}`} verb="Add" onSubmit=${add} onClose=${() => setAdding(false)}>
      <${Field} label="Alias" hint="A name or number, alone or with a domain: 100 or 100@example.com." value=${alias} onInput=${setAlias} class="mono"
        autofocus required autocomplete="off" spellcheck="false" autocapitalize="off" />
    <//>`}
    ${removed && html`<${Confirm} title="Remove this alias?" verb="Remove" onConfirm=${remove} onClose=${() => setRemoved(null)}>
      <p>Callers of <strong class="mono">${removed}</strong> no longer reach <span class="mono">${user.aor}</span>.</p>
    <//>`}
  </section>`;
}
