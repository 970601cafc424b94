// Who has failed to log in recently.
import { html } from "../html.js";
import { count, number, span } from "../format.js";
import { Lamp } from "./lamp.js";
import { Polled } from "./notice.js";
import { Table } from "./table.js";
import { usePoll } from "../poll.js";
import { useServer } from "../server.js";

const LIMIT = 200;
/// What happened, in words.
const EVENTS = {
  "wrong-password": "wrong password",
  "unknown-user": "unknown user",
  scanner: "scanner",
  "admin-token": "wrong token of this page or the API",
};

export function Failures() {
  const { api } = useServer();
  const poll = usePoll((signal) => api.get(`/failures?limit=${LIMIT}`, signal), [api]);
  const columns = [
    { name: "Address", is_head: true, class: "mono address", cell: (one) => `${one.transport} ${one.address}` },
    { name: "What", cell: (one) => EVENTS[one.event] ?? one.event },
    { name: "User", class: "mono", cell: (one) => one.user ?? "–" },
    { name: "Times", is_number: true, cell: (one) => number(one.count) },
    { name: "Last", is_number: true, cell: (one) => `${span(one.last_s)} ago` },
    { name: "Ban", cell: (one) => html`<${Consequence} failure=${one} />` },
  ];
  return html`<section aria-labelledby="failures">
    <h2 id="failures">Failed log-ins</h2>
    <p class="hint">Since the server's start. The address of a datagram may be forged: only proven ones count towards a ban.</p>
    <${Polled} poll=${poll} what="failures">
      ${({ failures, more }) => (failures.length === 0
        ? html`<p>Nobody has failed to log in.</p>`
        : html`
          <${Table} caption="Failed log-ins" hides_caption columns=${columns} rows=${failures} id=${(one) => `${one.event} ${one.address} ${one.user ?? ""}`} />
          ${more && html`<p class="hint">The latest ${count(LIMIT, "entry", "entries")} are shown.</p>`}`)}
    <//>
  </section>`;
}

function Consequence({ failure }) {
  if (failure.exempt) return html`<${Lamp} kind="off">never banned<//>`;
  return failure.proven ? html`<${Lamp} kind="warn">counts<//>` : html`<${Lamp} kind="off">unproven<//>`;
}
