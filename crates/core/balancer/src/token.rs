//! What exists of a target's load: a token for each transaction and each call. To drop one is to uncount it.

use std::sync::Arc;

use strowger_foundation::Timestamp;

use crate::measure::{Moment, Sample};
use crate::method::MethodClass;
use crate::target::Target;

/// A transaction in progress at a target. Dropped, it is over.
#[derive(Debug)]
#[must_use = "to drop it is to end the transaction"]
pub struct Work {
    target: Arc<Target>,
    begun: Moment,
    /// What of its work is still counted.
    work: u16,
    class: MethodClass,
    stage: Stage,
}

/// What has been heard of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing. It began when the target had nothing else to do, so it will show what its method costs.
    Alone,
    /// Nothing. It began beside others.
    Beside,
    /// A 100 (Trying), where it began alone.
    AloneTried,
    /// All that is to be measured.
    Heard,
}

impl Work {
    pub(crate) fn new(target: Arc<Target>, now: Timestamp, work: u16, class: MethodClass, is_alone: bool) -> Self {
        let stage = if is_alone { Stage::Alone } else { Stage::Beside };
        Self { target, begun: Moment::of(now), work, class, stage }
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
            self.hear(now, None);
            self.stage = match self.stage {
                Stage::Alone | Stage::AloneTried => Stage::AloneTried,
                Stage::Beside | Stage::Heard => Stage::Heard,
            };
            return;
        }
        self.hear(now, Some(self.class));
        self.stage = Stage::Heard;
        self.target.lighten(core::mem::take(&mut self.work));
    }

    /// Over with a final response.
    pub fn handle_final(self, now: Timestamp) {
        self.hear(now, Some(self.class));
    }

    /// Over without one that counts: silence, an error of the network, or a 503. That took at least as long as it did, and
    /// failing fast does not make a target fast.
    pub fn handle_failure(self, now: Timestamp) {
        self.target.count_failure();
        if self.stage != Stage::Heard {
            self.target.measures().handle_silence(now, self.begun);
        }
    }

    /// Takes the times that this response tells.
    fn hear(&self, now: Timestamp, done: Option<MethodClass>) {
        self.target.note_answer(now);
        let sample = Sample { now, begun: self.begun };
        if matches!(self.stage, Stage::Alone | Stage::Beside) {
            self.target.measures().handle_response(sample);
        }
        if let (Some(class), Stage::Alone | Stage::AloneTried) = (done, self.stage) {
            self.target.measures().handle_cost(sample, class);
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.target.end(self.work);
    }
}

/// A call in progress at a target. Dropped, it is over.
#[derive(Debug)]
#[must_use = "to drop it is to end the call"]
pub struct Seat {
    target: Arc<Target>,
}

impl Seat {
    pub(crate) fn new(target: Arc<Target>) -> Self {
        Self { target }
    }

    /// Where it is.
    #[must_use]
    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.target.leave();
    }
}

// A million calls and their transactions have one of these each.
const _: () = assert!(size_of::<Work>() == 16 && size_of::<Option<Work>>() == 16);
const _: () = assert!(size_of::<Seat>() == 8 && size_of::<Option<Seat>>() == 8);
