// Balancers and their targets.
import { html, useState } from "../html.js";
import { path } from "../api.js";
import { count, measured, number, percent, span } from "../format.js";
import { Confirm } from "../parts/confirm.js";
import { FormDialog } from "../parts/dialog.js";
import { Choice, Field } from "../parts/field.js";
import { Lamp } from "../parts/lamp.js";
import { Empty, Polled } from "../parts/notice.js";
import { Table } from "../parts/table.js";
import { usePoll } from "../poll.js";
import { useMay, useServer } from "../server.js";

export function Targets() {
  const { api, status } = useServer();
  const poll = usePoll((signal) => api.get("/targets", signal), [api]);
  const mayChange = useMay("administrator");
  const [open, setOpen] = useState(null);
  const close = () => setOpen(null);
  const balancers = status?.balancers ?? [];
  return html`
    ${mayChange && balancers.length > 0 && html`<div class="bar"><button type="button" class="primary" onClick=${() => setOpen({ what: "add" })}>Add a target</button></div>`}
    <p class="unseen" role="status">${(poll.value?.targets ?? []).filter(isDrained).map((target) => `${target.uri} is drained: no calls left.`).join(" ")}</p>
    <${Polled} poll=${poll} what="targets">
      ${({ targets }) => (balancers.length === 0 && targets.length === 0
        ? html`<${Empty} title="This server has no balancer.">A <code>[[balancer]]</code> in the configuration shares calls among several servers.<//>`
        : groups(balancers, targets).map(([name, balancer, own]) => html`<${Group} key=${name} name=${name} balancer=${balancer} targets=${own} onChanged=${poll.refresh} onOpen=${setOpen} />`))}
    <//>
    ${open?.what === "add" && html`<${Add} balancers=${balancers} onClose=${close} onAdded=${poll.refresh} />`}
    ${open?.what === "drain" && html`<${Drain} target=${open.target} onClose=${close} onDone=${poll.refresh} />`}
    ${open?.what === "remove" && html`<${Remove} target=${open.target} onClose=${close} onDone=${poll.refresh} />`}`;
}

/// Returns name, balancer and targets of each set. A reload may have removed the balancer of a target with calls.
function groups(balancers, targets) {
  const names = [...new Set([...balancers.map((one) => one.name), ...targets.map((one) => one.set)])];
  return names.map((name) => [name, balancers.find((one) => one.name === name), targets.filter((one) => one.set === name)]);
}

function Group({ name, balancer, targets, onChanged, onOpen }) {
  const { api, tell } = useServer();
  const mayDrain = useMay("operator");
  const mayChange = useMay("administrator");
  const undrain = (target) => api.post(`${path("targets", target.id)}/undrain`).then(
    () => {
      tell(`${target.uri} gets calls again.`);
      onChanged();
    },
    (error) => tell(`${target.uri}: ${error.message}`),
  );
  const columns = [
    { name: "Target", is_head: true, class: "wide", cell: (target) => html`<span class="mono">${target.uri}</span><span class="hint line">${origin(target)}</span>` },
    { name: "State", cell: (target) => html`<${State} target=${target} />` },
    { name: "Calls", is_number: true, cell: (target) => (target.capacity === null ? number(target.calls) : `${number(target.calls)} of ${number(target.capacity)}`) },
    targets.some((target) => target.weight !== targets[0].weight) && { name: "Weight", is_number: true, cell: (target) => target.weight },
    targets.some((target) => target.priority !== targets[0].priority) && { name: "Priority", is_number: true, cell: (target) => target.priority },
    { name: "First response", is_number: true, cell: (target) => (target.response_time_ms === null ? "–" : `${measured(target.response_time_ms)} ms`) },
    { name: "Failed", is_number: true, cell: (target) => `${number(target.failures)} of ${number(target.requests)}` },
    mayDrain && {
      name: "Change", hides_name: true, class: "acts",
      cell: (target) => html`
        ${target.draining
          ? html`<button type="button" key="undrain" onClick=${() => undrain(target)} aria-label=${`Undrain ${target.uri}`}>Undrain</button>`
          : html`<button type="button" key="drain" onClick=${() => onOpen({ what: "drain", target })} aria-label=${`Drain ${target.uri}`}>Drain</button>`}
        ${mayChange && target.origin !== null && html`<button type="button" onClick=${() => onOpen({ what: "remove", target })} aria-label=${`Remove ${target.uri}`}>Remove</button>`}`,
    },
  ].filter(Boolean);
  const heading = `set-${name}`;
  return html`<section aria-labelledby=${heading}>
    <h2 id=${heading}><span class="mono">${name}</span></h2>
    ${balancer && html`<p class="hint">${balancer.policy}; ${balancer.in_service} of ${count(balancer.targets, "target")} in service, ${count(balancer.calls, "call")}</p>`}
    ${targets.length === 0
      ? html`<${Empty} title="This balancer has no target.">Calls to it are refused. ${mayChange ? "Add a target." : "An administrator can add one."}<//>`
      : html`<${Table} caption=${`Targets of ${name}`} hides_caption columns=${columns} rows=${targets} id=${(target) => target.id} />`}
  </section>`;
}

/// Says what defines a target.
function origin({ origin }) {
  if (origin === null || origin === undefined) return "removed by its source";
  return origin === "operator" ? "added until the next reload" : `from ${origin}`;
}

const isDraining = (target) => target.state === "draining" || target.draining;
const isDrained = (target) => isDraining(target) && target.calls === 0 && target.transactions === 0;

/// Describes a target's state, with the reason if it gets no calls, and the calls left of one that drains.
function State({ target }) {
  const { state, outage, calls, transactions } = target;
  const left = calls > 0 ? `${count(calls, "call")} left` : `${count(transactions, "transaction")} left`;
  if (isDrained(target)) return html`<${Lamp} kind="off">drained: no calls left<//>`;
  if (isDraining(target)) return html`<${Lamp} kind="warn">draining: ${left}<//>`;
  if (state === "down") return html`<${Lamp} kind="bad">down${target.since_s !== null && ` for ${span(target.since_s)}`}<//>`;
  if (state === "disabled" || state === "removed") return html`<${Lamp} kind="off">${state}${state === "removed" && `: ${left}`}<//>`;
  if (outage) return html`<${Lamp} kind="bad">no answer (${outage})<//>`;
  if (target.full) return html`<${Lamp} kind="warn">full<//>`;
  if (state === "slow start") return html`<${Lamp} kind="busy">slow start, ${percent(target.share)}<//>`;
  return html`<${Lamp} kind="good">${state}<//>`;
}

const LASTS = { kept: "This is kept in the database.", "until reload": "This lasts until the next reload of the configuration.", "until restart": "This lasts until the server restarts.", "as before": "Nothing changed." };

function Drain({ target, onClose, onDone }) {
  const { api, tell } = useServer();
  const drain = async () => {
    const done = await api.post(`${path("targets", target.id)}/drain`);
    onClose();
    tell(`${target.uri} gets no new calls. ${count(done.target.calls, "call")} left. ${LASTS[done.lasts] ?? ""}`);
    onDone();
  };
  return html`<${Confirm} title="Drain this target?" verb="Drain" is_harmless onConfirm=${drain} onClose=${onClose}>
    <p><strong class="mono">${target.uri}</strong> gets no new calls. ${count(target.calls, "call")} in progress ${target.calls === 1 ? "goes" : "go"} on; this view shows how many are left.</p>
  <//>`;
}

function Remove({ target, onClose, onDone }) {
  const { api, tell } = useServer();
  const remove = async () => {
    const done = await api.delete(path("targets", target.id));
    onClose();
    tell(`${target.uri} was removed. ${LASTS[done?.lasts] ?? ""}`);
    onDone();
  };
  return html`<${Confirm} title="Remove this target?" verb="Remove" onConfirm=${remove} onClose=${onClose}>
    <p><strong class="mono">${target.uri}</strong> leaves ${target.set}. Calls in progress go on. To take it out for a while, drain it instead.</p>
  <//>`;
}

function Add({ balancers, onClose, onAdded }) {
  const { api, tell } = useServer();
  const [set, setSet] = useState(balancers[0].name);
  const [uri, setUri] = useState("sip:");
  const [weight, setWeight] = useState("1");
  const [priority, setPriority] = useState("0");
  const [capacity, setCapacity] = useState("");
  const add = async () => {
    const limit = capacity === "" ? {} : { capacity: Number(capacity) };
    const done = await api.post("/targets", { set, uri: uri.trim(), weight: Number(weight), priority: Number(priority), ...limit });
    onClose();
    tell(`${uri.trim()} gets calls of ${set}. ${LASTS[done?.lasts] ?? ""}`);
    onAdded();
  };
  return html`<${FormDialog} title="Add a target" verb="Add" onSubmit=${add} onClose=${onClose}>
    <${Choice} label="Balancer" value=${set} onChange=${setSet} options=${balancers.map(({ name }) => [name, name])} />
    <${Field} label="SIP URI" hint="sip:192.0.2.1:5060 or sip:pbx.example.com;transport=tcp" value=${uri} onInput=${setUri} class="mono" required autofocus spellcheck="false" autocapitalize="off" autocomplete="off" />
    <div class="trio">
      <${Field} label="Weight" type="number" min="0" max="65535" required value=${weight} onInput=${setWeight} />
      <${Field} label="Priority" type="number" min="0" max="65535" required value=${priority} onInput=${setPriority} />
      <${Field} label="Most calls" type="number" min="1" value=${capacity} onInput=${setCapacity} placeholder="no limit" />
    </div>
    <p class="hint">Targets with a higher priority number are spares for lower ones.</p>
  <//>`;
}
