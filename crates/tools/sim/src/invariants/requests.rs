//! Rules for outgoing requests.

use strowger_foundation::Timestamp;
use strowger_message::{Message, Method, Status};

use super::fork::{Entry, ExpectedTargets};
use super::{Branch, Invariants, Rule, TIMEOUT, Verdict, branch_of, key, second_branch, unchanged};
use crate::invariants::broken_unless;
use crate::ladder::summary;
use crate::server::SentMessage;

impl Invariants {
    pub(super) fn check_request(&mut self, now: Timestamp, sent: &SentMessage, message: &Message<'_>) -> Verdict {
        match second_branch(message) {
            None => self.check_own_request(now, sent, message),
            Some(above) if message.method() == Method::Ack => self.check_ack(&above, sent, message),
            Some(above) => self.check_forwarded(now, sent, &above, message),
        }
    }

    /// Checks the server's own requests: CANCEL and ACK of a branch, and keep-alives.
    fn check_own_request(&mut self, now: Timestamp, sent: &SentMessage, message: &Message<'_>) -> Verdict {
        let place = self.downstream.get(&key(&branch_of(message.via()), Method::Invite));
        let upstream = place.and_then(|(key, index)| Some((self.upstream.get_mut(key)?, *index)));
        match (message.method(), upstream) {
            (Method::Options, None) => Ok(()),
            (Method::Cancel, Some((upstream, index))) => {
                let over = upstream.is_over();
                let named = matches!(upstream.targets, ExpectedTargets::Targets { named: true, .. });
                let branch = &mut upstream.branches[index];
                let rung_out = now >= branch.ring_deadline
                    || named && now >= branch.sent_at + self.snapshot.proxy.ring_timeout
                    || branch.step_deadline.is_some_and(|deadline| now >= deadline);
                let unwanted = over || rung_out || branch.superseded;
                let moves = self.step.closed && sent.flow.connection.is_none();
                let again = branch.cancelled_at.is_some() && sent.flow.transport.is_reliable() && !moves;
                broken_unless(!again, Rule::Streams, || format!("cancelled twice: {}", summary(message.bytes())))?;
                broken_unless(moves || sent.flow == branch.flow, Rule::LosersCancelled, || {
                    format!("goes another way than its INVITE: {}", summary(message.bytes()))
                })?;
                branch.cancelled_at.get_or_insert(now);
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

    fn check_ack(&self, above: &[u8], sent: &SentMessage, message: &Message<'_>) -> Verdict {
        // If the INVITE belonged to an earlier process, the ACK is forwarded like one to a success.
        if self.ghosts.contains(&key(above, Method::Invite)) {
            return Ok(());
        }
        // An ACK to a success has its own branch; one with the branch of a known INVITE acknowledges a failure.
        let absorbed = self.upstream.get(&key(above, Method::Invite)).is_none_or(|upstream| upstream.stateless);
        broken_unless(absorbed, Rule::AckAbsorbed, || format!("forwarded: {}", summary(message.bytes())))?;
        let Some(ack) = self.step.ack.as_deref().and_then(|bytes| Message::parse(bytes).ok()) else {
            return Err((Rule::ForwardedOnce, format!("an ACK that nobody sent: {}", summary(message.bytes()))));
        };
        unchanged::check_request(&ack, message, self.step.transport != Some(sent.flow.transport))
    }

    /// Checks that an ACK to a success is forwarded in the step in which it arrives.
    pub(super) fn check_ack_passed(&self, sent: &[SentMessage]) -> Verdict {
        let Some(bytes) = &self.step.ack else { return Ok(()) };
        let Ok(ack) = Message::parse(bytes) else { return Ok(()) };
        let invite = key(&branch_of(ack.via()), Method::Invite);
        let answers_failure = self.upstream.contains_key(&invite) || self.ghosts.contains(&invite);
        let passed = answers_failure || sent.iter().any(|sent| sent.bytes.starts_with(b"ACK "));
        broken_unless(passed, Rule::AckPassed, || format!("went nowhere: {}", summary(bytes)))
    }

    fn check_forwarded(&mut self, now: Timestamp, sent: &SentMessage, above: &[u8], message: &Message<'_>) -> Verdict {
        let key = key(above, message.method());
        let arrived = matches!(&self.step.request, Some((arrived, true)) if *arrived == key);
        let (flow, shown) = (sent.flow, || summary(message.bytes()));
        let Some(upstream) = self.upstream.get_mut(&key) else {
            return Err((Rule::ForwardedOnce, format!("a request that nobody sent: {}", shown())));
        };
        let branch = super::key(&branch_of(message.via()), message.method());
        if let Some((_, index)) = self.downstream.get(&branch) {
            let known = &upstream.branches[*index];
            //= rfc3261#16.6:unique-part
            let same = known.bytes == message.bytes() && known.flow == flow;
            broken_unless(same, Rule::ForwardedOnce, || format!("repeated otherwise: {}", shown()))?;
            let moves = known.moved_in == self.step.number;
            let allowed = upstream.stateless || moves || !flow.transport.is_reliable();
            return broken_unless(allowed, Rule::Streams, || format!("repeated on a stream: {}", shown()));
        }
        let uri = message.request_uri().to_vec();
        let twice = upstream.branches.iter().any(|other| other.flow.peer == flow.peer && other.uri == uri);
        broken_unless(!twice, Rule::ForwardedOnce, || format!("two branches to one target: {}", shown()))?;
        if let Ok(request) = Message::parse(&upstream.request) {
            unchanged::check_request(&request, message, upstream.source.transport != flow.transport)?;
        }
        let policy = &self.snapshot.proxy;
        let entry = Entry { now, step: self.step.number, late: !arrived, flow, uri: &uri };
        let (q, has_others, has_lower) = upstream.enter(&entry, policy, &self.answers)?;
        // Contacts of lower q are those at the time of the request.
        let gone =
            arrived && !flow.reopen && flow.connection.is_some_and(|connection| self.closed.contains(&connection));
        let found = matches!(upstream.targets, ExpectedTargets::Contacts(_)) && gone;
        broken_unless(!found, Rule::Streams, || format!("to a connection that is closed: {}", shown()))?;
        let is_invite = message.method() == Method::Invite;
        let step = policy.fork_timeout.min(policy.ring_timeout);
        self.downstream.insert(branch, (key.clone(), upstream.branches.len()));
        upstream.branches.push(Branch {
            shard: sent.shard,
            flow,
            uri,
            q,
            opened_in: self.step.number,
            moved_in: 0,
            sent_at: now,
            bytes: message.bytes().to_vec(),
            provisional_at: None,
            // A non-INVITE does not ring: only timer F ends it.
            ring_deadline: now + if is_invite { policy.ring_timeout } else { TIMEOUT },
            has_others,
            step_deadline: (is_invite && has_lower).then(|| now + step),
            superseded: false,
            declined: false,
            lost_at: None,
            failed_at: None,
            finished: None,
            cancelled_at: None,
            responses: Vec::new(),
        });
        self.step.touched.push(key.clone());
        self.check_avoided(now, &key)
    }
}
