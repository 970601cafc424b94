//! A phone over UDP or TCP that makes one call at a time and waits for each response.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::Namespace;
use crate::wire::{address, hops, method, status, tag, value};

/// T1 (RFC 3261 §17).
const T1: Duration = Duration::from_millis(500);
/// Time after which a call without a final response has failed: long enough for two retransmissions and for a
/// balancer that tries another server.
pub(super) const PATIENCE: Duration = Duration::from_millis(2_700);
/// Timeout of one read.
const TICK: Duration = Duration::from_millis(20);

/// Transport of a phone.
#[derive(Debug)]
enum Wire {
    Udp(UdpSocket),
    Tcp { stream: TcpStream, read: Vec<u8> },
}

/// A phone and its current call.
#[derive(Debug)]
pub struct Phone {
    wire: Wire,
    local: SocketAddr,
    /// Address of the service, the only one that the phone is configured with.
    entry: SocketAddr,
    /// Whether requests within a dialog go to the topmost Route (RFC 3261 §12.2.1.1). Otherwise they go to `entry`,
    /// as from a phone with an outbound proxy.
    pub follows_route: bool,
    /// Time allowed for a final response.
    pub patience: Duration,
    call: Call,
}

#[derive(Debug, Default)]
struct Call {
    id: String,
    callee: String,
    /// To, remote target and route set. Those of the dialog, once there is one.
    to: String,
    target: String,
    route: Vec<String>,
    cseq: u32,
    invite: String,
}

impl Phone {
    /// Creates a phone with a UDP socket at this address of a network.
    ///
    /// # Panics
    /// If no socket can be opened.
    #[must_use]
    pub fn udp(network: &Namespace, host: Ipv4Addr, entry: SocketAddr) -> Phone {
        let socket = udp_socket(network, host);
        let local = socket.local_addr().expect("a bound socket has an address");
        Phone { wire: Wire::Udp(socket), local, entry, follows_route: true, patience: PATIENCE, call: Call::default() }
    }

    /// Creates a phone with a TCP connection to the service. Returns `None` if the connection cannot be opened in
    /// time.
    ///
    /// # Panics
    /// If the socket's options cannot be set.
    #[must_use]
    pub fn tcp(network: &Namespace, entry: SocketAddr) -> Option<Phone> {
        let stream = network.inside(|| TcpStream::connect_timeout(&entry, PATIENCE)).ok()?;
        stream.set_read_timeout(Some(TICK)).expect("a time-out can be set");
        stream.set_nodelay(true).expect("a sound socket");
        let local = stream.local_addr().ok()?;
        let wire = Wire::Tcp { stream, read: Vec::new() };
        Some(Phone { wire, local, entry, follows_route: false, patience: PATIENCE, call: Call::default() })
    }

    /// Returns the Call-ID of the current call.
    #[must_use]
    pub fn call_id(&self) -> &str {
        &self.call.id
    }

    /// Makes a call and acknowledges the final response. Returns its status, or `None` on timeout.
    pub fn call(&mut self, callee: &str) -> Option<u16> {
        let invite = self.begin(callee);
        let answer = self.ask(&invite, |status| status >= 200)?;
        Some(self.acknowledge(&answer))
    }

    /// Makes a call and returns whether it rings.
    pub fn ring(&mut self, callee: &str) -> bool {
        let invite = self.begin(callee);
        let answer = self.ask(&invite, |status| status >= 180);
        answer.is_some_and(|answer| status(&answer) == Some(180))
    }

    /// Waits for the final response to an INVITE that [rings](Phone::ring) and acknowledges it.
    pub fn answer(&mut self) -> Option<u16> {
        let answer = self.wait("1 INVITE", self.patience, |status| status >= 200)?;
        Some(self.acknowledge(&answer))
    }

    /// Cancels a call that [rings](Phone::ring) (RFC 3261 §9.1) and returns the status of the final response to the
    /// INVITE.
    pub fn cancel(&mut self) -> Option<u16> {
        let cancel = self.of_invite("CANCEL", value(&self.call.invite, "To"));
        self.send(&cancel);
        self.answer()
    }

    /// Sends a request within the dialog and returns the status of its final response.
    pub fn request(&mut self, method: &str) -> Option<u16> {
        self.call.cseq += 1;
        let number = self.call.cseq;
        let text = self.in_dialog(method, number);
        let answer = self.ask(&text, |status| status >= 200)?;
        if method == "INVITE" {
            let ack = self.in_dialog("ACK", number);
            self.send_by_route(&ack);
        }
        status(&answer)
    }

    /// Registers a contact for a user.
    pub fn register(&mut self, user: &str, contact: SocketAddr) -> Option<u16> {
        let callee = format!("sip:{user}@example.com");
        self.reset(&callee);
        let mut text = self.head("REGISTER", "sip:example.com", 1);
        let id = &self.call.id;
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "From: <{callee}>;tag={id}\r\nTo: <{callee}>\r\nCall-ID: {id}\r\nCSeq: 1 REGISTER\r\n\
             Contact: <sip:{user}@{contact}>;expires=600\r\nContent-Length: 0\r\n\r\n"
        );
        let answer = self.ask(&text, |status| status >= 200)?;
        status(&answer)
    }

    /// Continues from another port, as after a NAT has dropped the mapping.
    ///
    /// # Panics
    /// If no socket can be opened.
    pub fn rebind(&mut self, network: &Namespace) {
        let SocketAddr::V4(local) = self.local else { return };
        let socket = udp_socket(network, *local.ip());
        self.local = socket.local_addr().expect("a bound socket has an address");
        self.wire = Wire::Udp(socket);
    }

    fn reset(&mut self, callee: &str) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = format!("sharing-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let call = Call { id, callee: callee.to_owned(), to: format!("<{callee}>"), cseq: 1, ..Call::default() };
        self.call = Call { target: callee.to_owned(), ..call };
    }

    /// Builds the INVITE of a new call.
    fn begin(&mut self, callee: &str) -> String {
        self.reset(callee);
        self.call.invite = self.in_dialog("INVITE", 1);
        self.call.invite.clone()
    }

    /// Handles the final response to the INVITE. A 2xx creates the dialog (RFC 3261 §12.1.2).
    fn acknowledge(&mut self, answer: &str) -> u16 {
        let final_status = status(answer).unwrap_or_default();
        if final_status >= 300 {
            let ack = self.of_invite("ACK", value(answer, "To"));
            self.send(&ack);
            return final_status;
        }
        self.call.to = value(answer, "To").to_owned();
        self.call.target = value(answer, "Contact").trim_matches(['<', '>']).to_owned();
        self.call.route = hops(answer, "Record-Route").map(str::to_owned).collect();
        self.call.route.reverse();
        let ack = self.in_dialog("ACK", 1);
        self.send_by_route(&ack);
        final_status
    }

    /// Sends a request and waits for a wanted response. Over UDP it retransmits after T1, twice T1 and so on.
    fn ask(&mut self, request: &str, is_wanted: impl Fn(u16) -> bool) -> Option<String> {
        let (cseq, begins) = (value(request, "CSeq").to_owned(), tag(request, "To").is_empty());
        let end = Instant::now() + self.patience;
        let mut pause = T1;
        loop {
            if begins {
                self.send(request);
            } else {
                self.send_by_route(request);
            }
            let left = end.saturating_duration_since(Instant::now());
            let wait = if matches!(self.wire, Wire::Udp(_)) { pause.min(left) } else { left };
            // After a provisional response an INVITE is not retransmitted (RFC 3261 §17.1.1.2).
            let answer = self.wait(&cseq, wait, |status| is_wanted(status) || status >= 100);
            match answer {
                Some(answer) if status(&answer).is_some_and(&is_wanted) => return Some(answer),
                Some(_) => return self.wait(&cseq, left, is_wanted),
                None if Instant::now() >= end => return None,
                None => pause *= 2,
            }
        }
    }

    /// Waits for a response with this CSeq in the current call.
    fn wait(&mut self, cseq: &str, time: Duration, is_wanted: impl Fn(u16) -> bool) -> Option<String> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let Some(text) = self.receive() else { continue };
            let is_ours = value(&text, "Call-ID") == self.call.id && value(&text, "CSeq") == cseq;
            if is_ours && status(&text).is_some_and(&is_wanted) {
                return Some(text);
            }
        }
        None
    }

    fn receive(&mut self) -> Option<String> {
        let mut buffer = [0; 8_192];
        match &mut self.wire {
            Wire::Udp(socket) => {
                let length = socket.recv(&mut buffer).ok()?;
                Some(String::from_utf8_lossy(buffer.get(..length)?).into_owned())
            }
            Wire::Tcp { stream, read } => {
                // Errors are the timeout, or the end of the connection, after which nothing more arrives.
                if let Ok(length) = stream.read(&mut buffer) {
                    read.extend_from_slice(buffer.get(..length)?);
                }
                // No message here has a body.
                let end = read.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
                Some(String::from_utf8_lossy(&read.drain(..end).collect::<Vec<_>>()).into_owned())
            }
        }
    }

    fn send(&mut self, text: &str) {
        self.send_to(text, self.entry);
    }

    fn send_by_route(&mut self, text: &str) {
        let first = self.call.route.first().and_then(|hop| address(hop));
        let to = first.filter(|_| self.follows_route).unwrap_or(self.entry);
        self.send_to(text, to);
    }

    fn send_to(&mut self, text: &str, to: SocketAddr) {
        // The receiver may be gone: some trials are about that.
        let _ = match &mut self.wire {
            Wire::Udp(socket) => socket.send_to(text.as_bytes(), to).map(|_| ()),
            Wire::Tcp { stream, .. } => stream.write_all(text.as_bytes()),
        };
    }

    /// Builds a request along the dialog's route set, if there is a dialog.
    fn in_dialog(&self, method: &str, number: u32) -> String {
        let Call { id, to, target, route, .. } = &self.call;
        let mut text = self.head(method, target, number);
        for hop in route {
            // Writing to a String cannot fail.
            let _ = write!(text, "Route: {hop}\r\n");
        }
        let local = self.local;
        let _ = write!(
            text,
            "From: <sip:me@example.com>;tag={id}\r\nTo: {to}\r\nCall-ID: {id}\r\nCSeq: {number} {method}\r\n\
             Contact: <sip:me@{local}>\r\nContent-Length: 0\r\n\r\n"
        );
        text
    }

    fn head(&self, method: &str, uri: &str, number: u32) -> String {
        let (local, id) = (self.local, &self.call.id);
        let transport = if matches!(self.wire, Wire::Udp(_)) { "UDP" } else { "TCP" };
        format!(
            "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/{transport} {local};branch=z9hG4bK-{id}-{method}-{number}\r\nMax-Forwards: 70\r\n"
        )
    }

    /// Builds a CANCEL, or the ACK to a non-2xx response, both part of the INVITE's transaction (RFC 3261 §9.1 and
    /// §17.1.1.3).
    fn of_invite(&self, verb: &str, to: &str) -> String {
        let Call { id, callee, invite, .. } = &self.call;
        debug_assert_eq!(method(invite), "INVITE");
        format!(
            "{verb} {callee} SIP/2.0\r\nVia: {}\r\nMax-Forwards: 70\r\nFrom: {}\r\nTo: {to}\r\nCall-ID: {id}\r\n\
             CSeq: 1 {verb}\r\nContent-Length: 0\r\n\r\n",
            value(invite, "Via"),
            value(invite, "From")
        )
    }
}

fn udp_socket(network: &Namespace, host: Ipv4Addr) -> UdpSocket {
    let socket = network.inside(|| UdpSocket::bind((host, 0)).expect("a free port"));
    socket.set_read_timeout(Some(TICK)).expect("a time-out can be set");
    socket
}
