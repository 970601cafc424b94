// Configuration, backup, version and counters.
import { html, useState } from "../html.js";
import { bytes, count, number, span } from "../format.js";
import { FormDialog } from "../parts/dialog.js";
import { Field } from "../parts/field.js";
import { Lamp } from "../parts/lamp.js";
import { Failure, Loading, Polled } from "../parts/notice.js";
import { Prose } from "../parts/prose.js";
import { Table } from "../parts/table.js";
import { usePoll } from "../poll.js";
import { useMay, useServer } from "../server.js";
import { toToml } from "../toml.js";

const LICENCES = [["Preact", "preact"], ["htm", "htm"], ["uPlot", "uplot"]];

export function System() {
  const { status } = useServer();
  const mayOperate = useMay("operator");
  const mayAll = useMay("administrator");
  if (!status) return html`<${Loading} what="the status" />`;
  return html`
    <dl class="facts">
      <div><dt>Version</dt><dd>${status.version}</dd></div>
      <div><dt>Running</dt><dd>for ${span(status.uptime_s)}, process ${status.pid}</dd></div>
      <div><dt>Key</dt><dd><span class="mono">${status.key || "–"}</span><span class="hint"> Servers with the same key show the same value.</span></dd></div>
    </dl>
    ${mayOperate && html`<${Configuration} isShown=${mayAll} />`}
    ${mayAll && html`<${Backup} />`}
    <${CounterList} counters=${status.counters ?? {}} />
    <p class="hint licences">This page contains
      ${" "}${LICENCES.map(([name, file], at) => html`${at > 0 ? ", " : ""}<a key=${name} href=${new URL(`../vendor/${file}.LICENSE`, import.meta.url).href}>${name}</a>`)}
      ${" "}under the licences behind these links.</p>`;
}

function Configuration({ isShown }) {
  const { api } = useServer();
  const [isBusy, setBusy] = useState(false);
  const [result, setResult] = useState(null);
  const [version, setVersion] = useState(0);
  const act = async (what) => {
    if (isBusy) return;
    setBusy(true);
    setResult(null);
    try {
      const done = what === "changes" ? await api.get("/configuration/changes") : await api.post(`/configuration/${what}`);
      setResult({ text: done.result, changes: done.changes ?? [], caption: what === "changes" ? "What a reload would change" : "Changes" });
      setVersion(version + 1);
    } catch (error) {
      setResult({ error });
    }
    setBusy(false);
  };
  return html`<section aria-labelledby="configuration">
    <h2 id="configuration">Configuration</h2>
    <p class="hint">Change the file on the server, check it, then let the server read it.</p>
    <div class="bar">
      <button type="button" aria-disabled=${isBusy} onClick=${() => act("check")}>Check the file</button>
      <button type="button" aria-disabled=${isBusy} onClick=${() => act("changes")}>Preview a reload</button>
      <button type="button" aria-disabled=${isBusy} onClick=${() => act("reload")}>Reload</button>
    </div>
    <div role="status">
      ${isBusy && html`<p class="loading">Please wait…</p>`}
      ${result?.text && html`<pre class="result"><${Prose} text=${result.text} /></pre>`}
    </div>
    ${result?.changes?.length > 0 && html`<${Changes} changes=${result.changes} caption=${result.caption} />`}
    ${result?.error && html`<${Failure} error=${{ title: result.error.title, message: result.error.message }} />`}
    ${isShown && html`<${Shown} key=${version} />`}
  </section>`;
}

/// What a reload changes, or would change.
function Changes({ changes, caption }) {
  return html`<div class="result"><${Table} caption=${caption} rows=${changes} id=${(change) => change.key} columns=${[
    { name: "Key", is_head: true, class: "mono", cell: (change) => change.key },
    { name: "Change", class: "mono", cell: (change) => changed(change) },
  ]} /></div>`;
}

/// Says in lines how a key changes: `value`, `list`, `added`, `removed`, `changed`.
function changed({ change, before, after, added = [], removed = [] }) {
  if (change === "value") return `${before ?? "none"} → ${after ?? "none"}`;
  if (change !== "list") return change === "changed" ? "changed; not shown" : change;
  if (added.length + removed.length === 0) return "in another order";
  const lines = [...added.map((value) => `added ${value}`), ...removed.map((value) => `removed ${value}`)];
  return lines.map((line) => html`<span class="line" key=${line}>${line}</span>`);
}

/// The configuration in use.
function Shown() {
  const { api } = useServer();
  const poll = usePoll((signal) => api.get("/configuration", signal), [api], 0);
  return html`<details aria-label="Configuration in use">
    <summary>Configuration in use</summary>
    <${Polled} poll=${poll} what="the configuration">
      ${(found) => html`
        <p class="hint">${found.file ? html`From <span class="mono">${found.file}</span>, with the defaults of the other keys.` : "There is no file: every key has its default."} Passwords are left out.</p>
        <pre tabindex="0" class="configuration" aria-label="Configuration in use">${toToml(found.configuration)}</pre>`}
    <//>
  </details>`;
}

function Backup() {
  const { api, tell } = useServer();
  const [isOpen, setOpen] = useState(false);
  const [file, setFile] = useState("");
  const [overwrite, setOverwrite] = useState(false);
  const [done, setDone] = useState(null);
  const open = () => {
    setFile(`strowger-${new Date().toISOString().slice(0, 10)}.db`);
    setOverwrite(false);
    setOpen(true);
  };
  const make = async () => {
    const report = await api.post("/backups", { file: file.trim(), overwrite });
    setDone({ file: file.trim(), ...report });
    setOpen(false);
    tell(`The backup ${file.trim()} is complete.`);
  };
  return html`<section aria-labelledby="backup">
    <h2 id="backup">Backup</h2>
    <p class="hint">Users, gateways, registrations and the key in one file, in the folder <code>backups</code> of the server's data folder. Copy it to another machine.</p>
    <p><button type="button" onClick=${open}>Make a backup</button></p>
    ${done && html`<p><${Lamp} kind="good"><span class="mono">${done.file}</span>: ${count(done.users, "user")}, ${count(done.aliases, "alias", "aliases")},
      ${" "}${count(done.gateways, "gateway")}, registrations of ${count(done.addresses, "address", "addresses")}, ${bytes(done.bytes)}${done.key && ", with the key"}<//></p>`}
    ${done?.damaged > 0 && html`<p><${Lamp} kind="bad">${count(done.damaged, "unreadable row")} could not be copied.<//></p>`}
    ${isOpen && html`<${FormDialog} title="Make a backup" verb="Make" onSubmit=${make} onClose=${() => setOpen(false)}>
      <${Field} label="File" hint="A name without a folder." value=${file} onInput=${setFile} class="mono" required autofocus spellcheck="false" autocapitalize="off" autocomplete="off" />
      <label class="check"><input type="checkbox" checked=${overwrite} onChange=${(event) => setOverwrite(event.currentTarget.checked)} /> Overwrite an existing file</label>
    <//>`}
  </section>`;
}

/// Counters that are not 0, or those that match.
function CounterList({ counters }) {
  const [search, setSearch] = useState("");
  const all = Object.entries(counters).flatMap(([section, values]) => Object.entries(values).map(([name, value]) => ({ name: `${section}.${name}`, value })));
  const rows = all.filter(({ name, value }) => (search === "" ? value !== 0 : name.includes(search.trim().toLowerCase())));
  return html`<section aria-labelledby="counters">
    <h2 id="counters">Counters</h2>
    <div class="bar" role="search">
      <label for="counter">Search</label>
      <input id="counter" type="search" value=${search} placeholder="Those that are not 0" onInput=${(event) => setSearch(event.currentTarget.value)} />
    </div>
    <div class="counters">
      <${Table} caption="Counters since the start" hides_caption rows=${rows} id=${(row) => row.name} columns=${[
        { name: "Counter", is_head: true, class: "mono", cell: (row) => row.name },
        { name: "Value", is_number: true, cell: (row) => number(row.value) },
      ]} />
    </div>
  </section>`;
}
