// Addresses that are not served.
import { html, useState } from "../html.js";
import { path } from "../api.js";
import { count, span } from "../format.js";
import { Confirm } from "./confirm.js";
import { FormDialog } from "./dialog.js";
import { Choice, Field } from "./field.js";
import { Polled } from "./notice.js";
import { Table } from "./table.js";
import { usePoll } from "../poll.js";
import { useMay, useServer } from "../server.js";

const LIMIT = 500;
/// Durations of a ban: seconds and text.
const FOR = [["600", "10 minutes"], ["3600", "1 hour"], ["86400", "1 day"], ["", "Until it is removed"]];

export function Bans() {
  const { api } = useServer();
  const mayChange = useMay("operator");
  const poll = usePoll((signal) => api.get(`/bans?limit=${LIMIT}`, signal), [api]);
  const [isAdding, setAdding] = useState(false);
  const [removed, setRemoved] = useState(null);
  const columns = [
    { name: "Address", is_head: true, class: "mono address", cell: (ban) => ban.address },
    { name: "Cause", cell: (ban) => (ban.cause === "failures" ? `too many failures; ban number ${ban.number}` : "an operator") },
    { name: "Since", is_number: true, cell: (ban) => span(ban.since_s) },
    { name: "Ends", is_number: true, cell: (ban) => (isEndless(ban) ? "when it is removed" : `in ${span(ban.left_s)}`) },
    mayChange && {
      name: "Change", hides_name: true, class: "acts",
      cell: (ban) => html`<button type="button" onClick=${() => setRemoved(ban)} aria-label=${`Remove the ban of ${ban.address}`}>Remove</button>`,
    },
  ].filter(Boolean);
  return html`<section aria-labelledby="bans">
    <h2 id="bans">Banned addresses</h2>
    <p class="hint">The server drops what they send. It bans an address after too many wrong passwords.</p>
    ${mayChange && html`<div class="bar"><button type="button" onClick=${() => setAdding(true)}>Ban an address</button></div>`}
    <${Polled} poll=${poll} what="bans">
      ${({ bans, more }) => (bans.length === 0
        ? html`<p>No address is banned.</p>`
        : html`
          <${Table} caption="Banned addresses" hides_caption columns=${columns} rows=${bans} id=${(ban) => ban.address} />
          ${more && html`<p class="hint">The latest ${count(LIMIT, "ban")} are shown.</p>`}`)}
    <//>
    ${isAdding && html`<${Add} onClose=${() => setAdding(false)} onAdded=${poll.refresh} />`}
    ${removed && html`<${Remove} ban=${removed} onClose=${() => setRemoved(null)} onRemoved=${poll.refresh} />`}
  </section>`;
}

const isEndless = (ban) => ban.left_s === null || ban.left_s === undefined;

function Add({ onClose, onAdded }) {
  const { api, tell } = useServer();
  const [address, setAddress] = useState("");
  const [time, setTime] = useState(FOR[1][0]);
  const add = async () => {
    const ban = await api.post("/bans", { address: address.trim(), ...(time && { for_s: Number(time) }) });
    onClose();
    tell(`${ban.address} is banned.`);
    onAdded();
  };
  return html`<${FormDialog} title="Ban an address" verb="Ban" is_dangerous onSubmit=${add} onClose=${onClose}>
    <${Field} label="Address" hint="192.0.2.7. Of IPv6, the whole /64 is banned." value=${address} onInput=${setAddress} class="mono" required autofocus
      autocomplete="off" spellcheck="false" autocapitalize="off" />
    <${Choice} label="For" value=${time} onChange=${setTime} options=${FOR} />
    <p class="hint">Phones at this address can neither register nor call, and their connections are closed.</p>
  <//>`;
}

function Remove({ ban, onClose, onRemoved }) {
  const { api, tell } = useServer();
  const remove = async () => {
    await api.delete(path("bans", ban.address));
    onClose();
    tell(`${ban.address} is no longer banned.`);
    onRemoved();
  };
  return html`<${Confirm} title="Remove this ban?" verb="Remove" is_harmless onConfirm=${remove} onClose=${onClose}>
    <p>The server serves <strong class="mono">${ban.address}</strong> again, and forgets its failures.</p>
  <//>`;
}
