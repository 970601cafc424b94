//! Guards of a target's load: one for each transaction and each call. Dropping one decrements the count.

use std::sync::Arc;

use strowger_foundation::Timestamp;

use super::Target;
use crate::averages::{CoarseTime, Sample};
use crate::method::MethodClass;

/// A transaction in progress at a target, which ends when the guard is dropped.
#[derive(Debug)]
#[must_use = "dropping it ends the transaction"]
pub struct RequestGuard {
    target: Arc<Target>,
    begun: CoarseTime,
    /// The part of its work that still counts.
    work: u16,
    class: MethodClass,
    stage: Stage,
}

/// The measurement state of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No response yet. It began when the target was idle, so it measures the cost of its method.
    IdleStart,
    /// No response yet. It began when the target had other work.
    BusyStart,
    /// Got a 100 (Trying) after it began at an idle target.
    IdleStartTrying,
    /// Everything is measured.
    Measured,
}

impl RequestGuard {
    pub(crate) fn new(target: Arc<Target>, now: Timestamp, work: u16, class: MethodClass, is_alone: bool) -> Self {
        let stage = if is_alone { Stage::IdleStart } else { Stage::BusyStart };
        Self { target, begun: CoarseTime::of(now), work, class, stage }
    }

    /// Returns its target.
    #[must_use]
    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// Handles a provisional response (RFC 3261 §21.1). The first one adds to the response time. At a response other
    /// than 100 the target has done its work and waits for a person to answer, so the work stops counting, while the
    /// transaction still counts.
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

    /// Ends it with a final response.
    pub fn handle_final(self, now: Timestamp) {
        self.record_response(now, Some(self.class));
    }

    /// Ends it with a timeout, a network error or a 503. Its duration is a lower bound of the response time, so
    /// failing fast does not make a target look fast.
    pub fn handle_failure(self, now: Timestamp) {
        self.target.count_failure();
        if self.stage != Stage::Measured {
            self.target.measures().handle_timeout(now, self.begun);
        }
    }

    /// Adds the measurements of a response.
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

/// A call in progress at a target, which ends when the guard is dropped.
#[derive(Debug)]
#[must_use = "dropping it ends the call"]
pub struct CallGuard {
    target: Arc<Target>,
}

impl CallGuard {
    pub(crate) fn new(target: Arc<Target>) -> Self {
        Self { target }
    }

    /// Returns its target.
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
