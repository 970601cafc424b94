//! What a worker takes of new work: its controller, and the kernel's queues and filters that follow it.

use std::time::Duration;

use strowger_foundation::{Flow, Timestamp};
use strowger_message::{Kind, Peek};
use strowger_net::PacketFilter;
use strowger_overload::{
    Controller, Offer, Pressure, Queue, Verdict, WINDOW, fingerprint, kind_of, may_be_dropped_unread, position,
    queue_of,
};
use strowger_shard::{Classified, Snapshot, Steered, begins_work};

use crate::brain::Maker;
use crate::desk::Desk;
use crate::kernel_filter::KernelFilter;
use crate::queue::NewWorkQueue;
use crate::status::OverloadStatus;

/// A worker's overload control.
#[derive(Debug)]
pub(crate) struct Admission {
    is_enabled: bool,
    controller: Controller,
    salt: u32,
    kernel: KernelFilter,
    /// When the queues are looked at next.
    next_look: Timestamp,
}

impl Admission {
    pub(crate) fn new(seed: u64, is_enabled: bool) -> Self {
        // The same for all workers: a retransmission may be received by another one than its original.
        let salt = u32::try_from(seed >> 32).unwrap_or(0);
        Self {
            is_enabled,
            controller: Controller::new(seed, is_enabled),
            salt,
            kernel: KernelFilter::default(),
            next_look: Timestamp::ZERO,
        }
    }

    pub(crate) fn pressure(&self) -> Pressure {
        self.controller.pressure()
    }

    /// Whether there is any control.
    pub(crate) fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// Whether anything is refused now.
    pub(crate) fn is_limiting(&self) -> bool {
        self.controller.is_limiting()
    }

    /// Whether the kernel drops what the controller does not want.
    pub(crate) fn is_filtered_by_kernel(&self) -> bool {
        self.kernel.is_filtering()
    }

    /// When the controller has to be looked at, whatever comes: a filter must not outlast what it is for.
    pub(crate) fn next_deadline(&self) -> Timestamp {
        let window_ends = if self.is_limiting() { self.controller.window_ends() } else { Timestamp::MAX };
        window_ends.min(self.kernel.next_deadline())
    }

    /// Whether a message is not even read: new work that the filter does not let pass. What the kernel's filter lets through need
    /// not be asked.
    pub(crate) fn filters_out(&self, message: &[u8]) -> bool {
        let filter = self.controller.filter();
        !filter.is_open()
            && queue_of(message) == Queue::NewWork
            && !filter.passes(kind_of(message), position(message, self.salt))
            && may_be_dropped_unread(message)
    }

    /// What becomes of a message that was read; `classify` says what it counts as.
    fn judge(
        &mut self,
        now: Timestamp,
        wait: Duration,
        (bytes, flow): (&[u8], &Flow),
        classify: impl FnOnce() -> Classified,
    ) -> Verdict {
        let Self { controller, kernel, salt, .. } = self;
        let is_reliable = flow.transport.is_reliable();
        let verdict = controller.handle_offer(now, wait, || {
            let Classified { class, kind, is_unlimited } = classify();
            let source = (!is_unlimited).then_some(flow.peer.ip());
            Offer { class, kind, position: position(bytes, *salt), source, is_reliable }
        });
        if verdict != Verdict::Admit && !is_reliable {
            kernel.remember(|| fingerprint(bytes, *salt));
        }
        verdict
    }

    /// Has the kernel's queues and filters follow the controller; whether it was time to look at them.
    pub(crate) fn adjust(&mut self, now: Timestamp, queues: &mut [Option<NewWorkQueue>], snapshot: &Snapshot) -> bool {
        if now < self.next_look {
            return false;
        }
        self.next_look = now + WINDOW;
        self.controller.handle_timeout(now);
        queues.iter_mut().flatten().for_each(NewWorkQueue::bound);
        let salt = self.salt;
        let rules = |filter| PacketFilter { filter, salt, trusted: snapshot.trusted_networks() };
        self.kernel.follow(now, *self.controller.filter(), queues, rules);
        self.controller.set_filter_memory(self.kernel.has_memory());
        true
    }
}

impl<M: Maker> Desk<M> {
    /// What overload control says of a message for one of this worker's shards.
    pub(crate) fn judge(
        &mut self,
        now: Timestamp,
        (arrival, flow): (Timestamp, &Flow),
        (peek, steered): (&Peek<'_>, &Steered),
        bytes: &[u8],
    ) -> Verdict {
        let begins_work = match peek.kind {
            Kind::Request(method) => begins_work(peek, method),
            Kind::Response(_) => false,
        };
        if !begins_work {
            self.admission.controller.note_in_progress();
            return Verdict::Admit;
        }
        let Self { admission, common, snapshot, .. } = self;
        let wait = now.saturating_since(arrival);
        let verdict =
            admission.judge(now, wait, (bytes, flow), || common.maker.classify(now, (peek, steered), flow, snapshot));
        self.exits.counters.shed += u64::from(verdict == Verdict::Drop);
        verdict
    }

    /// Has the kernel's queues and filters follow the controller.
    pub(crate) fn adjust_admission(&mut self, now: Timestamp) {
        let Self { admission, exits, snapshot, common, .. } = self;
        if admission.adjust(now, &mut exits.new_work, snapshot) {
            common.maker.note_pressure(exits.index, &admission.pressure());
        }
    }

    pub(crate) fn overload_status(&self) -> OverloadStatus {
        let Pressure { is_limiting, shed_permille, admitted_per_s, wait, .. } = self.admission.pressure();
        OverloadStatus {
            is_on: self.admission.is_enabled,
            limiting: usize::from(is_limiting),
            shed_permille,
            admitted_per_s: if is_limiting { admitted_per_s } else { 0 },
            wait,
            sorted_by_kernel: self.exits.new_work.iter().flatten().count(),
            filtered_by_kernel: usize::from(self.admission.is_filtered_by_kernel()),
        }
    }
}
