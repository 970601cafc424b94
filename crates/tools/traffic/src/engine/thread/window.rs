//! Selection of counted sessions: those that are due between the warm-up and the end of the measured time.

use strowger_foundation::Timestamp;

use super::publish::cpu_time;
use super::{PhaseState, Worker};
use crate::engine::plan::{Load, Phase, Plan};
use crate::metrics::accounts_of;

impl Worker {
    /// Restarts counting after the warm-up. Exactly the sessions due in the warm-up have begun by then, however late
    /// this thread is, so the counted sessions depend on the arrival law alone.
    pub(super) fn end_warm_up(&mut self, going: &mut PhaseState, now: Timestamp) {
        // A phase whose last arrival was in the warm-up is never counted.
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

    /// Stops counting sessions after the measured time. All sessions due in it have begun by then.
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

/// Returns the end of the counted arrivals, if others follow them.
pub(super) fn window_end(plan: &Plan, what: &Phase, begins: Timestamp) -> Timestamp {
    let has_rate = matches!(what.load, Load::Open(_) | Load::Closed(_));
    let time = what.time.filter(|_| what.is_measured && has_rate && !plan.cool_down.is_zero());
    time.map_or(Timestamp::MAX, |time| begins + what.warm_up + time)
}
