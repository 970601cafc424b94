//! Which sessions are counted: those that are due between the warm-up and the end of the measured time.

use strowger_foundation::Timestamp;

use super::publish::cpu_time;
use super::{PhaseState, Worker};
use crate::engine::plan::{Load, Phase, Plan};
use crate::metrics::accounts_of;

impl Worker {
    /// Counts anew behind the warm-up: who is due in it has begun by then and nobody else, however late this thread is, so
    /// that what is counted depends on the law of arrivals alone.
    pub(super) fn end_warm_up(&mut self, going: &mut PhaseState, now: Timestamp) {
        // What had its last arrival in the warm-up is never counted.
        if going.is_warm || now < going.counted_from || going.last_begun.is_some_and(|last| last < going.counted_from) {
            return;
        }
        if going.next_arrival().is_some_and(|at| at < going.counted_from) {
            return;
        }
        going.is_warm = true;
        self.dues.clear();
        going.first_counted = going.number;
        for end in [&mut self.caller, &mut self.callee].into_iter().flatten() {
            end.driver.restart_meter();
        }
        (going.links_before, going.cpu_before) = (self.link_counts(), cpu_time());
        (going.drops_before, going.forgotten_before) = (self.service_drops(), self.forgotten());
    }

    /// Counts no further sessions behind the measured time: whoever is due in it has begun by then.
    pub(super) fn end_window(&mut self, going: &mut PhaseState, now: Timestamp) {
        let is_over = now >= going.counted_until && going.next_arrival().is_none_or(|at| at >= going.counted_until);
        if going.is_cooling || !is_over {
            return;
        }
        going.is_cooling = true;
        if let Some(what) = self.plan.phases.get(going.phase) {
            let meter = self.meter_of(what.role);
            going.carried_in_time = Some((meter.success_times(), accounts_of(meter).carried));
        }
        self.note_lateness(now, going);
        for end in [&mut self.caller, &mut self.callee].into_iter().flatten() {
            end.driver.stop_counting();
        }
    }
}

/// Until when sessions are counted that begin, where others begin behind them.
pub(super) fn window_end(plan: &Plan, what: &Phase, begins: Timestamp) -> Timestamp {
    let has_rate = matches!(what.load, Load::Open(_) | Load::Closed(_));
    let time = what.time.filter(|_| what.is_measured && has_rate && !plan.cool_down.is_zero());
    time.map_or(Timestamp::MAX, |time| begins + what.warm_up + time)
}
