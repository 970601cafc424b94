//! Admission of new work: the worker's controller, and the kernel filter that follows it.

use core::time::Duration;

use strowger_foundation::{Flow, Timestamp};
use strowger_message::{Kind, Peek};
use strowger_overload::{
    Controller, FilteredKind, OfferedRequest, Queue, Verdict, WINDOW, may_be_dropped_unread, position, queue_of,
};
use strowger_shard::{Classification, Classifier, SteeringResult, begins_work};

use super::kernel::Kernel;
use super::kernel_filter::KernelFilter;

/// Overload control of a worker.
#[derive(Debug)]
pub(super) struct Admission {
    controller: Controller,
    salt: u32,
    /// Time of the next kernel adjustment.
    next_look: Timestamp,
}

impl Admission {
    /// Creates a control; a disabled one never rejects anything.
    pub(super) fn new(seed: u64, salt: u32, is_enabled: bool) -> Self {
        Self { controller: Controller::new(seed, is_enabled), salt, next_look: Timestamp::ZERO }
    }

    /// Returns the time at which the controller must run even without input: a filter must not outlast its reason.
    pub(super) fn next_deadline(&self, filter: &KernelFilter) -> Timestamp {
        let window_ends = if self.controller.is_limiting() { self.controller.window_ends() } else { Timestamp::MAX };
        window_ends.min(filter.next_deadline()).max(self.next_look)
    }

    /// Returns whether a message is dropped before it is parsed.
    pub(super) fn filters_out(&self, kind: FilteredKind, bytes: &[u8]) -> bool {
        !self.controller.filter().is_open()
            && queue_of(bytes) == Queue::NewWork
            && !self.controller.passes(kind, position(bytes, self.salt))
            && may_be_dropped_unread(bytes)
    }

    /// Returns the verdict on a message that was read at `now`.
    pub(super) fn judge(
        &mut self,
        (now, arrival): (Timestamp, Timestamp),
        (bytes, flow): (&[u8], &Flow),
        filter: &mut KernelFilter,
        (classifier, peek, steered): (&Classifier<'_>, &Peek<'_>, &SteeringResult),
    ) -> Verdict {
        if queue_of(bytes) == Queue::NewWork {
            self.controller.record_wait(now, 0, now.saturating_since(arrival));
        }
        let begins_work = match peek.kind {
            Kind::Request(method) => begins_work(peek, method),
            Kind::Response(_) => false,
        };
        if !begins_work {
            self.controller.record_in_progress();
            return Verdict::Admit;
        }
        let salt = self.salt;
        let verdict = self.offer(now, now.saturating_since(arrival), || {
            let Classification { class, kind, is_unlimited, is_proven } = classifier.classify(now, peek, steered, flow);
            let source = (!is_unlimited).then_some(flow.peer.ip());
            OfferedRequest { class, kind, position: position(bytes, salt), source, is_proven, is_reliable: false }
        });
        if verdict != Verdict::Admit {
            filter.remember(bytes);
        }
        verdict
    }

    /// Asks the controller about new work that has waited for `wait`.
    fn offer(&mut self, now: Timestamp, wait: Duration, offer: impl FnOnce() -> OfferedRequest) -> Verdict {
        self.controller.handle_request(now, wait, offer)
    }

    /// Applies the controller's filter to the kernel, once per window.
    pub(super) fn adjust(&mut self, now: Timestamp, kernel: &mut Kernel) {
        if now < self.next_look {
            return;
        }
        self.next_look = now + WINDOW;
        self.controller.handle_timeout(now);
        kernel.filter.follow(now, *self.controller.filter(), self.controller.is_limiting());
        self.controller.set_filter_abilities(kernel.filter.abilities());
        kernel.adjust_bound(self.controller.queue_bound());
    }
}
