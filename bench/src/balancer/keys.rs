//! Assignment of keys to targets. Calls one user after another, with one request at a time, and records which target
//! answered.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::{BALANCER, DOMAIN};
use crate::register::probe::status;

/// Retransmission interval.
const AGAIN: Duration = Duration::from_millis(500);
/// Maximum duration of an INVITE and of a BYE.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(8), Duration::from_secs(2));

/// Returns the targets that answer calls to `count` users, `None` where none did. `round` makes the calls distinct
/// from those of other rounds.
///
/// # Errors
/// If no socket is available.
pub fn map(count: u32, round: u32) -> std::io::Result<Vec<Option<SocketAddr>>> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let local = socket.local_addr()?;
    let caller = Caller { socket, local, round };
    Ok((0..count).map(|user| caller.call(user)).collect())
}

struct Caller {
    socket: UdpSocket,
    local: SocketAddr,
    round: u32,
}

impl Caller {
    /// Makes a complete call and returns the target that answered.
    fn call(&self, user: u32) -> Option<SocketAddr> {
        let uri = format!("sip:key{user}@{DOMAIN}");
        let invite = self.request("INVITE", 1, user, &uri, "", &format!("<{uri}>"));
        let ok = self.ask(&invite, user, "INVITE", PATIENCE.0)?;
        let contact = uri_of(&ok, "Contact:")?;
        let to = ok.lines().find_map(|line| line.strip_prefix("To:"))?.trim();
        let mut routes: Vec<&str> = ok.lines().filter_map(|line| line.strip_prefix("Record-Route:")).collect();
        routes.reverse();
        let routes: String = routes.iter().map(|route| format!("Route: {}\r\n", route.trim())).collect();
        let ack = self.request("ACK", 1, user, contact, &routes, to);
        self.send(&ack);
        let bye = self.request("BYE", 2, user, contact, &routes, to);
        // A target that has stopped does not answer the BYE, but its address is known already.
        let _ = self.ask(&bye, user, "BYE", PATIENCE.1);
        address(contact)
    }

    fn request(&self, method: &str, cseq: u32, user: u32, uri: &str, routes: &str, to: &str) -> String {
        let Self { local, round, .. } = self;
        format!(
            "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {local};branch=z9hG4bK-key-{round}-{user}-{method};rport\r\n\
             Max-Forwards: 70\r\n{routes}From: <sip:keys@{DOMAIN}>;tag=k{round}\r\nTo: {to}\r\nCall-ID: key-{round}-{user}@{local}\r\n\
             CSeq: {cseq} {method}\r\nContact: <sip:keys@{local}>\r\nContent-Length: 0\r\n\r\n"
        )
    }

    fn send(&self, message: &str) {
        // A failed send is repeated by retransmission.
        let _ = self.socket.send_to(message.as_bytes(), BALANCER);
    }

    /// Sends a request until there is a final response. Returns its text if it is a 2xx.
    fn ask(&self, request: &str, user: u32, method: &str, patience: Duration) -> Option<String> {
        let call = format!("Call-ID: key-{}-{user}@", self.round);
        let begun = Instant::now();
        let mut sent = None;
        while begun.elapsed() < patience {
            if sent.is_none_or(|sent: Instant| sent.elapsed() >= AGAIN) {
                self.send(request);
                sent = Some(Instant::now());
            }
            let Some(bytes) = self.receive() else { continue };
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let is_ours = text.contains(&call) && text.lines().any(|line| is_of(line, method));
            match status(&bytes) {
                Some(200..=299) if is_ours => return Some(text),
                Some(300..) if is_ours => return None,
                _ => {}
            }
        }
        None
    }

    fn receive(&self) -> Option<Vec<u8>> {
        self.socket.set_read_timeout(Some(Duration::from_millis(50))).ok()?;
        let mut bytes = vec![0; 4_096];
        let length = self.socket.recv(&mut bytes).ok()?;
        bytes.truncate(length);
        Some(bytes)
    }
}

/// Returns whether a line is the CSeq of this method.
fn is_of(line: &str, method: &str) -> bool {
    line.strip_prefix("CSeq:").is_some_and(|value| value.trim_end().ends_with(method))
}

/// Returns the URI in a header field of a message.
fn uri_of<'a>(message: &'a str, field: &str) -> Option<&'a str> {
    let value = message.lines().find_map(|line| line.strip_prefix(field))?;
    value.split_once('<')?.1.split('>').next()
}

/// Returns the address in a URI.
fn address(uri: &str) -> Option<SocketAddr> {
    let rest = uri.strip_prefix("sip:")?;
    let host = rest.split(';').next()?;
    host.rsplit('@').next()?.parse().ok()
}

/// Keys whose target changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovedKeys {
    /// Keys of the target, and how many of them moved.
    pub its: (usize, usize),
    /// All other keys, and how many of them moved.
    pub others: (usize, usize),
}

/// Compares two maps. A key without an answer counts as moved.
#[must_use]
pub fn moved(before: &[Option<SocketAddr>], after: &[Option<SocketAddr>], target: SocketAddr) -> MovedKeys {
    let mut moved = MovedKeys::default();
    for (before, after) in before.iter().zip(after) {
        let count = if *before == Some(target) { &mut moved.its } else { &mut moved.others };
        count.0 += 1;
        count.1 += usize::from(before != after);
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::super::target;
    use super::*;

    #[test]
    fn a_contact_names_the_target() {
        let ok = "SIP/2.0 200 OK\r\nTo: <sip:a@b>;tag=1\r\nContact: <sip:127.0.1.3:5080;transport=UDP>\r\nCSeq: 1 INVITE\r\n\r\n";
        let uri = uri_of(ok, "Contact:").expect("a URI");
        assert_eq!(address(uri), Some(target(2)));
        assert_eq!(address("sip:user@127.0.1.3:5080"), Some(target(2)));
        assert!(ok.lines().any(|line| is_of(line, "INVITE")) && !ok.lines().any(|line| is_of(line, "BYE")));
    }

    #[test]
    fn own_and_other_moved_keys_are_counted() {
        let (a, b) = (Some(target(0)), Some(target(1)));
        let moved = moved(&[a, a, b, b], &[b, a, b, None], target(0));
        assert_eq!(moved, MovedKeys { its: (2, 1), others: (2, 1) });
    }
}
