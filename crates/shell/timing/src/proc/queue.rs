//! Sampling of the sockets' queues.

use std::collections::BTreeMap;

use super::host::{Host, Program};
use crate::report::{Distribution, MessageReport, QueueDepth, TimingReport};
use crate::target::Protocol;

/// Causes of drops that the network namespace counts: the counter, and what it means.
const CAUSES: [(&str, &str); 3] =
    [("RcvbufErrors", "socket buffer full"), ("MemErrors", "no memory for sockets"), ("InCsumErrors", "bad checksum")];

/// Least memory that the kernel counts for a packet, bytes: its descriptor and the smallest buffer.
const LEAST_PACKET_BYTES: u64 = 512;

/// Samples the queues of a program's sockets.
#[derive(Clone, Debug)]
pub struct QueueSampler {
    host: Host,
    program: Program,
    /// Drops of each socket at the start, and as seen last.
    drops: BTreeMap<u64, (u64, u64)>,
    first: NamespaceCounters,
    datagrams: Queue,
    streams: Queue,
}

/// Counters of the network namespace.
#[derive(Clone, Copy, Debug, Default)]
struct NamespaceCounters {
    datagrams: Option<u64>,
    causes: [Option<u64>; CAUSES.len()],
    listen_drops: Option<u64>,
}

/// Sum over the samples of a queue.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    samples: u64,
    sum_bytes: u64,
    max_bytes: u64,
    /// The smallest queue that was not empty: most likely one packet, if it was also empty.
    least_bytes: Option<u64>,
    was_empty: bool,
    last_bytes: Option<u64>,
    /// The smallest change between two samples: most likely one packet, if the queue was never empty.
    least_change: Option<u64>,
}

impl QueueSampler {
    /// Starts a measurement.
    #[must_use]
    pub fn start(host: &Host, program: &Program) -> Self {
        let mut sampler = Self {
            host: host.clone(),
            program: program.clone(),
            drops: BTreeMap::new(),
            first: NamespaceCounters::default(),
            datagrams: Queue::default(),
            streams: Queue::default(),
        };
        sampler.first = sampler.counters();
        sampler.sample();
        sampler
    }

    /// Looks at the queues. Called at equal intervals, because the mean is over the samples.
    pub fn sample(&mut self) {
        for protocol in [Protocol::Udp, Protocol::Tcp] {
            let own = |inode: u64| {
                self.program.sockets.iter().any(|socket| socket.inode == inode && socket.protocol == protocol)
            };
            if !self.program.sockets.iter().any(|socket| socket.protocol == protocol) {
                continue;
            }
            let rows = self.host.rows(&self.program.pids, protocol);
            let mut bytes = 0;
            for row in rows.iter().filter(|row| own(row.inode)) {
                bytes += row.queue_bytes;
                self.drops.entry(row.inode).or_insert((row.drops, row.drops)).1 = row.drops;
            }
            match protocol {
                Protocol::Udp => self.datagrams.add(bytes),
                Protocol::Tcp => self.streams.add(bytes),
            }
        }
    }

    /// Adds to a report, of which `seconds` is set, what was seen since the start: rate, queue, drops, the estimate of
    /// K_sockq, and notes.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    pub fn fill(&self, report: &mut TimingReport) {
        let seconds = report.seconds;
        report.method = "proc".to_owned();
        let now = self.counters();
        let received = since(self.first.datagrams, now.datagrams);
        report.packets_per_s = if seconds > 0.0 { received as f64 / seconds } else { 0.0 };
        report.all = MessageReport { message: "all".to_owned(), packets: received, ..MessageReport::default() };
        report.drops = self.drops_by_cause(&now);
        report.notes.push(
            "single packets cannot be seen from /proc: message types, K_stack, K_copy, T_sip and K_snd are unknown"
                .to_owned(),
        );
        if self.has(Protocol::Udp) {
            report.notes.push(
                "the rate counts all datagrams that programs of this host (network namespace) received".to_owned(),
            );
        }
        if let Some(queue) = self.datagrams.depth() {
            report.queue = Some(queue);
            if report.packets_per_s > 0.0 {
                let mean_us = queue.mean / report.packets_per_s * 1e6;
                let times = Distribution { count: self.datagrams.samples, mean_us, ..Distribution::default() };
                report.all.parts.insert("k_sockq".to_owned(), times);
                report.notes.push(format!(
                    "K_sockq is an estimate: mean queue / rate (Little's law), from {} samples of the queue's bytes; one \
                     packet is taken as {} bytes, {}",
                    self.datagrams.samples,
                    self.datagrams.packet_bytes().unwrap_or(0),
                    if self.datagrams.was_empty {
                        "the shortest queue seen"
                    } else {
                        "the smallest change of the queue, which was never empty"
                    }
                ));
            }
        } else if self.has(Protocol::Udp) {
            report.notes.push(format!(
                "the queue had {:.0} bytes in all {} samples, so the size of a packet, the number of packets and K_sockq are \
                 unknown: the program does not receive",
                self.datagrams.mean_bytes(),
                self.datagrams.samples
            ));
        }
        if self.streams.sum_bytes > 0 {
            report.notes.push(format!(
                "TCP: mean {:.0} bytes wait to be read, at most {}",
                self.streams.mean_bytes(),
                self.streams.max_bytes
            ));
        }
        if self.program.is_hidden {
            report.notes.push(
                "the program belongs to another user, so its sockets or its threads cannot be seen: run as root"
                    .to_owned(),
            );
        }
    }

    /// Attributes the drops of the sockets to the causes that the namespace counted meanwhile.
    fn drops_by_cause(&self, now: &NamespaceCounters) -> BTreeMap<String, u64> {
        let mut left: u64 = self.drops.values().map(|(first, last)| last.saturating_sub(*first)).sum();
        let mut drops = BTreeMap::new();
        for (index, (name, what)) in CAUSES.iter().enumerate() {
            let own = since(self.first.causes[index], now.causes[index]).min(left);
            left -= own;
            drops.insert(format!("{name} ({what})"), own);
        }
        if left > 0 {
            drops.insert("other causes".to_owned(), left);
        }
        if self.has(Protocol::Tcp) {
            let listen = since(self.first.listen_drops, now.listen_drops);
            drops.insert("ListenDrops (connections, of the whole host)".to_owned(), listen);
        }
        drops.retain(|_, count| *count > 0);
        drops
    }

    fn counters(&self) -> NamespaceCounters {
        let udp = |name: &str| {
            let of = |group: &str, file: &str| self.host.counter(self.pid(), file, group, name);
            of("Udp", "snmp").map(|four| four + self.udp6(name))
        };
        NamespaceCounters {
            datagrams: udp("InDatagrams"),
            causes: CAUSES.map(|(name, _)| udp(name)),
            listen_drops: self.host.counter(self.pid(), "netstat", "TcpExt", "ListenDrops"),
        }
    }

    /// Returns a counter of IPv6, which has a line for each.
    fn udp6(&self, name: &str) -> u64 {
        let file = match self.pid() {
            Some(pid) => self.host.read(&format!("{pid}/net/snmp6")),
            None => self.host.read("net/snmp6"),
        };
        let wanted = format!("Udp6{name}");
        let value = file.lines().find_map(|line| {
            let (own, value) = line.split_once(char::is_whitespace)?;
            (own == wanted).then(|| value.trim().parse().ok())?
        });
        value.unwrap_or(0)
    }

    fn pid(&self) -> Option<u32> {
        self.program.pids.first().copied()
    }

    fn has(&self, protocol: Protocol) -> bool {
        self.program.sockets.iter().any(|socket| socket.protocol == protocol)
    }
}

impl Queue {
    fn add(&mut self, bytes: u64) {
        self.samples += 1;
        self.sum_bytes += bytes;
        self.max_bytes = self.max_bytes.max(bytes);
        self.was_empty |= bytes == 0;
        let change = self.last_bytes.replace(bytes).map_or(0, |last| last.abs_diff(bytes));
        if change > 0 {
            self.least_change = Some(self.least_change.map_or(change, |least| least.min(change)));
        }
        if bytes > 0 {
            self.least_bytes = Some(self.least_bytes.map_or(bytes, |least| least.min(bytes)));
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    fn mean_bytes(&self) -> f64 {
        self.sum_bytes as f64 / self.samples.max(1) as f64
    }

    /// Returns what one packet takes, bytes; `None` if the samples do not show it.
    fn packet_bytes(&self) -> Option<u64> {
        if self.was_empty {
            return Some(self.least_bytes.unwrap_or(1));
        }
        // Packets of several lengths differ by less than a packet.
        self.least_change.map(|change| change.max(LEAST_PACKET_BYTES).min(self.least_bytes.unwrap_or(change)))
    }

    /// Returns the number of packets, if the samples show it.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    fn depth(&self) -> Option<QueueDepth> {
        let packet = self.packet_bytes()?;
        (self.samples > 0)
            .then(|| QueueDepth { mean: self.mean_bytes() / packet as f64, max: self.max_bytes.div_ceil(packet) })
    }
}

fn since(first: Option<u64>, now: Option<u64>) -> u64 {
    now.unwrap_or(0).saturating_sub(first.unwrap_or(0))
}
