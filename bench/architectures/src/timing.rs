//! The event-based shell with timestamps around each message. Measures how long each message waits for the thread and
//! how long the thread is busy with it, as in the thesis on evaluating SIP servers (its K_sockq and its service time
//! X).
//!
//! A message arrives at the time of the kernel's timestamp. Its service begins when it has arrived and the message
//! before it is finished; receiving it and waking the thread are part of its service. Waiting is therefore due to
//! other messages only, as in an M/G/1 queue. A thread that polls continuously never needs a wake-up.
//!
//! Messages are received in batches, as `strowger serve` does, because this is the project's only socket that
//! requests timestamps. Each message is then handled and answered individually.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use strowger_net::{BufferSizes, OrderingKey, RecvBatch, SendBatch, UdpSocket};

use crate::say;
use crate::shard_group::{ProcessContext, Setup};
use crate::socket::{Clock, wait};

/// Interval between reports. Short enough that most intervals contain no other activity of the machine.
const TOLD_EVERY: Duration = Duration::from_millis(50);

/// Opens the socket with the default buffer size.
///
/// # Errors
/// If the address is not available.
pub(crate) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    UdpSocket::bind(address, BufferSizes::DEFAULT).map_err(io::Error::other)
}

/// Serves and regularly reports the measurements so far.
///
/// # Errors
/// If the socket cannot be read.
pub(crate) fn serve(setup: &Setup, mut socket: UdpSocket, is_awake: bool, ready: impl FnOnce()) -> io::Result<()> {
    let rules = ProcessContext::new(setup);
    let mut brain = rules.brain(0);
    let clock = Clock::start();
    let (mut received, mut sending) = (RecvBatch::new(), SendBatch::new());
    let mut sums = Sums::default();
    let mut reported = clock.now();
    // When the thread became idle or began the next message.
    let mut free_ns = real_ns();
    ready();
    loop {
        socket.recv(&mut received)?;
        for datagram in received.iter() {
            let arrived_ns = datagram.arrival.map_or(free_ns, |stamp| stamp.0);
            let send = |peer: SocketAddr, bytes: &[u8]| pass_on(&mut socket, &mut sending, peer, bytes);
            brain.handle_datagram(&rules, clock.now(), datagram.peer, datagram.bytes, send);
            let kind = kind_of(datagram.bytes);
            let begun_ns = arrived_ns.max(free_ns);
            // The real-time clock may be set back.
            free_ns = real_ns().max(begun_ns);
            sums.add(kind, begun_ns - arrived_ns, free_ns - begun_ns);
        }
        let now = clock.now();
        if brain.wakeup() <= now {
            brain.handle_timeout(now, |peer, bytes| pass_on(&mut socket, &mut sending, peer, bytes));
            free_ns = real_ns();
        }
        if now >= reported + TOLD_EVERY {
            say(&sums.line());
            reported = now;
            free_ns = real_ns();
        } else if received.is_empty() && !is_awake {
            wait(socket.as_fd(), now, brain.wakeup().min(reported + TOLD_EVERY))?;
        }
    }
}

/// Sends a message immediately. If the kernel rejects it, the message is lost, as it could be in the network.
fn pass_on(socket: &mut UdpSocket, sending: &mut SendBatch, peer: SocketAddr, bytes: &[u8]) {
    sending.next_slot().extend_from_slice(bytes);
    sending.commit(peer, OrderingKey::ALL);
    let _ = socket.send(sending, |_| {});
}

/// Returns the time of the clock that the kernel's timestamps use.
fn real_ns() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Message types that are reported separately: those of a call, REGISTER and the rest.
const KINDS: [&str; 8] = ["INVITE", "180", "200 to INVITE", "ACK", "BYE", "200 to BYE", "REGISTER", "other"];
const OTHER: usize = KINDS.len() - 1;

/// Returns the index of a message's type in [`KINDS`].
fn kind_of(bytes: &[u8]) -> usize {
    let Some(response) = bytes.strip_prefix(b"SIP/2.0 ") else {
        return match bytes.split(|byte| *byte == b' ').next() {
            Some(b"INVITE") => 0,
            Some(b"ACK") => 3,
            Some(b"BYE") => 4,
            Some(b"REGISTER") => 6,
            _ => OTHER,
        };
    };
    match response.get(..3) {
        Some(b"180") => 1,
        Some(b"200") => {
            let line =
                response.split(|byte| *byte == b'\n').find(|line| line.starts_with(b"CSeq:")).unwrap_or_default();
            let line = line.trim_ascii();
            if line.ends_with(b" INVITE") {
                2
            } else if line.ends_with(b" BYE") {
                5
            } else {
                OTHER
            }
        }
        _ => OTHER,
    }
}

/// Measurements per message type.
#[derive(Debug, Default)]
struct Sums([Sum; KINDS.len()]);

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u64,
    wait_ns: u64,
    service_ns: u64,
    /// Sum of the squared service times.
    service_ns2: f64,
}

impl Sums {
    fn add(&mut self, kind: usize, wait_ns: u64, service_ns: u64) {
        if let Some(sum) = self.0.get_mut(kind) {
            sum.count += 1;
            sum.wait_ns += wait_ns;
            sum.service_ns += service_ns;
            sum.service_ns2 += (service_ns as f64).powi(2);
        }
    }

    /// Returns all measurements since the start, and the time, as a line of JSON.
    fn line(&self) -> String {
        let rows = KINDS.iter().zip(&self.0).filter(|(_, sum)| sum.count > 0);
        let rows = rows.map(|(kind, sum)| {
            json!({ "message": kind, "count": sum.count, "wait_ns": sum.wait_ns, "service_ns": sum.service_ns,
                "service_ns2": sum.service_ns2 })
        });
        json!({ "at_ns": real_ns(), "messages": rows.collect::<Vec<Value>>() }).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_a_call_are_classified() {
        let seen = |text: &str| KINDS[kind_of(text.as_bytes())];
        assert_eq!(seen("INVITE sip:a@example.com SIP/2.0\r\nCSeq: 1 INVITE\r\n\r\n"), "INVITE");
        assert_eq!(seen("BYE sip:a@example.com SIP/2.0\r\n\r\n"), "BYE");
        assert_eq!(seen("SIP/2.0 180 Ringing\r\nCSeq: 1 INVITE\r\n\r\n"), "180");
        assert_eq!(seen("SIP/2.0 200 OK\r\nCSeq: 1 INVITE\r\n\r\n"), "200 to INVITE");
        assert_eq!(seen("SIP/2.0 200 OK\r\nVia: x\r\nCSeq: 2 BYE\r\n\r\n"), "200 to BYE");
        assert_eq!(seen("SIP/2.0 200 OK\r\nCSeq: 2 OPTIONS\r\n\r\n"), "other");
        assert_eq!(seen("180 x"), "other");
        assert_eq!(seen(""), "other");
    }

    #[test]
    fn the_line_has_sums_per_received_type() {
        let mut sums = Sums::default();
        for (wait, service) in [(10, 200), (30, 400)] {
            sums.add(kind_of(b"ACK sip:a@example.com SIP/2.0"), wait, service);
        }
        let said: Value = serde_json::from_str(&sums.line()).expect("JSON");
        let expected =
            json!([{ "message": "ACK", "count": 2, "wait_ns": 40, "service_ns": 600, "service_ns2": 200_000.0 }]);
        assert_eq!(said["messages"], expected);
        assert!(said["at_ns"].as_u64().is_some_and(|at| at > 1_600_000_000_000_000_000));
    }
}
