// The state of the server at a glance, and the last ten minutes.
import { html } from "../html.js";
import { attention, isDue } from "../attention.js";
import { bytes, count, measured, micros, number, percent, span } from "../format.js";
import { Lamp } from "../parts/lamp.js";
import { Account } from "../parts/account.js";
import { Empty, Loading } from "../parts/notice.js";
import { Plot } from "../parts/plot.js";
import { Table } from "../parts/table.js";
import { link } from "../route.js";
import { useMay, useServer } from "../server.js";
import { linkToAdd } from "./users.js";

export function Overview() {
  const { status, history } = useServer();
  if (!status) return html`<${Loading} what="the status" />`;
  return html`
    <${Lamps} status=${status} />
    <${Attention} status=${status} />
    <${FirstSteps} status=${status} />
    <${Figures} status=${status} history=${history} />
    <${Plots} history=${history} />
    <div class="columns">
      <${Trunks} trunks=${status.trunks ?? []} />
      <${Certificates} certificates=${status.certificates ?? []} />
      <${Listeners} status=${status} />
    </div>`;
}

/// One lamp for each part of the server.
function Lamps({ status }) {
  return html`<ul class="lamps" aria-label="State of the parts">
    ${parts(status).map(([name, kind, text, view]) => html`<li key=${name}>
      <${Lamp} kind=${kind}><b>${view ? html`<a href=${link(view)}>${name}</a>` : name}</b><span class="lamp-text">${text}</span><//>
    </li>`)}
  </ul>`;
}

function parts(status) {
  const { store, cluster, overload, balancers = [], certificates = [], media = [], trunks = [] } = status;
  const registered = trunks.filter((trunk) => trunk.state === "registered").length;
  const alive = cluster?.members.filter((member) => member.alive).length;
  const [inService, targets] = [sum(balancers, "in_service"), sum(balancers, "targets")];
  const up = media.filter((engine) => engine.is_up).length;
  const due = certificates.filter(isDue).length;
  const all = (have, of) => (have === of ? "good" : have === 0 ? "bad" : "warn");
  return [
    ["Server", status.draining ? "warn" : "good", status.draining ? "stopping" : `up ${span(status.uptime_s)}`],
    ["Load", overload?.limiting ? "bad" : "good", overload?.limiting ? `${percent(overload.shed)} refused` : `${percent(highest(status.loads))} at most`],
    store && ["Store", { ok: "good", loading: "busy" }[store.state] ?? "bad", store.state === "ok" ? store.mode : store.state],
    trunks.length > 0 && ["Trunks", all(registered, trunks.length), `${registered} of ${trunks.length} registered`],
    targets > 0 && ["Targets", all(inService, targets), `${inService} of ${targets} in service`, "targets"],
    cluster && ["Members", cluster.trouble ? "bad" : all(alive, cluster.members.length), `${alive} of ${count(cluster.members.length, "other")} alive`, "members"],
    certificates.length > 0 && ["Certificates", due > 0 ? "warn" : "good", due > 0 ? `${due} due` : `${certificates.length} valid`],
    media.length > 0 && ["Media", all(up, media.length), `${up} of ${media.length} up`],
  ].filter(Boolean);
}

const sum = (rows, name) => rows.reduce((total, row) => total + row[name], 0);
const highest = (loads) => Math.max(0, ...(loads ?? []).map((worker) => worker.load));

/// Durations change every second, so only the names of the matters are announced.
function Attention({ status }) {
  const matters = attention(status);
  return html`<section aria-labelledby="attention" class="attention">
    <h2 id="attention">Needs attention</h2>
    ${matters.length === 0 && html`<p><${Lamp} kind="good">Nothing.<//></p>`}
    ${matters.length > 0 && html`<ul>
      ${matters.map((matter, at) => html`<li key=${at}>
        <${Lamp} kind=${matter.kind}><strong>${matter.name}${matter.since}</strong><//>
        <span class="matter">${matter.text}</span>
      </li>`)}
    </ul>`}
    <p class="unseen" role="status">${matters.map((matter) => matter.name).join(". ")}</p>
  </section>`;
}

/// What to do with a new server.
function FirstSteps({ status }) {
  const mayAdd = useMay("administrator");
  if (status.users > 0 || status.registrations > 0 || status.balancers?.length > 0 || status.trunks?.length > 0) return null;
  return html`<${Empty} title="This server has no users yet.">
    ${mayAdd ? html`<a href=${linkToAdd}>Add one</a>` : "An administrator can add one"}, then register a phone with its name, its password, and:
    <${Account} />
  <//>`;
}

function Figures({ status, history }) {
  const last = (values) => values[values.length - 1];
  const perSecond = last(history.calls_per_s);
  const figures = [
    ["Calls in progress", number(last(history.calls)), perSecond === null || perSecond === undefined ? "–" : `${measured(perSecond)} new/s`],
    ["Phones registered", number(status.registrations), `of ${count(status.addresses, "address", "addresses")}`],
    ["Users", number(status.users), "in the database"],
    ["Transactions", number(status.transactions), "in progress"],
    ["Answered", ratio(status), "of all calls since the start"],
  ];
  return html`<dl class="figures">
    ${figures.map(([name, value, more]) => html`<div key=${name}>
      <dt>${name}</dt>
      <dd><span class="figure">${value}</span> <span class="figure-more">${more}</span></dd>
    </div>`)}
  </dl>`;
}

function ratio({ counters }) {
  const { calls = 0, calls_answered = 0 } = counters?.shards ?? {};
  return calls > 0 ? percent(calls_answered / calls) : "–";
}

function Plots({ history }) {
  const { times, latency } = history;
  const loads = history.loadsByWorker();
  const perSecond = (value) => `${measured(value)}/s`;
  const workers = loads.length <= 4
    ? loads.map((values, worker) => ({ name: `Worker ${worker + 1}`, values }))
    : [{ name: "Highest", values: history.loads.map((all) => Math.max(...all)) }, { name: "Mean", values: history.loads.map(mean) }];
  return html`<section aria-labelledby="plots">
    <h2 id="plots">Last ten minutes</h2>
    <p class="hint">Kept in this window since you opened it.</p>
    <div class="plots">
      <${Plot} title="New calls" times=${times} format=${perSecond} series=${[{ name: "Calls", values: history.calls_per_s }]} />
      <${Plot} title="Phones registered" times=${times} format=${measured} series=${[{ name: "Contacts", values: history.registrations }]} />
      <${Plot} title="Load of the workers" times=${times} format=${(value) => `${measured(value)} %`} top=${20} series=${workers} />
      <${Plot} title="Time of a message in the server" times=${latency.times} format=${micros} is_logarithmic why=${history.whyNoTiming ?? undefined} series=${[
        { name: "Work, median", values: latency.p50 },
        { name: "Work, 99th percentile", values: latency.p99 },
        { name: "Wait before it, 99th percentile", values: latency.waiting },
      ]} />
    </div>
  </section>`;
}

const mean = (values) => (values.length === 0 ? null : values.reduce((total, value) => total + value, 0) / values.length);

const TRUNK_LAMPS = { registered: "good", registering: "busy", leaving: "busy", stopped: "off" };

function Trunks({ trunks }) {
  if (trunks.length === 0) return null;
  return html`<${Table} caption="Trunks" id=${(trunk) => trunk.name} rows=${trunks} columns=${[
    { name: "Trunk", is_head: true, cell: (trunk) => trunk.name },
    { name: "State", cell: (trunk) => html`<${Lamp} kind=${TRUNK_LAMPS[trunk.state] ?? "bad"}>${trunk.state} for ${span(trunk.since_s)}<//>` },
    { name: "Expires", cell: (trunk) => (trunk.expires_s === null ? "–" : `in ${span(trunk.expires_s)}`) },
  ]} />`;
}

function Certificates({ certificates }) {
  if (certificates.length === 0) return null;
  const state = ({ expires_days: days }) => (days === null ? ["off", "unknown"] : days < 0 ? ["bad", "expired"] : [isDue({ expires_days: days }) ? "warn" : "good", `in ${count(days, "day")}`]);
  return html`<${Table} caption="Certificates" id=${(certificate) => certificate.file} rows=${certificates} columns=${[
    { name: "File", is_head: true, class: "mono", cell: (certificate) => certificate.file },
    { name: "Domains", class: "mono", cell: (certificate) => certificate.domains.join(", ") || "–" },
    { name: "Expires", cell: (certificate) => html`<${Lamp} kind=${state(certificate)[0]}>${state(certificate)[1]}<//>` },
  ]} />`;
}

function Listeners({ status }) {
  const { disk } = status.store ?? {};
  const facts = [
    ["Listeners", status.listeners.map((listener) => html`<span class="mono line" key=${listener}>${listener}</span>`)],
    ["Domains", status.domains.map((domain) => html`<span class="mono line" key=${domain}>${domain}</span>`)],
    ...(status.media ?? []).map((engine) => ["Media engine", html`<${Lamp} kind=${engine.is_up ? "good" : "bad"}><span class="mono">${engine.address}</span> ${engine.is_up ? "answers" : "does not answer"}<//>`]),
    ["Workers", `${status.workers}, ${sum(status.loads ?? [], "shards")} shards`],
    ...(disk ? [["Journal", `${bytes(disk.journal_bytes)}, commits take ${measured(disk.commit_p50_ms)} ms (99th percentile ${measured(disk.commit_p99_ms)} ms)`]] : []),
  ];
  return html`<section aria-labelledby="server-facts">
    <h2 id="server-facts">Server</h2>
    <dl class="facts">${facts.map(([name, value], index) => html`<div key=${index}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
  </section>`;
}
