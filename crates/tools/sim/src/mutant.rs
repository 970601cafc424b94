//! Planted bugs: a wrapper around the server that perverts what goes in or comes out, so that the rules can be seen to
//! notice. The production core has no switch for this.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use strowger_foundation::Timestamp;
use strowger_message::{HeaderName, Message, Method, Reply, Status, Via};

use crate::server::{Sent, Server, Step};

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The ACK to a failure goes on downstream.
    ForwardsFailureAck,
    /// The ACK to a success goes nowhere.
    SwallowsSuccessAck,
    /// Responses of the server's own have no To tag.
    DropsToTag,
    /// A failure is followed by another.
    SecondFinal,
    /// A 2xx that comes again is dropped.
    DropsRepeatedSuccess,
    /// Of a fork's 2xx only the first goes up.
    DropsSecondSuccess,
    /// A request that comes again goes on again, in another branch.
    ForwardsAgain,
    /// A byte of the body is changed.
    EditsBody,
    /// Header lines that nobody knows change places.
    ReordersHeaders,
    /// No CANCEL goes out.
    ForgetsCancel,
    /// Timers are not served.
    NeverTimesOut,
    /// Timers that are due are left as they are.
    IgnoresTimeouts,
    /// Timers are served for a minute only.
    StopsTimingOut,
    /// A MESSAGE is answered 408.
    Answers408,
    /// Bindings stay longer than they should.
    KeepsExpired,
    /// A REGISTER with a lower CSeq counts.
    AcceptsLowerCSeq,
    /// Max-Forwards stays as it is.
    KeepsMaxForwards,
    /// Our Via stays in a response.
    KeepsVia,
    /// A request that comes again is not answered again.
    ForgetsReplay,
    /// Responses go to the sent-by where `rport` was asked for.
    IgnoresRport,
}

/// A server, perhaps with a bug.
#[derive(Debug)]
pub struct Mutant {
    server: Server,
    address: SocketAddr,
    bug: Option<Bug>,
    /// What came, and what went, before.
    seen: BTreeSet<Vec<u8>>,
    /// What was forwarded, by the branch above ours.
    forwarded: BTreeMap<Vec<u8>, Sent>,
}

impl Mutant {
    /// The server at `address`, with `bug` where there is one.
    #[must_use]
    pub fn new(server: Server, address: SocketAddr, bug: Option<Bug>) -> Self {
        Self { server, address, bug, seen: BTreeSet::new(), forwarded: BTreeMap::new() }
    }

    /// Does one step.
    pub fn handle(&mut self, step: &Step) -> Vec<Sent> {
        let Some(bug) = self.bug else { return self.server.handle(step) };
        let Step::Datagram { at, from, bytes } = step else {
            if bug == Bug::IgnoresTimeouts {
                return Vec::new();
            }
            let sent = self.server.handle(step);
            return sent.into_iter().filter_map(|sent| self.pervert(bug, sent)).collect();
        };
        let bytes = pervert_input(bug, bytes);
        let repeated = !self.seen.insert(bytes.clone());
        let sent = self.server.handle(&Step::Datagram { at: *at, from: *from, bytes: bytes.clone() });
        let mut sent: Vec<_> = sent.into_iter().filter_map(|sent| self.pervert(bug, sent)).collect();
        if let Ok(message) = Message::parse(&bytes) {
            self.pervert_reaction(bug, *from, &message, repeated, &mut sent);
        }
        sent
    }

    /// See [`Server::next_timeout`].
    #[must_use]
    pub fn next_timeout(&self) -> Option<(Timestamp, usize)> {
        let next = self.server.next_timeout();
        match self.bug {
            Some(Bug::NeverTimesOut) => None,
            Some(Bug::StopsTimingOut) => next.filter(|(at, _)| *at < Timestamp::from_millis(60_000)),
            _ => next,
        }
    }

    /// The server itself.
    #[must_use]
    pub const fn inner(&self) -> &Server {
        &self.server
    }

    /// What is done to one message that leaves.
    fn pervert(&mut self, bug: Bug, mut sent: Sent) -> Option<Sent> {
        let bytes = sent.bytes.clone();
        let Ok(message) = Message::parse(&bytes) else { return Some(sent) };
        let forwarded = message.head().elements(HeaderName::Via).nth(1);
        match (message.status(), bug) {
            (None, Bug::ForgetsCancel) if message.method() == Method::Cancel => return None,
            (None, Bug::SwallowsSuccessAck) if message.method() == Method::Ack && forwarded.is_some() => return None,
            (None, Bug::EditsBody) if !message.body().is_empty() => {
                let middle = bytes.len() - message.body().len() / 2 - 1;
                sent.bytes[middle] ^= 1;
            }
            (None, Bug::ReordersHeaders) => {
                let without = replaced(&bytes, b"\r\nSubject:odd", b"");
                sent.bytes = replaced(&without, b"\r\nX-Unknown:", b"\r\nSubject:odd\r\nX-Unknown:");
            }
            (None, Bug::KeepsMaxForwards) => sent.bytes = replaced(&bytes, b"Max-Forwards: 69", b"Max-Forwards: 70"),
            (None, Bug::ForwardsAgain) => {
                if let Some((above, _)) = forwarded.and_then(Via::parse_first) {
                    self.forwarded.insert(above.branch.unwrap_or(&[]).to_vec(), sent.clone());
                }
            }
            (Some(status), Bug::DropsRepeatedSuccess) if status.is_success() && message.method() == Method::Invite => {
                return self.seen.insert(bytes).then_some(sent);
            }
            (Some(status), Bug::DropsSecondSuccess) if status.is_success() && message.method() == Method::Invite => {
                let branch = message.via().branch.unwrap_or(&[]).to_vec();
                let first = self.forwarded.entry(branch).or_insert_with(|| sent.clone());
                return (*first == sent).then_some(sent);
            }
            (Some(_), Bug::KeepsVia) => sent.bytes = with_via(&bytes, self.address),
            (Some(_), Bug::AcceptsLowerCSeq) => sent.bytes = replaced(&bytes, b"CSeq: 9000 REG", b"CSeq: 1 REG"),
            (Some(_), Bug::IgnoresRport) => sent.to.set_ip(message.via().host().ip()?),
            (Some(_), Bug::DropsToTag) => {
                let tag = message.to().tag().filter(|tag| !tag.starts_with(b"phone-")).unwrap_or(&[]);
                sent.bytes = replaced(&bytes, &[b";tag=", tag].concat(), b"");
            }
            _ => {}
        }
        Some(sent)
    }

    /// What is done besides in answer to a message.
    fn pervert_reaction(
        &self,
        bug: Bug,
        from: SocketAddr,
        message: &Message<'_>,
        repeated: bool,
        sent: &mut Vec<Sent>,
    ) {
        let is_request = message.status().is_none();
        match bug {
            Bug::ForwardsFailureAck if is_request && message.method() == Method::Ack && sent.is_empty() => {
                sent.push(Sent { to: from, bytes: with_via(message.bytes(), self.address) });
            }
            Bug::SecondFinal => {
                let failure = |sent: &&Sent| sent.bytes.starts_with(b"SIP/2.0 4");
                if let Some(first) = sent.iter().find(failure).cloned() {
                    let bytes = replaced(&first.bytes, b"SIP/2.0 4", b"SIP/2.0 5");
                    sent.push(Sent { bytes, ..first });
                }
            }
            Bug::ForwardsAgain if is_request && repeated => {
                if let Some(again) = self.forwarded.get(message.via().branch.unwrap_or(&[])).cloned() {
                    sent.push(Sent { bytes: replaced(&again.bytes, b"z9hG4bK", b"z9hG4bKagain"), ..again });
                }
            }
            Bug::Answers408 if is_request && message.method() == Method::Message && !repeated => {
                let (status, mut bytes) = (Status::REQUEST_TIMEOUT, Vec::new());
                Reply::begin(&mut bytes, message.head(), status, status.reason(), b"planted", None).finish();
                sent.insert(0, Sent { to: from, bytes });
            }
            Bug::ForgetsReplay if is_request && repeated => sent.clear(),
            _ => {}
        }
    }
}

/// What is done to a message that comes in.
fn pervert_input(bug: Bug, bytes: &[u8]) -> Vec<u8> {
    match bug {
        Bug::AcceptsLowerCSeq => replaced(bytes, b"CSeq: 1 REG", b"CSeq: 9000 REG"),
        Bug::KeepsExpired => replaced(bytes, b";expires=60\r", b";expires=70\r"),
        _ => bytes.to_vec(),
    }
}

/// `bytes` with the first `from` replaced.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    match bytes.windows(from.len()).position(|window| window == from) {
        Some(at) => [&bytes[..at], to, &bytes[at + from.len()..]].concat(),
        None => bytes.to_vec(),
    }
}

/// `bytes` with a Via of the server on top.
fn with_via(bytes: &[u8], address: SocketAddr) -> Vec<u8> {
    let via = format!("\r\nVia: SIP/2.0/UDP {address};branch=z9hG4bKplanted\r\n");
    replaced(bytes, b"\r\n", via.as_bytes())
}
