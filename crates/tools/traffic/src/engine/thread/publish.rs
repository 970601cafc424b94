//! What a thread publishes: its progress, and the report at the end of a phase.

use std::sync::LazyLock;
use std::sync::mpsc::Sender;
use std::time::Duration;

use super::endpoint::Endpoint;
use super::{PhaseState, Worker};
use crate::engine::activities::CallRole;
use crate::engine::links::LinkCounts;
use crate::engine::{PhaseReport, Phones};
use crate::meter::Meter;
use crate::metrics::accounts_of;
use crate::time_histogram::TimeHistogram;

impl Worker {
    /// Publishes the sockets' counts, or all counts.
    pub(super) fn publish(&self, all: bool) {
        let Some(Ok(mut place)) = self.shared.progress.get(self.index).map(|place| place.lock()) else { return };
        place.links = self.link_counts();
        if all {
            let meter =
                |end: &Option<Endpoint>| end.as_ref().map_or_else(Meter::default, |end| end.driver.meter().clone());
            (place.caller, place.callee) = (meter(&self.caller), meter(&self.callee));
        }
    }

    pub(super) fn link_counts(&self) -> LinkCounts {
        let mut sum = LinkCounts::default();
        for end in [&self.caller, &self.callee].into_iter().flatten() {
            sum.merge(&end.counts());
        }
        sum
    }

    pub(super) fn service_drops(&self) -> u64 {
        self.callee.as_ref().and_then(|end| end.service.as_ref()).map_or(0, |service| service.dropped)
    }

    pub(super) fn forgotten(&self) -> u64 {
        [&self.caller, &self.callee].into_iter().flatten().map(|end| end.driver.forgotten()).sum()
    }

    /// Returns the counts of one end; empty ones if the end is elsewhere.
    pub(super) fn meter_of(&self, who: CallRole) -> &Meter {
        static NOTHING: LazyLock<Meter> = LazyLock::new(Meter::default);
        let end = if who == CallRole::Caller { &self.caller } else { &self.callee };
        end.as_ref().map_or(&NOTHING, |end| end.driver.meter())
    }

    /// Returns how long messages waited to be read, at both ends.
    pub(super) fn unread_times(&self) -> TimeHistogram {
        let mut sum = self.meter_of(CallRole::Caller).unread.clone();
        sum.merge(&self.meter_of(CallRole::Callee).unread);
        sum
    }

    /// Sends the report of a phase.
    pub(super) fn report(&mut self, going: &PhaseState, reports: &Sender<(usize, PhaseReport)>) {
        let Some(what) = self.plan.phases.get(going.phase) else { return };
        let now = self.clock.now();
        let ended = going.last_begun.unwrap_or(now).min(now).min(going.counted_until);
        let meter = |end: &Option<Endpoint>| {
            let end = end.as_ref().filter(|_| going.is_warm);
            end.map_or_else(Meter::default, |end| end.driver.final_counts(now))
        };
        let own = self.meter_of(what.role);
        let all = (own.success_times(), accounts_of(own).carried);
        let (carried_in_time, carried_behind) = match going.carried_in_time.unwrap_or(all) {
            _ if !going.is_warm => (0, 0),
            (in_time, counted) => (in_time, all.1.saturating_sub(counted)),
        };
        let mut series = going.series.clone();
        let links = self.link_counts();
        let mut cpu = cpu_time().saturating_sub(going.cpu_before);
        let mut service_drops = self.service_drops() - going.drops_before;
        if going.is_warm {
            series.record(now.saturating_since(going.counted_from), self.meter_of(what.role), &self.unread_times());
        } else {
            (cpu, service_drops) = (Duration::ZERO, 0);
        }
        let report = PhaseReport {
            name: what.name.clone(),
            is_measured: what.is_measured,
            role: what.role,
            counted_from: going.counted_from,
            elapsed: ended.saturating_since(going.counted_from),
            carried_in_time,
            carried_behind,
            is_warm: going.is_warm,
            is_used_up: going.is_used_up,
            recovery: going.phones.as_ref().map(Phones::recovery),
            users: going.habits.as_ref().map(|_| what.callers.end - what.callers.start),
            scripts: Vec::new(),
            caller: meter(&self.caller),
            callee: meter(&self.callee),
            links: links.since(&going.links_before),
            cpu,
            service_drops,
            forgotten: self.forgotten() - going.forgotten_before,
            series,
        };
        // The receiver is gone only if the run has already failed.
        let _ = reports.send((going.phase, report));
    }
}

/// Returns the CPU time of this thread so far.
pub(super) fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}
