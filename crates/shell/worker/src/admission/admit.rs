//! Admission of what arrives at a worker.

use std::net::IpAddr;
use std::time::Duration;

use strowger_foundation::{ConnId, Flow, HostId, Timestamp, Transport};
use strowger_message::{Kind, Peek};
use strowger_overload::{ControllerStatus, FilteredKind, Queue, Verdict, kind_of, may_be_dropped_unread, queue_of};
use strowger_shard::{ListenerState, SteeringResult, begins_work, may_begin_work};

use crate::shard_factory::ShardFactory;
use crate::shard_host::ShardHost;
use crate::source::Source;
use crate::status::OverloadStatus;

/// Retry-After of a refusal by a listener that was removed.
const DRAINING_RETRY: Duration = Duration::from_secs(5);

/// Whether a message begins new work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewWork {
    /// A response, or part of work in progress.
    No,
    Yes,
    /// Claims to be within a dialog, from an unproven source.
    Unproven,
}

impl<M: ShardFactory> ShardHost<M> {
    /// Returns the decision of overload control on a message for one of this worker's shards.
    pub(crate) fn admit(
        &mut self,
        now: Timestamp,
        (arrival, flow): (Timestamp, &Flow),
        (peek, steered): (&Peek<'_>, &SteeringResult),
        bytes: &[u8],
    ) -> Verdict {
        let wait = now.saturating_since(arrival);
        self.admission.note_wait(now, wait, bytes);
        let begins_work = self.begins_work(peek, flow);
        if begins_work == NewWork::No {
            self.admission.controller.record_in_progress();
            return Verdict::Admit;
        }
        if begins_work == NewWork::Yes && self.is_draining(flow) {
            return Verdict::Refuse { retry_after: DRAINING_RETRY };
        }
        let Self { admission, shared: common, snapshot, .. } = self;
        let verdict = admission
            .decide(now, wait, (bytes, flow), || common.factory.classify(now, (peek, steered), flow, snapshot));
        let verdict = match verdict {
            // A refusal would end the dialog for its participants, if the dialog exists.
            Verdict::Refuse { .. } if begins_work == NewWork::Unproven => Verdict::Drop,
            verdict => verdict,
        };
        self.io.counters.shed += u64::from(verdict == Verdict::Drop);
        verdict
    }

    /// Returns whether a datagram came to a listener that was removed. Connections stay in use.
    fn is_draining(&self, flow: &Flow) -> bool {
        let listener = || self.snapshot.listeners.get(flow.listener);
        flow.transport == Transport::Udp && listener().is_some_and(|own| own.state() == ListenerState::Draining)
    }

    /// Returns whether a message may be refused. While the worker is limiting, a To tag from an unproven source is
    /// not trusted.
    fn begins_work(&self, peek: &Peek<'_>, flow: &Flow) -> NewWork {
        let Kind::Request(method) = peek.kind else { return NewWork::No };
        if begins_work(peek, method) {
            NewWork::Yes
        } else if self.admission.is_limiting() && may_begin_work(method) && !self.is_known(Source::of(flow)) {
            NewWork::Unproven
        } else {
            NewWork::No
        }
    }

    /// Returns whether reading is paused on a connection that brings new work.
    pub(crate) fn should_pause(&self, connection: ConnId, peer: Source) -> bool {
        !self.admission.may_read(connection) && !self.trusts(peer)
    }

    /// Returns whether a source needs no password, because of its address or its certificate.
    fn trusts(&self, source: Source) -> bool {
        source.trunk != HostId::NONE || self.snapshot.trusts(source.ip)
    }

    /// Returns whether a source has proven who it is.
    fn is_known(&self, source: Source) -> bool {
        source.trunk != HostId::NONE || self.shared.factory.is_known(source.ip, &self.snapshot)
    }

    /// Returns whether a message of a peer is dropped unparsed.
    pub(crate) fn filters_out(&self, peer: Source, message: &[u8]) -> bool {
        self.admission.filters_out(message, || self.kind_from(peer, message))
    }

    /// Returns the kind of new work from a peer.
    fn kind_from(&self, peer: Source, message: &[u8]) -> FilteredKind {
        match kind_of(message) {
            FilteredKind::Call if self.trusts(peer) => FilteredKind::TrunkCall,
            FilteredKind::Call if self.is_known(peer) => FilteredKind::ProvenCall,
            kind => kind,
        }
    }

    /// Records a malformed datagram. In the new-work queue it uses capacity of new work.
    pub(crate) fn note_malformed(&mut self, now: Timestamp, (arrival, peer): (Timestamp, IpAddr), bytes: &[u8]) {
        self.admission.note_wait(now, now.saturating_since(arrival), bytes);
        if queue_of(bytes) == Queue::NewWork {
            let kind = self.kind_from(Source::at(peer), bytes);
            self.admission.controller.record_malformed(now, kind);
        }
    }

    /// Returns whether a message on a connection is dropped unparsed, because of the filter or because it `is_stale`
    /// new work.
    pub(crate) fn filters_out_of_stream(&mut self, peer: Source, is_stale: bool, message: &[u8]) -> bool {
        let is_old = || is_stale && queue_of(message) == Queue::NewWork && may_be_dropped_unread(message);
        let filters_out = is_old() || self.filters_out(peer, message);
        if filters_out {
            self.admission.streams.count(true);
        }
        filters_out
    }

    /// Returns whether messages of a peer may be dropped for having waited too long on its connection.
    pub(crate) fn may_be_stale(&self, peer: Source) -> bool {
        !self.trusts(peer)
    }

    /// Adjusts the kernel's queues and filters to the controller.
    pub(crate) fn adjust_admission(&mut self, now: Timestamp) {
        let Self { admission, io: exits, snapshot, version, shared: common, .. } = self;
        let load = (exits.streams.len(), exits.is_all_sorted());
        // What another process has taken over is not filtered for this one.
        let queues = if exits.is_frozen { Default::default() } else { exits.new_work.as_mut_slice() };
        if admission.adjust(now, queues, load, (snapshot, *version)) {
            admission.has_unread = exits.streams.resume_reading(|connection| admission.may_read(connection));
            common.factory.note_pressure(exits.index, &admission.pressure());
        }
    }

    pub(crate) fn overload_status(&self) -> OverloadStatus {
        let ControllerStatus { is_limiting, shed_permille, admitted_per_s, wait, .. } = self.admission.pressure();
        OverloadStatus {
            is_on: self.admission.is_enabled,
            limiting: usize::from(is_limiting),
            shed_permille,
            admitted_per_s: if is_limiting { admitted_per_s } else { 0 },
            wait,
            sorted_by_kernel: self.io.new_work.iter().flatten().count(),
            filtered_by_kernel: usize::from(self.admission.is_filtered_by_kernel()),
        }
    }
}
