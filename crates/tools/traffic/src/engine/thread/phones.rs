//! Phones after a power cut: which of them register now, and the results of their registrations.

use std::sync::atomic::Ordering;

use strowger_foundation::Timestamp;

use super::{BURST, PhaseState, Worker};
use crate::engine::phones::Phones;
use crate::engine::plan::{Load, Phase};

impl Worker {
    /// Returns the phones of this thread, if the phase is an avalanche.
    pub(super) fn phones(&mut self, phase: &Phase, seed: u64, begins: Timestamp) -> Option<Phones> {
        let Load::Avalanche(how) = &phase.load else { return None };
        if let Some(end) = &mut self.caller {
            end.driver.watch_ends();
        }
        let threads = self.plan.threads.max(1);
        Some(Phones::new(how, &phase.callers, seed, (self.index, threads)).beginning(begins))
    }

    /// Begins registrations of the phones that are due.
    pub(super) fn begin_phones(&mut self, going: &mut PhaseState, what: &Phase, now: Timestamp) {
        self.tell_phones(going, now);
        let (Some(phones), Some(end)) = (&mut going.phones, &mut self.caller) else { return };
        let until = what.time.map_or(Timestamp::MAX, |time| going.begins + time);
        let is_over = phones.is_recovered() || now >= until || self.shared.stop.load(Ordering::Relaxed);
        if is_over {
            going.last_begun = Some(now.min(until));
            return;
        }
        for _ in 0..BURST {
            let Some(due) = phones.poll_due(now) else { break };
            self.dues.push(due.at);
            let script = what.mix.pick(going.seed, u64::from(due.user));
            let begun = end.driver.begin_again((now, due.at), script, (due.user, due.cseq), end.links.outbox());
            // A refusal is counted where it happens.
            if begun.is_err() {
                phones.on_held(due.user, now);
            }
        }
    }

    /// Passes ended registrations to the phones.
    pub(super) fn tell_phones(&mut self, going: &mut PhaseState, now: Timestamp) {
        let (Some(phones), Some(end)) = (&mut going.phones, &mut self.caller) else { return };
        while let Some(ended) = end.driver.take_ended() {
            phones.on_end(&ended, now);
        }
    }
}
