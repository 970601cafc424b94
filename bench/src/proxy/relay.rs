//! The lower bound: a relay without logic. One socket and one thread, one batch in and one batch out. Each packet is
//! forwarded to the other end, longer or shorter by the lines that a proxy adds or removes, and as many packets leave
//! as a proxy would send. The additional cost of a server is its own work.
//!
//! The relay relies on its generator: the position of lines in messages, and that all callees are behind one port.

use std::io;
use std::net::SocketAddr;

use memchr::memchr;
use memchr::memmem;
use mio::{Events, Interest, Poll, Token};
use strowger_net::{BufferSizes, OrderingKey, RecvBatch, SendBatch, UdpSocket};

use super::DOMAIN;
use super::scenario::Scenario;

/// Relays a scenario's messages at `address` until the process ends.
///
/// # Errors
/// If the socket is not available, or fails.
pub fn run(address: SocketAddr, scenario: Scenario) -> io::Result<()> {
    let mut socket = UdpSocket::bind(address, BufferSizes::DEFAULT).map_err(|error| error.cause)?;
    let mut poll = Poll::new()?;
    poll.registry().register(&mut socket, Token(0), Interest::READABLE)?;
    let mut events = Events::with_capacity(8);
    let (mut batch, mut out) = (RecvBatch::new(), SendBatch::new());
    let mut relay = Relay::new(address, scenario);
    loop {
        socket.recv(&mut batch)?;
        for datagram in batch.iter() {
            relay.handle(datagram.bytes, datagram.peer, &mut |to, parts| {
                let slot = out.next_slot();
                parts.iter().for_each(|part| slot.extend_from_slice(part));
                out.commit(to, OrderingKey::ALL);
            });
            if out.is_full() {
                let _ = socket.send(&mut out, |_| ());
            }
        }
        let _ = socket.send(&mut out, |_| ());
        if !batch.is_full() {
            match poll.poll(&mut events, None) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => while socket.poll_error().is_some() {},
            }
        }
    }
}

/// State of the relay.
struct Relay {
    /// The relay's Via followed by its Record-Route, as long as Strowger's.
    via: Vec<u8>,
    record_route: Vec<u8>,
    challenge: Vec<u8>,
    scenario: Scenario,
    /// Address of the last phone that registered.
    callee: SocketAddr,
}

/// Lengths of Strowger's branch, signed part of the Record-Route, and nonce.
const BRANCH: usize = 46;
const ROUTE: usize = 16;
const NONCE: usize = 28;

/// Text before the port in the generator's own Via.
const VIA: &[u8] = b"Via: SIP/2.0/UDP 127.0.0.1:";

impl Relay {
    fn new(address: SocketAddr, scenario: Scenario) -> Self {
        let via = format!("Via: SIP/2.0/UDP {address};branch=z9hG4bK{}\r\n", "f".repeat(BRANCH));
        let record_route = format!("Record-Route: <sip:{address};lr;dlg={}>\r\n", "f".repeat(ROUTE));
        let challenge = format!(
            "WWW-Authenticate: Digest realm=\"{DOMAIN}\", nonce=\"{}\", algorithm=MD5, qop=\"auth\"\r\n",
            "f".repeat(NONCE)
        );
        Self {
            via: via.into_bytes(),
            record_route: record_route.into_bytes(),
            challenge: challenge.into_bytes(),
            scenario,
            callee: address,
        }
    }

    /// Handles a packet and sends the resulting packets.
    fn handle(&mut self, bytes: &[u8], peer: SocketAddr, send: &mut impl FnMut(SocketAddr, &[&[u8]])) {
        let Some(end) = memchr(b'\n', bytes).map(|at| at + 1) else { return };
        let (first, rest) = bytes.split_at(end);
        match first.first() {
            Some(b'S') => {
                let Some(own) = memchr(b'\n', rest).map(|at| at + 1) else { return };
                let rest = &rest[own..];
                let Some(to) = caller(rest) else { return };
                send(to, &[first, rest]);
            }
            Some(b'R') => self.register(rest, peer, send),
            Some(b'O') => send(peer, &[b"SIP/2.0 200 OK\r\n", rest]),
            Some(b'I') => {
                if self.scenario == Scenario::Call {
                    let fields = memmem::find(rest, b"\r\nContact:").map_or(rest.len(), |at| at + 2);
                    send(peer, &[b"SIP/2.0 100 Trying\r\n", &rest[..fields], b"Content-Length: 0\r\n\r\n"]);
                }
                send(self.callee, &[first, &self.via, &self.record_route, b"Max-Breadth: 60\r\n", rest]);
            }
            _ => send(self.callee, &[first, &self.via, rest]),
        }
    }

    fn register(&mut self, rest: &[u8], peer: SocketAddr, send: &mut impl FnMut(SocketAddr, &[&[u8]])) {
        self.callee = peer;
        let credentials = memmem::find(rest, b"\r\nAuthorization:").map(|at| at + 2);
        match credentials {
            None if self.scenario == Scenario::Challenge => {
                let fields = memmem::find(rest, b"\r\nContact:").map_or(rest.len(), |at| at + 2);
                let end = b"Content-Length: 0\r\n\r\n";
                send(peer, &[b"SIP/2.0 401 Unauthorized\r\n", &rest[..fields], &self.challenge, end]);
            }
            None => send(peer, &[b"SIP/2.0 200 OK\r\n", rest]),
            Some(at) => send(peer, &[b"SIP/2.0 200 OK\r\n", &rest[..at], b"Content-Length: 0\r\n\r\n"]),
        }
    }
}

/// Returns the address of the caller whose Via is the first line or follows the relay's Record-Route.
fn caller(rest: &[u8]) -> Option<SocketAddr> {
    let rest = if rest.first() == Some(&b'R') { rest.get(memchr(b'\n', rest)? + 1..)? } else { rest };
    let digits = rest.strip_prefix(VIA)?;
    let port = digits.iter().take_while(|digit| digit.is_ascii_digit());
    let port = port.fold(0_u32, |port, digit| port.wrapping_mul(10).wrapping_add(u32::from(digit - b'0')));
    Some(SocketAddr::from(([127, 0, 0, 1], u16::try_from(port).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn relayed(relay: &mut Relay, text: &str, from: u16) -> Vec<(u16, String)> {
        let mut sent = Vec::new();
        relay.handle(text.as_bytes(), address(from), &mut |to, parts| {
            sent.push((to.port(), String::from_utf8(parts.concat()).expect("text")));
        });
        sent
    }

    const CALLER: u16 = 40_001;
    const CALLEE: u16 = 40_002;

    fn request(method: &str) -> String {
        format!(
            "{method} sip:b@x SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1:{CALLER};branch=z9hG4bK1\r\nCall-ID: c\r\n\
             CSeq: 1 {method}\r\nContact: <sip:a@x>\r\nContent-Length: 0\r\n\r\n"
        )
    }

    /// Returns a relay that knows the callees' address.
    fn relay(scenario: Scenario) -> Relay {
        let mut relay = Relay::new(address(5_060), scenario);
        relay.callee = address(CALLEE);
        relay
    }

    #[test]
    fn a_call_passes_both_ways() {
        let mut relay = relay(Scenario::Call);
        let sent = relayed(&mut relay, &request("INVITE"), CALLER);
        assert_eq!(sent.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [CALLER, CALLEE]);
        assert!(
            sent[0].1.starts_with("SIP/2.0 100 Trying\r\nVia: ") && !sent[0].1.contains("Contact"),
            "{}",
            sent[0].1
        );
        let invite = &sent[1].1;
        assert!(invite.contains("Record-Route: ") && invite.matches("Via: ").count() == 2, "{invite}");
        let answer =
            invite.replacen("INVITE sip:b@x SIP/2.0", "SIP/2.0 180 Ringing", 1).replace("Max-Breadth: 60\r\n", "");
        let sent = relayed(&mut relay, &answer, CALLEE);
        assert_eq!((sent.len(), sent[0].0), (1, CALLER), "by the port of its Via");
        assert!(sent[0].1.matches("Via: ").count() == 1 && sent[0].1.contains("Record-Route: "), "{}", sent[0].1);
        for method in ["ACK", "BYE"] {
            let sent = relayed(&mut relay, &request(method), CALLER);
            assert_eq!((sent.len(), sent[0].0), (1, CALLEE), "{method}");
        }
    }

    #[test]
    fn the_packet_count_matches_a_proxys() {
        for scenario in [Scenario::Call, Scenario::Stateless] {
            let mut relay = relay(scenario);
            let requests = ["INVITE", "ACK", "BYE"].map(|method| relayed(&mut relay, &request(method), CALLER).len());
            let responses = 3;
            let all = u32::try_from(requests.iter().sum::<usize>()).expect("few") + responses;
            assert_eq!((3 + responses, all), scenario.packets(), "{scenario}");
        }
    }

    #[test]
    fn registrations_are_answered_and_challenged() {
        let mut open = relay(Scenario::Register);
        let sent = relayed(&mut open, &request("REGISTER"), CALLER);
        assert!(sent.len() == 1 && sent[0].1.starts_with("SIP/2.0 200 OK\r\nVia: "), "{sent:?}");
        assert_eq!(open.callee, address(CALLER), "who registers is called");
        let mut strict = relay(Scenario::Challenge);
        let sent = relayed(&mut strict, &request("REGISTER"), CALLER);
        assert!(sent[0].1.starts_with("SIP/2.0 401 ") && sent[0].1.contains("WWW-Authenticate: "), "{}", sent[0].1);
        let again = request("REGISTER").replace("Content-Length", "Authorization: Digest x\r\nContent-Length");
        let sent = relayed(&mut strict, &again, CALLER);
        assert!(sent[0].1.starts_with("SIP/2.0 200 ") && !sent[0].1.contains("Digest"), "{}", sent[0].1);
        assert!(sent[0].1.ends_with("Content-Length: 0\r\n\r\n"));
    }
}
