//! Packets for the echo program, and what comes back.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use strowger_net::{BufferSizes, OrderingKey, RecvBatch, SendBatch, UdpSocket};
use strowger_traffic::arrival::Arrivals;

use super::echo::{END_LENGTH, STAMP_BYTES};

/// Length of a packet, bytes: about that of a SIP message.
pub const LENGTH: usize = 500;
/// Longest wait for a packet to come back.
const PATIENCE: Duration = Duration::from_millis(200);

/// A socket that sends packets to the echo program.
pub struct Sender {
    socket: UdpSocket,
    to: SocketAddr,
    out: SendBatch,
    back: RecvBatch,
}

/// Packets that came back, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Returned {
    /// Number of packets.
    pub packets: u64,
    /// Sum of the times from the echo program's stamp in a packet to its arrival here, ns.
    pub sent_ns: u64,
}

impl Sender {
    /// Opens a socket at any port of `from`'s address.
    ///
    /// # Errors
    /// If the address is not available.
    pub fn open(from: SocketAddr, to: SocketAddr) -> io::Result<Self> {
        let socket =
            UdpSocket::bind(SocketAddr::new(from.ip(), 0), BufferSizes::DEFAULT).map_err(|error| error.cause)?;
        Ok(Self { socket, to, out: SendBatch::new(), back: RecvBatch::new() })
    }

    /// Sends a packet that begins with `head`.
    pub fn send(&mut self, head: &[u8], length: usize) {
        let slot = self.out.next_slot();
        slot.extend_from_slice(head);
        slot.resize(length.max(head.len()), b'x');
        self.out.commit(self.to, OrderingKey::ALL);
        // A packet that the kernel refuses is one that does not come back.
        let _ = self.socket.send(&mut self.out, |_| ());
    }

    /// Tells the echo program to end.
    pub fn end(&mut self) {
        self.send(b"", END_LENGTH);
    }

    /// Takes the packets that have come back.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn take(&mut self, mut each: impl FnMut(&[u8], u64)) -> io::Result<usize> {
        self.socket.recv(&mut self.back)?;
        for datagram in self.back.iter() {
            each(datagram.bytes, datagram.arrival.map_or(0, |arrival| arrival.0));
        }
        Ok(self.back.len())
    }

    /// Waits until this many packets have come back, or for a while. Returns those that begin with `head`.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn wait_for(&mut self, count: usize, head: &[u8]) -> io::Result<Returned> {
        let (begun, mut returned, mut all) = (Instant::now(), Returned::default(), 0);
        while all < count && begun.elapsed() < PATIENCE {
            all += self.take(|bytes, arrived_ns| {
                let stamp = bytes.last_chunk::<STAMP_BYTES>().map_or(0, |stamp| u64::from_le_bytes(*stamp));
                if bytes.starts_with(head) {
                    returned.packets += 1;
                    returned.sent_ns += arrived_ns.saturating_sub(stamp);
                }
            })?;
        }
        Ok(returned)
    }

    /// Sends packets with Poisson arrivals for `time` and returns the number sent. `is_late` packets were sent more
    /// than 50 µs after their time.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn poisson(&mut self, rate: f64, time: Duration, seed: u64) -> io::Result<Sent> {
        let begun = Instant::now();
        let (mut sent, limit_ns) = (Sent::default(), time.as_nanos());
        for at in Arrivals::poisson(rate).times(seed, 0, 1).take_while(|at| u128::from(*at) < limit_ns) {
            let due = begun + Duration::from_nanos(at);
            loop {
                let now = Instant::now();
                if now >= due {
                    sent.late += u64::from(now.duration_since(due) > LATE);
                    break;
                }
                if due.duration_since(now) > AHEAD {
                    self.take(|_, _| ())?;
                }
            }
            self.send(b"echo", LENGTH);
            sent.packets += 1;
        }
        Ok(sent)
    }

    /// Keeps this many packets under way for `time` and returns how many came back, per second.
    ///
    /// # Errors
    /// If the socket fails.
    #[expect(clippy::cast_precision_loss, reason = "a count of packets")]
    pub fn closed_loop(&mut self, at_once: usize, time: Duration) -> io::Result<f64> {
        for _ in 0..at_once {
            self.send(b"echo", LENGTH);
        }
        let (begun, mut count, mut last) = (Instant::now(), 0_u64, Instant::now());
        while begun.elapsed() < time {
            let taken = self.take(|_, _| ())?;
            // A lost packet is replaced after a while.
            let again = if taken == 0 && last.elapsed() > PATIENCE { 1 } else { taken };
            if again > 0 {
                last = Instant::now();
            }
            count += taken as u64;
            for _ in 0..again {
                self.send(b"echo", LENGTH);
            }
        }
        Ok(count as f64 / begun.elapsed().as_secs_f64())
    }
}

/// Delay beyond which a packet was late.
const LATE: Duration = Duration::from_micros(50);
/// Time before the next packet that suffices to take what has come back.
const AHEAD: Duration = Duration::from_micros(5);

/// Packets sent at given times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Number of packets.
    pub packets: u64,
    /// Number sent too late.
    pub late: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo() -> (SocketAddr, std::thread::JoinHandle<()>) {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("bound");
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 2_048];
            loop {
                let (length, peer) = socket.recv_from(&mut buffer).expect("loopback");
                if length == END_LENGTH {
                    return;
                }
                socket.send_to(&buffer[..length], peer).expect("loopback");
            }
        });
        (address, thread)
    }

    #[test]
    fn packets_come_back() {
        let (address, thread) = echo();
        let mut sender = Sender::open(address, address).expect("a port");
        sender.send(b"one", LENGTH);
        sender.send(b"two", LENGTH);
        assert_eq!(sender.wait_for(2, b"two").expect("loopback").packets, 1);
        assert!(sender.closed_loop(4, Duration::from_millis(20)).expect("loopback") > 100.0);
        let sent = sender.poisson(10_000.0, Duration::from_millis(100), 1).expect("loopback");
        assert!((700..1_300).contains(&sent.packets), "{sent:?}");
        sender.end();
        thread.join().expect("the end");
    }
}
