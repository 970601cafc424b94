//! Receive buffers, bounded by time: a packet that has waited for longer than its sender's timer is worthless.

use std::time::Duration;

use crate::advice::network::listening_ports;
use crate::apply::Change;
use crate::host::Host;
use crate::place::Place;
use crate::proposal::{Demand, Group, Proposal, Request, Topic};
use crate::target::{Program, Target, UdpSocketState};

const RMEM_MAX: &str = "/proc/sys/net/core/rmem_max";
const RMEM_DEFAULT: &str = "/proc/sys/net/core/rmem_default";
const WMEM_MAX: &str = "/proc/sys/net/core/wmem_max";
const UDP_MEM: &str = "/proc/sys/net/ipv4/udp_mem";
/// Bytes for which Strowger asks, in both directions.
const STROWGER_BYTES: u64 = 4 * 1024 * 1024;
const PAGE_BYTES: u64 = 4_096;
/// A buffer that is this many times too large is worth changing.
const MUCH_TOO_LARGE: u64 = 4;

pub(crate) static RECEIVE_MAX: Topic = Topic {
    name: "rmem-max",
    group: Group::Network,
    title: "largest receive buffer that a program may ask for",
    gain: "lets the server have a buffer for the given rate; drops in bursts end",
    risk: "any program may ask for as much",
    explanation: "A buffer needs room for the packets that arrive while the server does not receive: rate × longest wait \
        worth keeping × kernel memory of a packet (2,304 bytes for one of up to 1,700). The longest wait is half of T1, \
        250 ms, by default (--longest-wait): a request that has waited longer is answered when its sender has sent it \
        again. A larger buffer turns drops into work on dead requests, which is worse (bench/OVERLOAD.md). The kernel \
        doubles what a program asks for, so half of it is needed here.",
};

pub(crate) static RECEIVE_DEFAULT: Topic = Topic {
    name: "rmem-default",
    group: Group::Network,
    title: "receive buffer of programs that ask for none",
    gain: "drops in bursts end, after a restart of the server",
    risk: "each UDP socket of the machine may hold as much",
    explanation: "As rmem-max, for a program that does not set SO_RCVBUF. The kernel does not double this value.",
};

pub(crate) static RECEIVE_BUFFER: Topic = Topic {
    name: "receive-buffer",
    group: Group::Network,
    title: "receive buffer of the server's sockets",
    gain: "thesis, section 6.5: a shorter wait drops less because the buffer fills more slowly; the converse holds for a \
           buffer that is too small for a burst",
    risk: "none within the bound of time",
    explanation: "See rmem-max for the size. Kamailio asks for up to maxbuffer bytes (262,144 by default, which is 524,288 \
        as the kernel counts, or 230 packets); Strowger for 4 MiB, and drops by itself what has waited for too long.",
};

pub(crate) static SEND_MAX: Topic = Topic {
    name: "wmem-max",
    group: Group::Network,
    title: "largest send buffer that a program may ask for",
    gain: "batches of responses leave in one call",
    risk: "any program may ask for as much",
    explanation: "Packets wait in the send buffer until the card has sent them. On a fast network it is nearly empty; \
        Strowger asks for 4 MiB so that a burst of retransmissions fits.",
};

pub(crate) static UDP_MEMORY: Topic = Topic {
    name: "udp-mem",
    group: Group::Network,
    title: "memory of all UDP sockets",
    gain: "no drops from a limit that is in no counter of the socket",
    risk: "memory of the kernel, when all buffers are full",
    explanation: "The kernel drops packets when all UDP sockets together hold more pages than the third value of udp_mem. It \
        must be above the sum of the receive buffers.",
};

pub(crate) static TOPICS: [&Topic; 5] = [&RECEIVE_MAX, &RECEIVE_DEFAULT, &RECEIVE_BUFFER, &SEND_MAX, &UDP_MEMORY];

/// Returns the proposals on buffers.
pub(crate) fn advise(host: &Host, request: &Request) -> Vec<Proposal> {
    let demand = &request.demand;
    let is_ours = request.program == Program::Strowger;
    let requested = if is_ours { demand.requested_bytes().max(STROWGER_BYTES) } else { demand.requested_bytes() };
    let sockets = request.target.as_ref().map(|target| listening(host, target)).unwrap_or_default();
    let mut all = Vec::new();
    let why =
        if is_ours && requested == STROWGER_BYTES { "the server asks for 4 MiB".to_owned() } else { sizes(demand) };
    all.extend(at_least(host, &RECEIVE_MAX, RMEM_MAX, requested).map(|proposal| proposal.because(why)));
    all.extend(default_buffer(host, request, &sockets));
    all.extend(receive_buffer(request, &sockets));
    if is_ours {
        let send = at_least(host, &SEND_MAX, WMEM_MAX, STROWGER_BYTES);
        all.extend(send.map(|proposal| proposal.because("the server asks for 4 MiB")));
    }
    all.extend(udp_memory(host, &sockets, demand));
    all
}

fn sizes(demand: &Demand) -> String {
    let Demand { calls_per_s, longest_wait } = demand;
    format!("{:.0} packets/s ({calls_per_s} calls/s) × {} × 2.3 kB", demand.packets_per_s(), time(*longest_wait))
}

fn time(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds >= 10.0 => format!("{seconds:.0} s"),
        seconds if seconds >= 1.0 => format!("{seconds:.1} s"),
        seconds => format!("{:.0} ms", 1e3 * seconds),
    }
}

/// Returns the sockets on which the server listens, or all if that is not known.
fn listening(host: &Host, target: &Target) -> Vec<UdpSocketState> {
    let ports = listening_ports(host, target);
    let is_listening = |socket: &&UdpSocketState| ports.is_empty() || ports.contains(&socket.port);
    target.sockets.iter().filter(is_listening).copied().collect()
}

fn at_least(host: &Host, topic: &'static Topic, path: &str, wanted: u64) -> Option<Proposal> {
    let current = host.number(path).filter(|current| *current < wanted)?;
    let changes = vec![Change::new(Place::file(path), wanted.to_string())];
    Some(Proposal::new(topic, current.to_string(), wanted.to_string()).by(changes))
}

fn default_buffer(host: &Host, request: &Request, sockets: &[UdpSocketState]) -> Option<Proposal> {
    let current = host.number(RMEM_DEFAULT)?;
    let has_default = |socket: &UdpSocketState| socket.buffer_bytes == Some(current);
    let wanted = request.demand.buffer_bytes();
    if !sockets.iter().any(has_default) || current >= wanted {
        return None;
    }
    let proposal = Proposal::new(&RECEIVE_DEFAULT, current.to_string(), wanted.to_string())
        .because(format!("the server asks for no buffer; {}", sizes(&request.demand)))
        .by(vec![Change::new(Place::file(RMEM_DEFAULT), wanted.to_string())]);
    Some(proposal)
}

fn receive_buffer(request: &Request, sockets: &[UdpSocketState]) -> Option<Proposal> {
    let demand = &request.demand;
    let (wanted, requested) = (demand.buffer_bytes(), demand.requested_bytes());
    let smallest = sockets.iter().filter_map(|socket| socket.buffer_bytes).min()?;
    let drops: u64 = sockets.iter().map(|socket| socket.drops).sum();
    let is_too_small = smallest < wanted;
    let is_too_large = smallest > MUCH_TOO_LARGE * wanted && request.program != Program::Strowger;
    if request.program == Program::Strowger && smallest >= 2 * STROWGER_BYTES || !is_too_small && !is_too_large {
        return None;
    }
    let holds = time(demand.time_of(smallest));
    let reason = match (is_too_large, drops) {
        (true, _) => format!("it holds {holds} of packets: the last are answered too late"),
        (false, 0) => format!("it holds {holds} of packets"),
        (false, _) => format!("it holds {holds} of packets and has dropped {drops}"),
    };
    let how = match request.program {
        Program::Kamailio => format!("maxbuffer={requested} in kamailio.cfg, and restart"),
        Program::OpenSips => format!("maxbuffer={requested} in opensips.cfg, and restart"),
        Program::Strowger => "set rmem-max, and restart the server, which asks for 4 MiB".to_owned(),
        Program::Other => format!("let the program set SO_RCVBUF to {requested}, or set rmem-default, and restart it"),
    };
    let proposal =
        Proposal::new(&RECEIVE_BUFFER, smallest.to_string(), wanted.to_string()).because(reason).by_hand(how);
    Some(proposal)
}

fn udp_memory(host: &Host, sockets: &[UdpSocketState], demand: &Demand) -> Option<Proposal> {
    let text = host.text(UDP_MEM)?;
    let values: Vec<u64> = text.split_whitespace().filter_map(|value| value.parse().ok()).collect();
    let [low, pressure, most] = values[..] else { return None };
    let buffers = sockets.iter().map(|socket| socket.buffer_bytes.unwrap_or(0).max(demand.buffer_bytes()));
    // Other programs have sockets as well.
    let needed = 2 * buffers.sum::<u64>().max(demand.buffer_bytes()) / PAGE_BYTES;
    if needed <= pressure {
        return None;
    }
    let wanted = format!("{}\t{}\t{}", low.max(needed), pressure.max(needed), most.max(2 * needed));
    let proposal = Proposal::new(&UDP_MEMORY, text.replace('\t', " "), wanted.replace('\t', " "))
        .because("the receive buffers together are larger")
        .by(vec![Change::new(Place::file(UDP_MEM), wanted)]);
    Some(proposal)
}
