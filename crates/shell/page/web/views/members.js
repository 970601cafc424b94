// Members that share registrations, and clusters that users are spread over.
import { html } from "../html.js";
import { count, number, percent, span } from "../format.js";
import { Lamp } from "../parts/lamp.js";
import { Empty, Loading, Polled } from "../parts/notice.js";
import { Table } from "../parts/table.js";
import { usePoll } from "../poll.js";
import { useServer } from "../server.js";

export function Members() {
  const { status, session } = useServer();
  if (!status) return html`<${Loading} what="members" />`;
  return html`
    <section aria-labelledby="sharing">
      <h2 id="sharing">Shared registrations</h2>
      ${status.cluster
        ? html`<${Sharing} cluster=${status.cluster} />`
        : html`<${Empty} title="This server shares no registrations.">A section <code>[cluster]</code> in the configuration lets several servers know each other's phones.<//>`}
    </section>
    <section aria-labelledby="clusters">
      <h2 id="clusters">Clusters of users</h2>
      ${session.has_clusters ? html`<${Clusters} />` : html`<${NoClusters} />`}
    </section>`;
}

function Sharing({ cluster }) {
  const state = cluster.trouble
    ? html`<${Lamp} kind="bad">interrupted for ${span(cluster.trouble_s)}: ${cluster.trouble}<//>`
    : cluster.warm ? html`<${Lamp} kind="good">in step<//>` : html`<${Lamp} kind="busy">reading what the others have<//>`;
  const facts = [
    ["Cluster", cluster.name],
    ["This member", html`number ${cluster.member} at <span class="mono">${cluster.address}</span>`],
    ["State", state],
    cluster.conflict && ["Conflict", html`<${Lamp} kind="bad">${cluster.conflict}<//>`],
    ["Not yet confirmed", count(cluster.waiting, "change")],
    ["Refused for lack of room", number(cluster.refused)],
  ].filter(Boolean);
  return html`
    <dl class="facts">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${cluster.members.length === 0
      ? html`<${Empty} title="No other member is known yet.">It appears here with its first heartbeat.<//>`
      : html`<${Table} caption="Other members" rows=${cluster.members} id=${(member) => member.member} columns=${[
          { name: "Member", is_head: true, cell: (member) => member.member },
          { name: "Address", class: "mono", cell: (member) => member.address },
          { name: "State", cell: (member) => html`<${Lamp} kind=${member.alive ? "good" : "bad"}>${member.alive ? "alive" : "no heartbeat"}<//>` },
          { name: "Changes read", is_number: true, cell: (member) => number(member.read) },
        ]} />`}
    ${cluster.peers.length > 0 && html`<${Table} caption="Peers" rows=${cluster.peers} id=${(peer) => peer.listen} columns=${[
      { name: "Peer", is_head: true, class: "mono", cell: (peer) => peer.listen },
      { name: "Member", is_number: true, cell: (peer) => peer.member ?? "–" },
      { name: "State", cell: (peer) => html`<${Lamp} kind=${peer.alive ? "good" : "bad"}>${peer.alive ? "answers" : "does not answer"}<//>` },
      { name: "Waiting", is_number: true, cell: (peer) => number(peer.waiting) },
      { name: "Dropped", is_number: true, cell: (peer) => number(peer.dropped) },
    ]} />`}`;
}

function Clusters() {
  const { api } = useServer();
  const poll = usePoll((signal) => api.get("/clusters", signal), [api], 5000);
  return html`<${Polled} poll=${poll} what="clusters">
    ${(found) => (found.clusters.length === 0
      ? html`<${NoClusters} />`
      : html`
        <${Table} caption="Clusters" hides_caption rows=${found.clusters} id=${(cluster) => cluster.name} columns=${[
          { name: "Cluster", is_head: true, cell: (cluster) => cluster.name },
          { name: "Members", cell: (cluster) => html`<${Health} cluster=${cluster} />` },
          { name: "Weight", is_number: true, cell: (cluster) => cluster.now.weight },
          { name: "Share of users", is_number: true, cell: (cluster) => percent(cluster.now.share) },
          { name: "Share of requests", is_number: true, cell: (cluster) => percent(cluster.now.load) },
          { name: "Known users", is_number: true, cell: (cluster) => number(cluster.now.users) },
          { name: "Recent calls", is_number: true, cell: (cluster) => number(cluster.now.calls) },
        ]} />
        ${found.moving_s !== null && html`<p><${Lamp} kind="busy">${percent(found.moved)} of the users have moved; all have registered again in ${span(found.moving_s)} at the latest.<//></p>`}`)}
  <//>`;
}

function NoClusters() {
  return html`<${Empty} title="This server spreads no users over clusters.">A first stage does, with <code>[[second_stage]]</code> in its configuration.<//>`;
}

function Health({ cluster: { members, in_service } }) {
  if (in_service === null) return html`<${Lamp} kind="off">${count(members, "member")}, not probed<//>`;
  const kind = in_service === members ? "good" : in_service === 0 ? "bad" : "warn";
  return html`<${Lamp} kind=${kind}>${in_service} of ${members} in service<//>`;
}
