//! What exists of a target's load: a token for each transaction and each call. To drop one is to uncount it.

use std::sync::Arc;

use strowger_foundation::Timestamp;

use crate::averages::{CoarseTime, Sample};
use crate::method::MethodClass;
use crate::target::Target;

/// A transaction in progress at a target. Dropped, it is over.
#[derive(Debug)]
#[must_use = "to drop it is to end the transaction"]
pub struct RequestGuard {
    target: Arc<Target>,
    begun: CoarseTime,
    /// What of its work is still counted.
    work: u16,
    class: MethodClass,
    stage: Stage,
}

/// What has been heard of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing. It began when the target had nothing else to do, so it will show what its method costs.
    IdleStart,
    /// Nothing. It began beside others.
    BusyStart,
    /// A 100 (Trying), where it began alone.
    IdleStartTrying,
    /// All that is to be measured.
    Measured,
}

impl RequestGuard {
    pub(crate) fn new(target: Arc<Target>, now: Timestamp, work: u16, class: MethodClass, is_alone: bool) -> Self {
        let stage = if is_alone { Stage::IdleStart } else { Stage::BusyStart };
        Self { target, begun: CoarseTime::of(now), work, class, stage }
    }

    /// Where it is.
    #[must_use]
    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// A provisional response came (RFC 3261 §21.1). The first one feeds the response time. With one that is not 100 the target
    /// has done its work and waits for a person to answer, so the work counts no more, though the transaction does.
    pub fn handle_provisional(&mut self, now: Timestamp, status: u16) {
        if status == 100 {
            self.record_response(now, None);
            self.stage = match self.stage {
                Stage::IdleStart | Stage::IdleStartTrying => Stage::IdleStartTrying,
                Stage::BusyStart | Stage::Measured => Stage::Measured,
            };
            return;
        }
        self.record_response(now, Some(self.class));
        self.stage = Stage::Measured;
        self.target.release_work(core::mem::take(&mut self.work));
    }

    /// Over with a final response.
    pub fn handle_final(self, now: Timestamp) {
        self.record_response(now, Some(self.class));
    }

    /// Over without one that counts: silence, an error of the network, or a 503. That took at least as long as it did, and
    /// failing fast does not make a target fast.
    pub fn handle_failure(self, now: Timestamp) {
        self.target.count_failure();
        if self.stage != Stage::Measured {
            self.target.measures().handle_timeout(now, self.begun);
        }
    }

    /// Takes the times that this response tells.
    fn record_response(&self, now: Timestamp, done: Option<MethodClass>) {
        self.target.record_response(now);
        let sample = Sample { now, begun: self.begun };
        if matches!(self.stage, Stage::IdleStart | Stage::BusyStart) {
            self.target.measures().handle_response(sample);
        }
        if let (Some(class), Stage::IdleStart | Stage::IdleStartTrying) = (done, self.stage) {
            self.target.measures().handle_cost(sample, class);
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.target.end_request(self.work);
    }
}

/// A call in progress at a target. Dropped, it is over.
#[derive(Debug)]
#[must_use = "to drop it is to end the call"]
pub struct CallGuard {
    target: Arc<Target>,
}

impl CallGuard {
    pub(crate) fn new(target: Arc<Target>) -> Self {
        Self { target }
    }

    /// Where it is.
    #[must_use]
    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.target.end_call();
    }
}

// A million calls and their transactions have one of these each.
const _: () = assert!(size_of::<RequestGuard>() == 16 && size_of::<Option<RequestGuard>>() == 16);
const _: () = assert!(size_of::<CallGuard>() == 8 && size_of::<Option<CallGuard>>() == 8);
