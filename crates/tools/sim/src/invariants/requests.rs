//! Rules for the requests that leave.

use core::net::SocketAddr;

use strowger_foundation::Timestamp;
use strowger_message::{Message, Method, Status};

use super::{Branch, Invariants, Rule, Verdict, branch_of, key, second_branch, untouched};
use crate::ladder::summary;
use crate::server::Sent;

impl Invariants {
    pub(super) fn check_request(&mut self, now: Timestamp, to: SocketAddr, message: &Message<'_>) -> Verdict {
        match second_branch(message) {
            None => self.check_own_request(now, message),
            Some(above) if message.method() == Method::Ack => self.check_ack(&above, message),
            Some(above) => self.check_forwarded(now, to, &above, message),
        }
    }

    /// The server's own: CANCEL and ACK of a branch, and what keeps a translation open.
    fn check_own_request(&mut self, now: Timestamp, message: &Message<'_>) -> Verdict {
        let place = self.downstream.get(&key(&branch_of(message.via()), Method::Invite));
        let upstream = place.and_then(|(key, index)| Some((self.upstream.get_mut(key)?, *index)));
        match (message.method(), upstream) {
            (Method::Options, None) => Ok(()),
            (Method::Cancel, Some((upstream, index))) => {
                let unwanted = upstream.is_over() || now >= upstream.branches[index].ring_deadline;
                upstream.branches[index].cancelled_at.get_or_insert(now);
                broken_unless(unwanted, Rule::LosersCancelled, || {
                    format!("for no reason: {}", summary(message.bytes()))
                })
            }
            (Method::Ack, Some((upstream, index))) => {
                let refused =
                    upstream.branches[index].finished.is_some_and(|(status, _)| status >= Status::MOVED_TEMPORARILY);
                broken_unless(refused, Rule::AckAbsorbed, || {
                    format!("an ACK to no failure: {}", summary(message.bytes()))
                })
            }
            _ => Err((Rule::ForwardedOnce, format!("a request of nobody: {}", summary(message.bytes())))),
        }
    }

    fn check_ack(&self, above: &[u8], message: &Message<'_>) -> Verdict {
        // An ACK to a success has a branch of its own; that of a known INVITE is an ACK to its failure.
        let absorbed = self.upstream.get(&key(above, Method::Invite)).is_none_or(|upstream| upstream.stateless);
        broken_unless(absorbed, Rule::AckAbsorbed, || format!("forwarded: {}", summary(message.bytes())))?;
        let Some(ack) = self.present.ack.as_deref().and_then(|bytes| Message::parse(bytes).ok()) else {
            return Err((Rule::ForwardedOnce, format!("an ACK that nobody sent: {}", summary(message.bytes()))));
        };
        untouched::check_request(&ack, message)
    }

    /// An ACK that answers no failure went on in the step in which it came.
    pub(super) fn check_ack_passed(&self, sent: &[Sent]) -> Verdict {
        let Some(bytes) = &self.present.ack else { return Ok(()) };
        let Ok(ack) = Message::parse(bytes) else { return Ok(()) };
        let answers_failure = self.upstream.contains_key(&key(&branch_of(ack.via()), Method::Invite));
        let passed = answers_failure || sent.iter().any(|sent| sent.bytes.starts_with(b"ACK "));
        broken_unless(passed, Rule::AckPassed, || format!("went nowhere: {}", summary(bytes)))
    }

    fn check_forwarded(&mut self, now: Timestamp, to: SocketAddr, above: &[u8], message: &Message<'_>) -> Verdict {
        let key = key(above, message.method());
        let Some(upstream) = self.upstream.get_mut(&key) else {
            return Err((Rule::ForwardedOnce, format!("a request that nobody sent: {}", summary(message.bytes()))));
        };
        let branch = super::key(&branch_of(message.via()), message.method());
        if let Some((_, index)) = self.downstream.get(&branch) {
            let same = upstream.branches[*index].bytes == message.bytes() && upstream.branches[*index].to == to;
            return broken_unless(same, Rule::ForwardedOnce, || {
                format!("repeated otherwise: {}", summary(message.bytes()))
            });
        }
        let first = *upstream.forwarded_in.get_or_insert(self.present.number);
        broken_unless(first == self.present.number, Rule::ForwardedOnce, || {
            format!("forwarded a second time: {}", summary(message.bytes()))
        })?;
        let uri = message.request_uri().to_vec();
        let twice = upstream.branches.iter().any(|other| other.to == to && other.uri == uri);
        broken_unless(!twice, Rule::ForwardedOnce, || {
            format!("two branches to one target: {}", summary(message.bytes()))
        })?;
        if let Ok(request) = Message::parse(&upstream.request) {
            untouched::check_request(&request, message)?;
        }
        self.downstream.insert(branch, (key, upstream.branches.len()));
        upstream.branches.push(Branch {
            to,
            uri,
            sent_at: now,
            bytes: message.bytes().to_vec(),
            provisional_at: None,
            ring_deadline: now + self.snapshot.proxy.ring_timeout,
            finished: None,
            cancelled_at: None,
            responses: Vec::new(),
        });
        Ok(())
    }

    /// Each branch that is no longer wanted, and has been heard of, is cancelled.
    pub(super) fn check_losers(&self, now: Timestamp) -> Verdict {
        let Some(upstream) = self.present.touched.as_ref().and_then(|key| self.upstream.get(key)) else {
            return Ok(());
        };
        if !upstream.is_invite() || upstream.stateless || !upstream.is_over() {
            return Ok(());
        }
        let forgotten =
            |branch: &&Branch| branch.waits(now) && branch.provisional_at.is_some() && branch.cancelled_at.is_none();
        match upstream.branches.iter().find(forgotten) {
            Some(branch) => Err((Rule::LosersCancelled, format!("still rings: {}", summary(&branch.bytes)))),
            None => Ok(()),
        }
    }
}

pub(super) fn broken_unless(holds: bool, rule: Rule, detail: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err((rule, detail())) }
}
