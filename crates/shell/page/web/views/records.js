// Calls that have ended.
import { html, useState } from "../html.js";
import { query } from "../api.js";
import { clock, count, party } from "../format.js";
import { Lamp } from "../parts/lamp.js";
import { Empty, Polled } from "../parts/notice.js";
import { Table } from "../parts/table.js";
import { usePoll } from "../poll.js";
import { useServer } from "../server.js";

const LIMIT = 200;

export function Records() {
  const { api } = useServer();
  const [user, setUser] = useState("");
  const [wanted, setWanted] = useState("");
  // Each question is in the audit log, so nothing is asked by itself.
  const poll = usePoll((signal) => api.get(query("/call-records", { user: wanted, limit: LIMIT }), signal), [api, wanted], 0);
  const search = (event) => {
    event.preventDefault();
    if (user.trim() === wanted) poll.refresh();
    else setWanted(user.trim());
  };
  return html`
    <form class="bar" role="search" onSubmit=${search}>
      <label for="of-user">User</label>
      <input id="of-user" type="search" value=${user} placeholder="alice, or alice@example.com" spellcheck="false" autocapitalize="off"
        onInput=${(event) => setUser(event.currentTarget.value)} />
      <button type="submit">Show</button>
      ${wanted && html`<button type="button" onClick=${() => { setUser(""); setWanted(""); }}>Show all</button>`}
    </form>
    <${Polled} poll=${poll} what="call records">
      ${(found) => (found.calls.length === 0 ? html`<${Nothing} found=${found} user=${wanted} />` : html`
        <p class="hint">${found.more ? `The latest ${count(LIMIT, "call")}` : count(found.calls.length, "call")}, the last to end first. <strong>Show</strong> asks again.</p>
        <${Table} caption=${wanted ? `Calls of ${wanted}` : "Calls that have ended"} hides_caption columns=${COLUMNS} rows=${found.calls}
          id=${(call) => `${call.call_id} ${call.start} ${call.source}`} />`)}
    <//>`;
}

const COLUMNS = [
  { name: "Start", is_head: true, cell: (call) => html`<time datetime=${call.start} title=${call.start}>${local(call.start)}</time>` },
  { name: "Caller", class: "mono party", cell: (call) => html`<span title=${call.caller}>${party(call.caller)}</span>` },
  { name: "Called", class: "mono party", cell: (call) => html`<span title=${call.callee}>${party(call.callee)}</span>` },
  { name: "Talk", is_number: true, cell: (call) => (call.answer ? clock(call.talk_s) : "–") },
  { name: "End", cell: (call) => html`<${Lamp} kind=${call.answer ? "good" : "off"}>${reason(call)}<//>` },
  { name: "Trunk", class: "mono", cell: (call) => call.target_trunk ?? call.source_trunk ?? "–" },
  { name: "From", class: "mono", cell: (call) => call.source.replace(":", " ") },
];

/// Formats a time in the time zone of the browser.
const local = (time) => new Date(time).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });

const reason = (call) => (call.reason === "rejected" && call.status ? `rejected (${call.status})` : call.reason);

function Nothing({ found, user }) {
  if (!found.recorded) {
    return html`<${Empty} title="This server does not record calls.">
      Name a file for the records, <code>[cdr] file = "/var/log/strowger/calls.jsonl"</code>, and reload the configuration.
    <//>`;
  }
  if (user) return html`<${Empty} title="No recorded call is of this user.">Calls before the server's start are in the file or database of call records.<//>`;
  return html`<${Empty} title="No call has ended since the server's start.">Earlier calls are in the file or database of call records.<//>`;
}
