// A trace by user, Call-ID or address.
import { html, useState } from "../html.js";
import { Choice, Field } from "../parts/field.js";
import { Empty } from "../parts/notice.js";
import { Traced } from "../parts/trace.js";

const KINDS = [
  ["user", "User", "alice, or alice@example.com: in the Request-URI, From, To or P-Asserted-Identity."],
  ["ip", "Address", "192.0.2.1: messages from or to it."],
  ["call_id", "Call-ID", "The whole Call-ID."],
];

export function Trace() {
  const [kind, setKind] = useState("user");
  const [value, setValue] = useState("");
  const [run, setRun] = useState({ filter: null, number: 0, isStopped: false });
  const start = (event) => {
    event.preventDefault();
    if (value.trim() !== "") setRun({ filter: { [kind]: value.trim() }, number: run.number + 1, isStopped: false });
  };
  const [, , hint] = KINDS.find(([name]) => name === kind);
  return html`
    <p class="lead">Shows messages of calls and registrations as they pass. The server masks passwords and media keys.</p>
    <form class="form-row" onSubmit=${start}>
      <${Choice} label="Select by" value=${kind} onChange=${setKind} options=${KINDS.map(([name, text]) => [name, text])} />
      <${Field} label="Value" hint=${hint} value=${value} onInput=${setValue} class="mono" required spellcheck="false" autocapitalize="off" autocomplete="off" />
      <div class="form-acts">
        <button type="submit" class="primary">Start</button>
        ${run.filter && !run.isStopped && html`<button type="button" onClick=${() => setRun({ ...run, isStopped: true })}>Stop</button>`}
      </div>
    </form>
    ${run.filter
      ? html`<${Traced} filter=${run.filter} is_stopped=${run.isStopped} key=${run.number}><${Empty} title="No message yet.">Make a call, or wait for the next message.<//><//>`
      : html`<${Empty} title="No trace runs.">Select a user, address or call and start. A trace runs as long as this view is open, for ten minutes at most.<//>`}`;
}
