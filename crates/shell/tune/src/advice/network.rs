//! From the network card to the socket: sharing of the work among cores, queues, connection tracking.

use std::collections::BTreeSet;

use crate::apply::Change;
use crate::cores::Cores;
use crate::host::Host;
use crate::place::Place;
use crate::proposal::{Group, Proposal, Request, Topic};
use crate::target::{Program, Target};

const BACKLOG_FILE: &str = "/proc/sys/net/core/netdev_max_backlog";
const BUSY_READ_FILE: &str = "/proc/sys/net/core/busy_read";
const BUSY_POLL_FILE: &str = "/proc/sys/net/core/busy_poll";
const PORTS_FILE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// Time of a poll of the device, in microseconds.
const BUSY_READ_US: u64 = 50;
/// Time for which the backlog of a core holds packets, in seconds.
const BACKLOG_S: f64 = 0.05;
/// Length that is proposed where packets have been dropped.
const LONG_BACKLOG: u64 = 4_096;
const SIP_PORT: u16 = 5_060;

pub(crate) static BACKLOG: Topic = Topic {
    name: "backlog",
    group: Group::Network,
    title: "queue between the network card and the network stack of a core",
    gain: "no drops before the socket in bursts; they are in no counter of the server",
    risk: "up to as many packets wait longer, and memory for them",
    explanation: "Packets of the loopback device, of other namespaces and those that RPS sends to another core wait in \
        netdev_max_backlog. /proc/net/softnet_stat counts what did not fit (second column). The proposed length holds 50 ms \
        of the given rate, and at least 4,096 packets where some have been dropped.",
};

pub(crate) static RPS: Topic = Topic {
    name: "rps",
    group: Group::Network,
    title: "network stack on more cores than the card has queues",
    gain: "shares K_stack among cores when one is full; at the rates of most SIP servers nothing",
    risk: "each packet costs an interrupt of another core; latency rises at low load",
    explanation: "A card with one queue interrupts one core, which runs the network stack for all packets. Receive packet \
        steering (rps_cpus) lets it hand packets to other cores by a hash of their addresses. It is worth trying only if \
        that core has run out of time (third column of /proc/net/softnet_stat).",
};

pub(crate) static BUSY_POLL: Topic = Topic {
    name: "busy-poll",
    group: Group::Network,
    title: "polling of the network card by a receiving program",
    gain: "saves the interrupt and the wake-up, 5 to 50 µs of each packet at low load, on cards that support it",
    risk: "a thread that waits occupies its core for 50 µs; no effect on loopback, bridges and most containers",
    explanation: "With net.core.busy_read a blocking receive polls the card's queue before it sleeps, with net.core.busy_poll \
        also poll and epoll do. Strowger polls its sockets by itself, within a budget (server.spin, 10 µs by default, or \
        always); the wake-up is saved in the same way, on any device.",
};

pub(crate) static CONNTRACK: Topic = Topic {
    name: "conntrack",
    group: Group::Network,
    title: "connection tracking of SIP packets",
    gain: "saves a table entry and two look-ups of each packet, and drops when the table is full",
    risk: "rules that match the state of connections (ct state, -m state) must accept SIP before; NAT of these packets ends",
    explanation: "When a firewall tracks connections, each UDP packet is looked up by its addresses, and a new phone makes a \
        new entry for 30 to 120 s. A full table (nf_conntrack_max) drops packets of new phones. A proxy needs none of it: \
        exempt its ports (notrack) in the raw hook.",
};

pub(crate) static PORTS: Topic = Topic {
    name: "ports",
    group: Group::Network,
    title: "ports for connections and sockets that programs open",
    gain: "more simultaneous connections to one address: for TCP gateways, and for load generators",
    risk: "a program that listens on a port in the range may find it taken",
    explanation: "Each TCP connection to one address and port needs a local port of its own. The default range has 28,232.",
};

pub(crate) static GRO: Topic = Topic {
    name: "gro",
    group: Group::Network,
    title: "segmentation and coalescing of UDP (GSO, GRO)",
    gain: "nothing to set on the host: bench/RESULTS.md shows what server.segmentation gains",
    risk: "none",
    explanation: "Strowger hands messages of equal length for one peer to the kernel at once (UDP_SEGMENT, \
        server.segmentation, on by default), which needs no setting of the host. Receiving coalesced packets (UDP_GRO) \
        would need senders that send so; phones do not. Kamailio uses neither.",
};

pub(crate) static RP_FILTER: Topic = Topic {
    name: "rp-filter",
    group: Group::Network,
    title: "check of source addresses",
    gain: "none worth having",
    risk: "spoofed packets would be accepted",
    explanation: "net.ipv4.conf.*.rp_filter looks up the route back to the sender of each packet. Turning it off saves well \
        under a microsecond and opens the host for spoofed sources, so it is never proposed.",
};

pub(crate) static TOPICS: [&Topic; 7] = [&BACKLOG, &RPS, &BUSY_POLL, &CONNTRACK, &PORTS, &GRO, &RP_FILTER];

/// Returns the proposals on the network.
pub(crate) fn advise(host: &Host, request: &Request) -> Vec<Proposal> {
    let load = SoftnetLoad::read(host);
    let mut all = Vec::new();
    all.extend(backlog(host, request, load));
    all.extend(rps(host, load));
    all.extend(busy_poll(host, request));
    all.extend(conntrack(host, request));
    all.extend(ports(host));
    all
}

/// Sums of `/proc/net/softnet_stat` over all cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SoftnetLoad {
    dropped: u64,
    /// How often a core had packets left when its time was over.
    squeezed: u64,
}

impl SoftnetLoad {
    fn read(host: &Host) -> Self {
        let text = host.text("/proc/net/softnet_stat").unwrap_or_default();
        let field =
            |line: &str, at| line.split_whitespace().nth(at).and_then(|word| u64::from_str_radix(word, 16).ok());
        let sum = |at| text.lines().filter_map(|line| field(line, at)).sum();
        Self { dropped: sum(1), squeezed: sum(2) }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive number of packets")]
fn backlog(host: &Host, request: &Request, load: SoftnetLoad) -> Option<Proposal> {
    let current = host.number(BACKLOG_FILE)?;
    let needed = ((request.demand.packets_per_s() * BACKLOG_S) as u64).next_power_of_two();
    // The count is since boot, so it says only that the default is too small.
    let dropped_here = if load.dropped > 0 { LONG_BACKLOG } else { 0 };
    let wanted = needed.max(dropped_here);
    if wanted <= current {
        return None;
    }
    let reason = match load.dropped {
        0 => format!("50 ms of {:.0} packets/s do not fit", request.demand.packets_per_s()),
        dropped => format!("{dropped} packets were dropped here"),
    };
    let proposal = Proposal::new(&BACKLOG, current.to_string(), wanted.to_string())
        .because(reason)
        .by(vec![Change::new(Place::file(BACKLOG_FILE), wanted.to_string())]);
    Some(proposal)
}

fn rps(host: &Host, load: SoftnetLoad) -> Option<Proposal> {
    let cores: Cores = host.text("/sys/devices/system/cpu/online")?.parse().ok()?;
    let mut changes = Vec::new();
    let mut current = String::new();
    for card in host.list("/sys/class/net") {
        if !host.has(&format!("/sys/class/net/{card}/device")) {
            continue;
        }
        let folder = format!("/sys/class/net/{card}/queues");
        let queues: Vec<String> = host.list(&folder).into_iter().filter(|name| name.starts_with("rx-")).collect();
        if queues.len() >= cores.len() {
            continue;
        }
        for queue in queues {
            let path = format!("{folder}/{queue}/rps_cpus");
            let Some(text) = host.text(&path) else { continue };
            if Cores::from_mask(&text).is_some_and(|set| set.is_empty()) {
                let mask = cores.mask_like(&text);
                current = text;
                changes.push(Change::new(Place::file(path), mask));
            }
        }
    }
    if changes.is_empty() {
        return None;
    }
    let proposal = Proposal::new(&RPS, current, cores.mask()).by(changes);
    Some(match load.squeezed {
        0 => proposal.because("fewer queues than cores, but no core is short of time").optional(),
        times => proposal.because(format!("a core ran out of time {times} times")).optional(),
    })
}

fn busy_poll(host: &Host, request: &Request) -> Option<Proposal> {
    let files = [BUSY_READ_FILE, BUSY_POLL_FILE];
    let off = files.into_iter().filter(|file| host.number(file) == Some(0));
    let changes: Vec<Change> = off.map(|file| Change::new(Place::file(file), BUSY_READ_US.to_string())).collect();
    if changes.is_empty() {
        return None;
    }
    let proposal = Proposal::new(&BUSY_POLL, "0", format!("{BUSY_READ_US} µs")).optional();
    Some(match request.program {
        Program::Strowger => proposal
            .because("the server polls by itself")
            .by_hand("server.spin = \"50us\", or \"always\" on cores of its own"),
        Program::Kamailio | Program::OpenSips | Program::Other => {
            proposal.because("only for cards that can be polled, at low load").by(changes)
        }
    })
}

/// Returns the ports on which a server listens: those outside the range from which the kernel assigns ports.
pub(crate) fn listening_ports(host: &Host, target: &Target) -> BTreeSet<u16> {
    let range = host.text(PORTS_FILE).unwrap_or_default();
    let mut ends = range.split_whitespace().filter_map(|end| end.parse::<u16>().ok());
    let (first, last) = (ends.next().unwrap_or(32_768), ends.next().unwrap_or(60_999));
    target.sockets.iter().map(|socket| socket.port).filter(|port| !(first..=last).contains(port)).collect()
}

fn conntrack(host: &Host, request: &Request) -> Option<Proposal> {
    let folder = "/proc/sys/net/netfilter";
    let count = host.number(&format!("{folder}/nf_conntrack_count"))?;
    let most = host.number(&format!("{folder}/nf_conntrack_max"))?;
    // Without rules that need it, the module is loaded but tracks nothing.
    if count == 0 {
        return None;
    }
    let ports = request.target.as_ref().map(|target| listening_ports(host, target)).unwrap_or_default();
    let ports = if ports.is_empty() { BTreeSet::from([SIP_PORT]) } else { ports };
    let ports = ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    let rules = format!(
        "nft 'add table inet sip; add chain inet sip in {{ type filter hook prerouting priority raw; }}; \
         add chain inet sip out {{ type filter hook output priority raw; }}; \
         add rule inet sip in udp dport {{ {ports} }} notrack; add rule inet sip out udp sport {{ {ports} }} notrack'"
    );
    let proposal = Proposal::new(&CONNTRACK, format!("{count} of {most}"), "notrack")
        .because("a proxy needs no connection tracking");
    let proposal = if count.saturating_mul(2) > most { proposal } else { proposal.optional() };
    Some(proposal.by_hand(rules))
}

fn ports(host: &Host) -> Option<Proposal> {
    let text = host.text(PORTS_FILE)?;
    let mut ends = text.split_whitespace().filter_map(|end| end.parse::<u32>().ok());
    let (first, last) = (ends.next()?, ends.next()?);
    if last.saturating_sub(first) >= 40_000 {
        return None;
    }
    let proposal = Proposal::new(&PORTS, format!("{first} to {last}"), "16384 to 65535")
        .because("only for many TCP connections to one address")
        .optional()
        .by(vec![Change::new(Place::file(PORTS_FILE), "16384\t65535")]);
    Some(proposal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn softnet_counters_are_summed() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(folder.path().join("proc/net")).expect("a folder");
        let text = "0000ffff 00000010 00000003 0\n00000001 00000001 0000000f 0\n";
        std::fs::write(folder.path().join("proc/net/softnet_stat"), text).expect("written");
        assert_eq!(SoftnetLoad::read(&Host::below(folder.path())), SoftnetLoad { dropped: 17, squeezed: 18 });
    }
}
