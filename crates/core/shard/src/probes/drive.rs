//! Sending of probes and their results.

use core::net::SocketAddr;
use std::sync::Arc;

use strowger_balancer::HealthChange;
use strowger_foundation::{Flow, ListenerId, TagKey, Timestamp};
use strowger_locate::{Hop, Lookup};
use strowger_message::{Status, lossy};
use strowger_transaction::Kind;

use crate::boundary::Event;
use crate::callbacks::CACHE_ONLY_QUERY;
use crate::next_hops::flow_by_name;
use crate::options::OptionsRequest;
use crate::probes::{PROBE_USERS, PendingProbe, first_wait, interval_of};
use crate::route::TargetAddress;
use crate::shard::Shard;

impl Shard {
    /// Sends the probes that are due and gives up those that timed out.
    pub(crate) fn drive_probes(&mut self, now: Timestamp) {
        if self.probes.next.is_none_or(|next| next > now) {
            return;
        }
        for index in 0..self.probes.list.len() {
            let Some(probing) = self.probes.list.get_mut(index).filter(|probing| probing.due <= now) else { continue };
            let interval = probing.interval();
            if let Some(PendingProbe { client, .. }) = probing.pending.take() {
                self.proxy.transactions().stop_retransmitting(client);
                self.end_probe(now, index, false);
            } else if now.saturating_since(probing.due) > interval {
                // A shard that is new or was stopped must not probe all targets at once.
                probing.due = now + first_wait(probing.id, interval);
            } else {
                self.send_probe(now, index);
            }
        }
        self.settle_duties();
    }

    /// Handles the response to a probe.
    pub(crate) fn handle_probe_response(&mut self, now: Timestamp, user: u32, status: Status) {
        if status.is_provisional() {
            return;
        }
        let Some(index) = self.probe_of(user) else { return };
        let Some(probing) = self.probes.list.get_mut(index) else { return };
        let accept = probing.set.config().probe.as_ref().is_some_and(|probe| probe.accepts(status.code()));
        let waiting = probing.pending.take();
        self.end_probe(now, index, accept);
        if let Some(PendingProbe { flow, .. }) = waiting.filter(|_| accept) {
            self.proxy.handle_sign_of_life(now, flow);
        }
        self.settle_duties();
    }

    /// Handles a probe that could not be sent or timed out.
    pub(crate) fn handle_probe_failure(&mut self, now: Timestamp, user: u32) {
        let Some(index) = self.probe_of(user) else { return };
        if let Some(probing) = self.probes.list.get_mut(index) {
            probing.pending = None;
        }
        self.end_probe(now, index, false);
        self.settle_duties();
    }

    /// Handles probes to `peer` that could not leave this machine, which says nothing about the target.
    pub(crate) fn handle_unsent(&mut self, now: Timestamp, peer: SocketAddr) {
        for probing in &mut self.probes.list {
            if let Some(waiting) = probing.pending.take_if(|waiting| waiting.flow.peer == peer) {
                self.proxy.transactions().stop_retransmitting(waiting.client);
                probing.due = now + probing.interval();
            }
        }
        self.settle_duties();
    }

    /// Updates the time of the next probe or deed of the media hook.
    pub(crate) fn settle_duties(&mut self) {
        self.probes.settle();
        let media = self.media.as_ref().and_then(|hook| hook.next_deadline());
        let trim = Some(self.next_trim).filter(|at| *at != Timestamp::MAX);
        self.next_duty = [self.probes.poll_timeout(), media, trim].into_iter().flatten().min();
    }

    /// Returns the target whose pending probe has this user number; `None` if the probe was given up.
    fn probe_of(&self, user: u32) -> Option<usize> {
        self.probes.list.iter().position(|probing| probing.pending.is_some_and(|waiting| waiting.user == user))
    }

    /// Records the outcome of a probe.
    fn end_probe(&mut self, now: Timestamp, index: usize, good: bool) {
        let Some(probing) = self.probes.list.get_mut(index) else { return };
        let Some(probe) = &probing.set.config().probe else { return };
        probing.due = now + interval_of(probe);
        let member = probing.set.position(probing.id).and_then(|at| probing.set.members().get(at));
        let Some(member) = member else { return };
        let Some(change) = member.target.handle_probe(now, good, probe) else { return };
        let event = Event::TargetHealth {
            set: probing.set.config().name.to_string(),
            uri: lossy(member.target.uri()),
            is_up: change == HealthChange::Up,
        };
        self.report(event);
    }

    fn send_probe(&mut self, now: Timestamp, index: usize) {
        let snapshot = Arc::clone(&self.snapshot);
        let Some(probing) = self.probes.list.get(index) else { return };
        let (id, set) = (probing.id, Arc::clone(&probing.set));
        let Some(probe) = &set.config().probe else { return };
        // The latest the next action can be; this keeps an error from making it due again at once.
        self.postpone_probe(index, now + interval_of(probe));
        let Some(balanced) = snapshot.balanced(id) else { return };
        let flow = match self.flow_of_probe(now, &balanced.route_target.address) {
            ProbeAddress::Flow(flow) => flow,
            // A name that the DNS does not resolve between two probes is unreachable.
            ProbeAddress::Resolving if self.start_resolving(index) => {
                return self.postpone_probe(index, now + probe.timeout);
            }
            ProbeAddress::Unreachable | ProbeAddress::Resolving => {
                self.end_probe(now, index, false);
                return;
            }
        };
        let Some(listener) = snapshot.listeners.get(flow.listener) else { return };
        // A shard without room for a client transaction learns nothing about the target.
        let Ok(client) = self.proxy.transactions().reserve_client() else { return };
        let branch = self.proxy.own_branch(client);
        // The numbers are unique for the lifetime of any transaction; the last one is reserved.
        self.probes.sent = self.probes.sent.wrapping_add(1) % ((1 << 30) - 1);
        let user = PROBE_USERS.saturating_add(self.probes.sent);
        let tag = tag_of(self.proxy.tag_key(), user, now);
        let mut request = self.proxy.transactions().pool().take(512);
        let uri = &*balanced.route_target.uri;
        let uri = uri.split(|byte| *byte == b'?').next().unwrap_or(uri);
        OptionsRequest { listener, uri, branch: &branch, tag: tag.as_bytes() }.write(&mut request);
        let Some(probing) = self.probes.list.get_mut(index) else { return };
        probing.pending = Some(PendingProbe { client, user, flow });
        probing.is_resolving = false;
        probing.due = now + probe.timeout;
        self.proxy.transactions().start_client(now, client, Kind::NonInvite, flow, request, user);
    }

    /// Marks this target as resolving; returns whether it was not resolving before.
    fn start_resolving(&mut self, index: usize) -> bool {
        self.probes.list.get_mut(index).is_none_or(|probing| !core::mem::replace(&mut probing.is_resolving, true))
    }

    fn postpone_probe(&mut self, index: usize, due: Timestamp) {
        if let Some(probing) = self.probes.list.get_mut(index) {
            probing.due = due;
        }
    }

    /// Returns the flow of a probe.
    fn flow_of_probe(&mut self, now: Timestamp, place: &TargetAddress) -> ProbeAddress {
        let hop = match place {
            TargetAddress::Literal { address, transport } => Hop::new(transport.unwrap_or_default(), *address),
            TargetAddress::Name(question) => {
                let answer = match self.names.lookup(now, question) {
                    Lookup::Fresh(answer) => answer,
                    Lookup::Stale(answer) => {
                        self.questions.push_back((CACHE_ONLY_QUERY, question.clone()));
                        answer
                    }
                    Lookup::Miss => {
                        self.questions.push_back((CACHE_ONLY_QUERY, question.clone()));
                        return ProbeAddress::Resolving;
                    }
                };
                let located = answer.ok();
                let first = located.iter().flat_map(|located| &located.candidates).flat_map(|one| &one.hops).next();
                let Some(hop) = first else { return ProbeAddress::Unreachable };
                *hop
            }
        };
        match self.snapshot.listeners.towards(hop.transport, hop.address, ListenerId(0)) {
            Some(listener) => {
                let host = match place {
                    TargetAddress::Literal { .. } => None,
                    TargetAddress::Name(question) => Some(&question.host[..]),
                };
                flow_by_name(&self.names, listener, hop, host).map_or(ProbeAddress::Unreachable, ProbeAddress::Flow)
            }
            None => ProbeAddress::Unreachable,
        }
    }
}

/// The address of a target as far as it is known.
pub(crate) enum ProbeAddress {
    Flow(Flow),
    /// A DNS query is pending; the answer is available at the next attempt.
    Resolving,
    Unreachable,
}

//= rfc3261#8.1.1.4:unique-call-id
pub(crate) fn tag_of(key: &TagKey, user: u32, now: Timestamp) -> String {
    format!("{:016x}", key.hash64(&[b"probe", &user.to_be_bytes(), &now.as_nanos().to_be_bytes()]))
}
