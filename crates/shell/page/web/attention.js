// What needs attention, from a status. Each matter has a cause and a remedy.
import { count, number, percent, span } from "./format.js";

/// Days before its end at which a certificate is due.
export const DUE_DAYS = 21;

/// Returns `{ kind, name, since, text }`, the worst first. `kind` is that of a lamp; `since` is a duration, or empty.
export function attention(status) {
  const matters = [
    ...process(status), ...store(status), ...databases(status), ...sharing(status), ...overload(status), ...outages(status),
    ...trunks(status), ...balancers(status), ...certificates(status), ...media(status), ...bans(status), ...losses(status),
  ];
  return matters.sort((a, b) => (a.kind === "bad" ? 0 : 1) - (b.kind === "bad" ? 0 : 1));
}

const bad = (name, text, seconds) => ({ kind: "bad", name, since: since(seconds), text });
const warn = (name, text, seconds) => ({ kind: "warn", name, since: since(seconds), text });
const since = (seconds) => (seconds === null || seconds === undefined ? "" : ` for ${span(seconds)}`);

function process({ draining }) {
  return draining ? [warn("The server is stopping", "It finishes what is in progress and takes nothing new.")] : [];
}

function store({ store }) {
  if (!store || store.state === "ok") return [];
  if (store.state === "loading") {
    return [warn("Registrations are being loaded", `${percent(store.loading ?? 0)} so far. Until the end, callers of phones not yet loaded get 503.`)];
  }
  const what = store.state === "opening" ? "The store could not be opened yet" : "Registrations cannot be stored";
  return [bad(what, [store.why, store.remedy].filter(Boolean).join(". "), store.failing_s)];
}

function databases({ users_database, calls_database }) {
  const one = (database, what) => (database?.trouble ? [bad(`The database of ${what} cannot be used`, `${database.databases.join(", ")}: ${database.trouble}`, database.trouble_s)] : []);
  return [...one(users_database, "users"), ...one(calls_database, "call records")];
}

function sharing({ cluster }) {
  if (!cluster) return [];
  const silent = cluster.members.filter((member) => !member.alive);
  return [
    ...(cluster.trouble ? [bad("Registrations are not shared", cluster.trouble, cluster.trouble_s)] : []),
    ...(cluster.conflict ? [bad("Members contradict each other", cluster.conflict)] : []),
    ...silent.map((member) => bad(`Member ${member.member} does not answer`, `It sent no heartbeat from ${member.address}. Look whether its server runs.`)),
  ];
}

function overload({ overload, workers }) {
  if (!overload?.limiting) return [];
  return [bad("New work is refused", `${overload.limiting} of ${count(workers, "worker")} limit new work; ${percent(overload.shed)} of new calls are refused. The load exceeds the capacity: add workers or servers.`)];
}

function outages({ outages }) {
  return (outages ?? []).map((outage) => {
    const of = outage.set ? ` of the set ${outage.set}` : outage.trunk ? ` of the trunk ${outage.trunk}` : "";
    const avoided = outage.avoided_s === null ? "" : ` Others are preferred for ${span(outage.avoided_s)}.`;
    const uri = outage.uri ? `${outage.uri} at ${outage.address}` : outage.address;
    return bad(`No answer from a next hop${of}`, `${uri}: ${outage.cause}.${avoided} Look whether it runs and can be reached.`, outage.since_s);
  });
}

function trunks({ trunks }) {
  return (trunks ?? []).filter((trunk) => trunk.state === "failing" || trunk.state === "refused").map((trunk) => {
    const answer = trunk.last_answer ? `The carrier answered ${trunk.last_answer}.` : "The carrier does not answer.";
    const remedy = trunk.state === "refused" ? "Check user and password of this trunk." : `Next attempt in ${span(trunk.next_try_s)}.`;
    return bad(`Trunk ${trunk.name} is not registered`, `${answer} ${remedy}`, trunk.since_s);
  });
}

function balancers({ balancers }) {
  return (balancers ?? []).filter((balancer) => balancer.targets > 0 && balancer.in_service < balancer.targets).map((balancer) => {
    const title = `${number(balancer.targets - balancer.in_service)} of ${count(balancer.targets, "target")} of ${balancer.name} take no calls`;
    return balancer.in_service === 0 ? bad(title, "Calls to this balancer are refused.") : warn(title, "The others carry its calls. See Targets.");
  });
}

export const isDue = (certificate) => certificate.expires_days !== null && certificate.expires_days <= DUE_DAYS;

function certificates({ certificates }) {
  return (certificates ?? []).filter(isDue).map((certificate) => {
    const days = certificate.expires_days;
    const remedy = "Replace the file; the server reads the new one by itself.";
    if (days < 0) return bad("A certificate has expired", `${certificate.file}. ${remedy}`);
    return warn(`A certificate expires in ${count(days, "day")}`, `${certificate.file}. ${remedy}`);
  });
}

function media({ media }) {
  return (media ?? []).filter((engine) => !engine.is_up).map((engine) => bad("A media engine does not answer", `${engine.address}. Look whether rtpengine runs.`));
}

function bans({ counters }) {
  const { banned = 0, suspects = 0, failures = 0 } = counters?.bans ?? {};
  const causes = failures === 0 ? "" : `${count(failures, "authentication")} failed since the start: the log names addresses and users. A phone with an old password needs the new one.`;
  if (banned > 0) return [warn(`${count(banned, "address is", "addresses are")} banned`, `The server drops what comes from there. System shows and removes bans. ${causes}`)];
  return suspects > 0 && failures > 0 ? [warn(`Wrong passwords from ${count(suspects, "address", "addresses")}`, causes)] : [];
}

/// Counters that stay 0 in a healthy server.
function losses({ counters }) {
  const value = (section, name) => counters?.[section]?.[name] ?? 0;
  const panics = value("workers", "panics");
  return panics > 0 ? [bad(`${count(panics, "contained panic")} of this program`, "Please report what the log says.")] : [];
}
