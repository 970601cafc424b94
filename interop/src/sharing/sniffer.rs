//! Captures the requests that arrive at each server, since a server with a shared address cannot tell which one a
//! message was meant for.

use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::wire::{method, parameter, value};
use crate::{Namespace, PATIENCE, poll};

/// The EtherType of IPv4.
const IPV4: u16 = 0x0800;
/// IP protocol numbers.
const TCP: u8 = 6;
const UDP: u8 = 17;

/// A request that arrived at a server.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Index of the server.
    pub server: usize,
    /// Method.
    pub method: String,
    /// Call-ID.
    pub call_id: String,
    /// Branch of the topmost Via, which is the same in a retransmission.
    pub branch: String,
}

/// Timeout of one read.
const TICK: Duration = Duration::from_millis(10);

/// All requests that arrived at the servers, in order.
#[derive(Clone, Debug, Default)]
pub struct Arrivals(Arc<Mutex<ArrivalLog>>);

#[derive(Debug, Default)]
struct ArrivalLog {
    requests: Vec<Arrival>,
    /// Number of reads per sniffer that timed out after [`TICK`].
    idle: Vec<u64>,
}

impl Arrivals {
    /// Returns the requests of one call with this method.
    #[must_use]
    pub fn of(&self, call_id: &str, method: &str) -> Vec<Arrival> {
        let is_so = |arrival: &&Arrival| arrival.call_id == call_id && arrival.method == method;
        self.seen().requests.iter().filter(is_so).cloned().collect()
    }

    /// Returns the server at which the first request of a call with this method arrived.
    #[must_use]
    pub fn first(&self, call_id: &str, method: &str) -> Option<usize> {
        self.of(call_id, method).first().map(|arrival| arrival.server)
    }

    /// Returns the server at which the last request of a call with this method arrived.
    #[must_use]
    pub fn last(&self, call_id: &str, method: &str) -> Option<usize> {
        self.of(call_id, method).last().map(|arrival| arrival.server)
    }

    /// Returns the number of requests with this method.
    #[must_use]
    pub fn count(&self, method: &str) -> usize {
        self.seen().requests.iter().filter(|arrival| arrival.method == method).count()
    }

    /// Waits until everything that has arrived so far is captured.
    ///
    /// # Panics
    /// If packets keep arriving.
    pub fn settle(&self) {
        let before = self.seen().idle.clone();
        let are_idle = || self.seen().idle.iter().zip(&before).all(|(now, before)| now > before);
        assert!(poll(PATIENCE, || are_idle().then_some(())).is_some(), "packets arrive all the time");
    }

    fn seen(&self) -> MutexGuard<'_, ArrivalLog> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, arrival: Arrival) {
        self.seen().requests.push(arrival);
    }
}

/// Captures packets in the network of one server until it is dropped.
#[derive(Debug)]
pub(super) struct Sniffer {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sniffer {
    /// Starts capturing packets for this port that arrive in `network`.
    ///
    /// # Panics
    /// If no packet socket can be opened, which requires root.
    #[must_use]
    pub(super) fn start(network: &Namespace, server: usize, port: u16, arrivals: &Arrivals) -> Sniffer {
        let protocol = Protocol::from(i32::from(IPV4.to_be()));
        let socket = network.inside(|| Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol)));
        let mut socket = socket.expect("root may have a packet socket");
        socket.set_read_timeout(Some(TICK)).expect("a time-out can be set");
        let is_over = Arc::new(AtomicBool::new(false));
        arrivals.seen().idle.resize(server + 1, 0);
        let (over, arrivals) = (Arc::clone(&is_over), arrivals.clone());
        let thread = thread::spawn(move || {
            let mut packet = vec![0; 65_536];
            while !over.load(Ordering::Relaxed) {
                let Ok(length) = socket.read(&mut packet) else {
                    // The read timed out.
                    arrivals.seen().idle[server] += 1;
                    continue;
                };
                let arrival = packet.get(..length).and_then(|packet| read(packet, server, port));
                arrival.into_iter().for_each(|arrival| arrivals.add(arrival));
            }
        });
        Sniffer { is_over, thread: Some(thread) }
    }
}

impl Drop for Sniffer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread's panic has already been printed. A second one here would abort the run.
            let _ = thread.join();
        }
    }
}

/// Returns the SIP request in an IPv4 packet to this port.
fn read(packet: &[u8], server: usize, port: u16) -> Option<Arrival> {
    let header = usize::from(packet.first()? & 0x0f) * 4;
    let transport = packet.get(header..)?;
    if transport.get(2..4)? != port.to_be_bytes() {
        return None;
    }
    let payload = match *packet.get(9)? {
        UDP => transport.get(8..)?,
        TCP => transport.get(usize::from(transport.get(12)? >> 4) * 4..)?,
        _ => return None,
    };
    let text = String::from_utf8_lossy(payload);
    let verb = method(&text);
    let is_request = verb.bytes().all(|byte| byte.is_ascii_uppercase()) && !verb.is_empty();
    is_request.then(|| Arrival {
        server,
        method: verb.to_owned(),
        call_id: value(&text, "Call-ID").to_owned(),
        branch: parameter(value(&text, "Via"), "branch").unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_and_responses_are_not() {
        let text = "BYE sip:a@b SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.1;branch=z9hG4bK-1\r\nCall-ID: x\r\n\r\n";
        let packet = |text: &str| {
            let mut packet = vec![0; 28];
            packet[0] = 0x45;
            packet[9] = UDP;
            packet[22..24].copy_from_slice(&5060_u16.to_be_bytes());
            packet.extend_from_slice(text.as_bytes());
            packet
        };
        let arrival = read(&packet(text), 2, 5060).expect("a request");
        let seen = (arrival.server, &*arrival.method, &*arrival.call_id, &*arrival.branch);
        assert_eq!(seen, (2, "BYE", "x", "z9hG4bK-1"));
        assert!(read(&packet(text), 2, 5061).is_none(), "another port");
        assert!(read(&packet("SIP/2.0 200 OK\r\n\r\n"), 2, 5060).is_none(), "a response");
        assert!(read(&packet(text)[..20], 2, 5060).is_none(), "cut short");
    }
}
