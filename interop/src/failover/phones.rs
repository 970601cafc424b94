//! Phones that answer every INVITE at once. They share one UDP socket, or have two registered connections each.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::clients;
use crate::machine::Machine;
use crate::wire::{method, status, tag, value, values};

/// Receive timeout after which a thread checks whether to end.
const TICK: Duration = Duration::from_millis(50);
/// Time allowed for a flow's REGISTER.
const PATIENCE: Duration = Duration::from_secs(10);
/// Address that a phone behind NAT puts into its messages.
const BEHIND_A_TRANSLATION: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(10, 99, 0, 2), 5060));

/// Answering phones, run by separate threads.
#[derive(Debug)]
pub struct Phones {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Phones {
    /// Creates phones on one UDP socket of this machine. They do not register themselves.
    ///
    /// # Panics
    /// If there is no free port.
    #[must_use]
    pub fn on(machine: &Machine) -> Phones {
        Phones::answering(machine.socket())
    }

    /// Creates and registers a phone that appears to a server as if behind NAT: its Via and Contact contain an
    /// unreachable address, and it is reached only at the source address of its REGISTER.
    ///
    /// # Panics
    /// If there is no free port, or its REGISTER is not answered with 200.
    #[must_use]
    pub fn translated(machine: &Machine, user: &str, server: SocketAddr) -> Phones {
        let socket = machine.socket();
        clients::register_from(&socket, server, user, BEHIND_A_TRANSLATION, BEHIND_A_TRANSLATION);
        Phones::answering(socket)
    }

    fn answering(socket: UdpSocket) -> Phones {
        socket.set_read_timeout(Some(TICK)).expect("a sound socket");
        let address = socket.local_addr().expect("a bound socket has an address");
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || answer_datagrams(&socket, address, &over));
        Phones { address, is_over, threads: vec![thread] }
    }

    /// Creates phones with one connection to each of these servers, under the same instance ID and with different
    /// `reg-id` values (RFC 5626 §4.2).
    ///
    /// # Panics
    /// If a connection cannot be opened or a REGISTER is not answered with 200.
    #[must_use]
    pub fn by_flows(machine: &Machine, users: &[String], servers: &[SocketAddr]) -> Phones {
        let address = machine.socket().local_addr().expect("a bound socket has an address");
        let is_over = Arc::new(AtomicBool::new(false));
        let flows = users.iter().enumerate().flat_map(|(number, user)| {
            let flow = move |(reg_id, server): (usize, &SocketAddr)| (number, user.as_str(), reg_id + 1, *server);
            servers.iter().enumerate().map(flow)
        });
        let begin = |(number, user, reg_id, server): (usize, &str, usize, SocketAddr)| {
            let mut flow = Flow::open(machine, server);
            flow.register(number, user, reg_id);
            let over = Arc::clone(&is_over);
            thread::spawn(move || flow.answer_until(&over))
        };
        let threads = flows.map(begin).collect();
        Phones { address, is_over, threads }
    }

    /// Returns the contact address of the phones.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Phones {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The thread's panic has already been printed. A second one here would abort the test run.
            let _ = thread.join();
        }
    }
}

fn answer_datagrams(socket: &UdpSocket, own: SocketAddr, is_over: &AtomicBool) {
    let mut buffer = [0; 8_192];
    while !is_over.load(Ordering::Relaxed) {
        // Errors are the timeout, or an ICMP error for an earlier datagram.
        let Ok((length, source)) = socket.recv_from(&mut buffer) else { continue };
        if let Some(answer) = answer(&String::from_utf8_lossy(&buffer[..length]), own) {
            // The receiver may be gone: the tests are about that.
            let _ = socket.send_to(answer.as_bytes(), source);
        }
    }
}

/// Returns the response to a request, or `None` if it gets none.
fn answer(request: &str, own: SocketAddr) -> Option<String> {
    if matches!(method(request), "SIP/2.0" | "ACK") {
        return None;
    }
    let mut text = "SIP/2.0 200 OK\r\n".to_owned();
    for name in ["Via", "Record-Route", "From", "To", "Call-ID", "CSeq"] {
        for value in values(request, name) {
            let is_new = name == "To" && tag(request, "To").is_empty();
            // Writing to a String cannot fail.
            let _ = write!(text, "{name}: {value}{}\r\n", if is_new { ";tag=phone" } else { "" });
        }
    }
    Some(text + &format!("Contact: <sip:phone@{own}>\r\nContent-Length: 0\r\n\r\n"))
}

/// A phone's connection to one server.
#[derive(Debug)]
struct Flow {
    stream: TcpStream,
    own: SocketAddr,
    received: Vec<u8>,
}

impl Flow {
    fn open(machine: &Machine, server: SocketAddr) -> Flow {
        let stream = machine.inside(|| TcpStream::connect_timeout(&server, PATIENCE).expect("the server listens"));
        stream.set_read_timeout(Some(TICK)).expect("a sound socket");
        let own = stream.local_addr().expect("a connection has an address");
        Flow { stream, own, received: Vec::new() }
    }

    fn register(&mut self, number: usize, user: &str, reg_id: usize) {
        let own = self.own;
        let request = format!(
            "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/TCP {own};branch=z9hG4bK-{user}-{reg_id}\r\nMax-Forwards: 70\r\n\
             From: <sip:{user}@example.com>;tag=1\r\nTo: <sip:{user}@example.com>\r\nCall-ID: {user}-{reg_id}\r\n\
             CSeq: 1 REGISTER\r\nSupported: path, outbound\r\nContact: <sip:{user}@{own};transport=tcp>;reg-id={reg_id};\
             +sip.instance=\"<urn:uuid:00000000-0000-1000-8000-{number:012}>\"\r\nExpires: 3600\r\nContent-Length: 0\r\n\r\n"
        );
        self.stream.write_all(request.as_bytes()).expect("the server takes it");
        let told = crate::poll(PATIENCE, || self.receive());
        assert_eq!(told.as_deref().and_then(status), Some(200), "{told:?}");
    }

    fn answer_until(mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            let Some(request) = self.receive() else {
                // The server is gone. The flow is not reopened.
                if self.stream.peek(&mut [0]).is_ok_and(|length| length == 0) {
                    return;
                }
                continue;
            };
            if let Some(answer) = answer(&request, self.own) {
                let _ = self.stream.write_all(answer.as_bytes());
            }
        }
    }

    /// Returns the next message, or `None` if none arrives within a short time.
    fn receive(&mut self) -> Option<String> {
        if let Some(message) = self.take() {
            return Some(message);
        }
        let mut buffer = [0; 8_192];
        match self.stream.read(&mut buffer) {
            Ok(length) => self.received.extend_from_slice(&buffer[..length]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            // The connection is reset, so nothing more arrives.
            Err(_) => thread::sleep(TICK),
        }
        self.take()
    }

    /// Returns the first complete message of the received bytes. Line ends between messages are keepalives (RFC 5626
    /// §3.5.1).
    fn take(&mut self) -> Option<String> {
        let blank = self.received.iter().take_while(|byte| b"\r\n".contains(byte)).count();
        self.received.drain(..blank);
        let end = self.received.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let head = String::from_utf8_lossy(&self.received[..end]).into_owned();
        let whole = end + value(&head, "Content-Length").parse().unwrap_or(0);
        (self.received.len() >= whole).then(|| {
            self.received.drain(..whole);
            head
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_is_answered_with_its_own_fields() {
        let request = "INVITE sip:a@b SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=1\r\nVia: SIP/2.0/UDP i\r\nFrom: <sip:x@y>;tag=f\r\n\
                       To: <sip:a@b>\r\nCall-ID: c\r\nCSeq: 1 INVITE\r\n\r\n";
        let own = SocketAddr::from(([127, 0, 0, 1], 5060));
        let answer = answer(request, own).expect("an answer");
        assert_eq!(status(&answer), Some(200));
        assert_eq!(
            (values(&answer, "Via").count(), tag(&answer, "To"), value(&answer, "CSeq")),
            (2, "phone", "1 INVITE")
        );
        assert!(super::answer("ACK sip:a@b SIP/2.0\r\n\r\n", own).is_none());
    }
}
