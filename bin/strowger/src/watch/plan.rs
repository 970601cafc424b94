//! Converts the configuration for the watcher.

use std::net::IpAddr;
use std::time::Duration;

use strowger_control::config::values::ListenAddress;
use strowger_control::config::{Watch, WatchedRecord};
use strowger_watch::{Entry, Kind, Plan, RecordData, RecordSet, Server, Transport};

/// Delay before a retry after the name server did not answer, or refused.
const RETRY: Duration = Duration::from_secs(5);

/// Returns the servers and record sets of `watch`, without duplicates.
pub(super) fn of(watch: &Watch) -> Plan {
    let mut plan = Plan {
        servers: Vec::new(),
        sets: Vec::new(),
        probe: watch.probe.to_balancer(),
        refresh: watch.refresh.0,
        retry: RETRY.min(watch.refresh.0),
    };
    let ttl_s = u32::try_from(watch.ttl.0.as_secs()).unwrap_or(u32::MAX);
    for record in &watch.records {
        let Some(place) = record.probed_at() else { continue };
        let server = Some(server(&mut plan, place));
        if let Some((kind, data)) = data(record) {
            set(&mut plan, &record.name.0, kind, ttl_s).entries.push(Entry { data, server });
        }
    }
    for record in &watch.records {
        let (Some(target), Some(address)) = (&record.target, record.address) else { continue };
        if target.is_in(&watch.zone) {
            let (kind, data) = (kind_of(address), RecordData::Address(address));
            let set = set(&mut plan, &target.0, kind, ttl_s);
            // A host may have several ports, and its own address record too.
            if set.entries.iter().all(|entry| entry.data != data) {
                set.entries.push(Entry { data, server: None });
            }
        }
    }
    plan
}

/// Returns the server's index in the plan.
fn server(plan: &mut Plan, ListenAddress { transport, address }: ListenAddress) -> usize {
    let transport = match transport {
        strowger_foundation::Transport::Udp => Transport::Udp,
        _ => Transport::Tcp,
    };
    let server = Server { transport, address };
    plan.servers.iter().position(|known| *known == server).unwrap_or_else(|| {
        plan.servers.push(server);
        plan.servers.len() - 1
    })
}

/// Returns the type and data of the record itself.
fn data(record: &WatchedRecord) -> Option<(Kind, RecordData)> {
    let WatchedRecord { target, port, priority, weight, address, .. } = record;
    match target {
        Some(target) => {
            let (priority, weight, port, target) = (*priority, *weight, *port, target.0.clone());
            Some((Kind::Srv, RecordData::Service { priority, weight, port, target }))
        }
        None => address.map(|address| (kind_of(address), RecordData::Address(address))),
    }
}

const fn kind_of(address: IpAddr) -> Kind {
    if address.is_ipv4() { Kind::A } else { Kind::Aaaa }
}

/// Returns the set of this name and type, creating it if necessary.
fn set<'a>(plan: &'a mut Plan, name: &str, kind: Kind, ttl_s: u32) -> &'a mut RecordSet {
    let place = plan.sets.iter().position(|set| set.name == name && set.kind == kind).unwrap_or_else(|| {
        plan.sets.push(RecordSet { name: name.to_owned(), kind, ttl_s, entries: Vec::new() });
        plan.sets.len() - 1
    });
    &mut plan.sets[place]
}

#[cfg(test)]
mod tests {
    use strowger_control::config::Config;

    use super::*;

    #[test]
    fn each_server_and_record_set_appears_once() {
        let text = r#"
[watch]
server = "192.0.2.53"
zone = "example.com"
key_file = "key"
ttl = "10s"
record = [
  { name = "_sip._udp.example.com", target = "s1.example.com", address = "192.0.2.1" },
  { name = "_sip._udp.example.com", target = "s2.example.com", address = "2001:db8::2", port = 5070, priority = 1, weight = 5 },
  { name = "_sip._tcp.example.com", target = "s1.example.com", address = "192.0.2.1" },
  { name = "example.com", address = "192.0.2.1" },
  { name = "_sip._udp.example.com", target = "elsewhere.example.net", probe = "udp:192.0.2.3:5060" },
]
"#;
        let config = Config::parse(text).unwrap_or_else(|error| panic!("{error}"));
        let plan = of(&config.watch.expect("it is there"));
        let servers: Vec<String> = plan.servers.iter().map(ToString::to_string).collect();
        let expected = ["udp:192.0.2.1:5060", "udp:[2001:db8::2]:5070", "tcp:192.0.2.1:5060", "udp:192.0.2.3:5060"];
        assert_eq!(servers, expected);
        let entries = |set: &RecordSet| {
            let shown = set.entries.iter().map(|entry| format!("{} of {:?}", entry.data, entry.server));
            format!("{set} {}: {}", set.ttl_s, shown.collect::<Vec<_>>().join(", "))
        };
        let sets: Vec<String> = plan.sets.iter().map(entries).collect();
        let expected = [
            "_sip._udp.example.com SRV 10: 0 1 5060 s1.example.com of Some(0), 1 5 5070 s2.example.com of Some(1), 0 1 5060 \
             elsewhere.example.net of Some(3)",
            "_sip._tcp.example.com SRV 10: 0 1 5060 s1.example.com of Some(2)",
            "example.com A 10: 192.0.2.1 of Some(0)",
            "s1.example.com A 10: 192.0.2.1 of None",
            "s2.example.com AAAA 10: 2001:db8::2 of None",
        ];
        assert_eq!(sets, expected);
    }
}
