//! Recurring activities of users: which are due, and when users are free again.

use std::sync::atomic::Ordering;

use strowger_foundation::Timestamp;

use super::{BURST, PhaseState, Worker};
use crate::driver::EndedSession;
use crate::engine::activities::{Activity, ActivitySchedule, CallRole, DueActivity, GapFrom};
use crate::engine::plan::{Load, Phase, Plan};

/// Returns the first times of a thread's users, for each phase with activities.
pub(super) fn prepare(plan: &Plan, index: usize) -> Vec<Option<ActivitySchedule>> {
    let of_phase = |(number, phase): (u64, &Phase)| {
        let Load::Activities(list) = &phase.load else { return None };
        let seed = crate::driver::mix(plan.seed.wrapping_add(number));
        Some(ActivitySchedule::new(list, &phase.callers, seed, (index, plan.threads.max(1))))
    };
    (0..).zip(&plan.phases).map(of_phase).collect()
}

impl Worker {
    /// Returns the schedule of this thread's users, if the phase has activities.
    pub(super) fn habits(&mut self, number: usize, phase: &Phase, begins: Timestamp) -> Option<ActivitySchedule> {
        let Load::Activities(list) = &phase.load else { return None };
        let habits = self.habits.get_mut(number).and_then(Option::take)?;
        if list.iter().any(|habit| habit.gap_from == GapFrom::End) {
            for end in [&mut self.caller, &mut self.callee].into_iter().flatten() {
                end.driver.watch_ends();
            }
        }
        Some(habits.beginning(begins))
    }

    /// Begins the activities that are due.
    pub(super) fn begin_habits(&mut self, going: &mut PhaseState, list: &[Activity], what: &Phase, now: Timestamp) {
        let Some(habits) = &mut going.habits else { return };
        for (who, end) in [(CallRole::Caller, &mut self.caller), (CallRole::Callee, &mut self.callee)] {
            let Some(end) = end else { continue };
            while let Some(EndedSession { script, caller: user, .. }) = end.driver.take_ended() {
                let does =
                    |habit: &Activity| habit.who == who && habit.gap_from == GapFrom::End && habit.mix.runs(script);
                if let Some(habit) = list.iter().position(does) {
                    habits.on_end(habit, user, now);
                }
            }
        }
        let end = what.time.map_or(Timestamp::MAX, |time| going.begins + what.warm_up + time);
        for _ in 0..BURST {
            self.end_warm_up(going, now);
            let Some(habits) = &mut going.habits else { return };
            // An activity that was due before the end of the time begins even if it is late.
            let Some(due) = habits.poll_due(now.min(end)) else { break };
            self.dues.push(due.at);
            let Some(habit) = list.get(due.habit) else { continue };
            let end = if habit.who == CallRole::Caller { &mut self.caller } else { &mut self.callee };
            let users = (due.user, if habit.who == CallRole::Caller { called(due, what) } else { due.user });
            let script = habit.mix.pick(0, due.number);
            let begun = end.as_mut().map(|end| end.driver.begin_late((now, due.at), script, users, end.links.outbox()));
            // A refusal is counted where it happens.
            if !matches!(begun, Some(Ok(()))) {
                habits.on_end(due.habit, due.user, now);
            }
        }
        let is_over = now >= end && going.next_arrival().is_none_or(|at| at > end);
        if is_over || self.shared.stop.load(Ordering::Relaxed) {
            going.last_begun = Some(now);
        }
    }
}

/// Returns the user that a user calls: any but itself.
fn called(due: DueActivity, what: &Phase) -> u32 {
    let others = what.callees.clone();
    let count = others.end.saturating_sub(others.start).max(1);
    let picked = |number: u64| others.start + u32::try_from(number % u64::from(count)).unwrap_or(0);
    let callee = picked(due.number);
    if callee == due.user { picked(due.number.wrapping_add(1)) } else { callee }
}
