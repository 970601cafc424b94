//! Faults of members and engines.

use std::thread::sleep;

use super::{PEACE, STANDSTILL, Size, Trial};

/// One in this many engine kills coincides with a member kill.
const BOTH_ONE_OF: u32 = 5;
/// Engine isolations per member isolation.
const MEMBER_ONE_OF: u32 = 2;

/// A fault to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    MemberKilled,
    MemberStopped,
    MemberCutOff,
    EngineKilled,
    EngineStopped,
    EngineCutOff,
    BothKilled,
}

/// Returns the configured number of each fault, evenly mixed.
pub(super) fn plan(size: &Size) -> Vec<Fault> {
    // Killing both at once loses what is not on the disk, so it is tried only in write-through mode.
    let both = if size.store == "write-through" { size.engine_kills / BOTH_ONE_OF } else { 0 };
    let counts = [
        (Fault::MemberKilled, size.member_kills - both.min(size.member_kills)),
        (Fault::EngineKilled, size.engine_kills - both),
        (Fault::BothKilled, both),
        (Fault::EngineCutOff, size.partitions),
        (Fault::MemberCutOff, size.partitions / MEMBER_ONE_OF),
        (Fault::MemberStopped, size.stops),
        (Fault::EngineStopped, size.stops),
    ];
    // Faults of each kind are spread evenly over the run.
    let spread = counts.into_iter().flat_map(|(fault, count)| {
        (0..count).map(move |number| (f64::from(2 * number + 1) / f64::from(2 * count), fault))
    });
    let mut all: Vec<(f64, Fault)> = spread.collect();
    all.sort_by(|(one, _), (next, _)| one.total_cmp(next));
    all.into_iter().map(|(_, fault)| fault).collect()
}

impl Trial {
    /// Injects a fault and waits until it is over.
    pub(super) fn suffer(&mut self, fault: Fault) {
        sleep(PEACE);
        let member = self.turn % self.members.len();
        self.turn += 1;
        match fault {
            Fault::MemberKilled => self.kill_member(member),
            Fault::MemberStopped => self.members[member].server.pause(STANDSTILL),
            Fault::MemberCutOff => self.cut_off_member(member),
            Fault::EngineKilled => self.kill_engine(),
            Fault::EngineStopped => self.stop_engine(),
            Fault::EngineCutOff => self.cut_off_engine(),
            Fault::BothKilled => self.kill_both(member),
        }
        match fault {
            Fault::MemberKilled => self.faults.member_kills += 1,
            Fault::EngineKilled => self.faults.engine_kills += 1,
            Fault::MemberStopped | Fault::EngineStopped => self.faults.stops += 1,
            Fault::BothKilled => {
                self.faults.member_kills += 1;
                self.faults.engine_kills += 1;
            }
            // Counted only where isolation was possible.
            Fault::MemberCutOff | Fault::EngineCutOff => {}
        }
    }

    fn kill_member(&mut self, member: usize) {
        let member = &mut self.members[member];
        member.server.kill();
        sleep(PEACE);
        member.server.restart_on(&member.machine);
    }

    fn cut_off_member(&mut self, member: usize) {
        if !self.lan.can_cut_off() {
            return;
        }
        let place = self.members[member].place;
        self.lan.cut_off(place);
        sleep(STANDSTILL);
        self.lan.heal(place);
        self.faults.members_cut_off += 1;
    }

    fn kill_engine(&mut self) {
        let victim = self.engines.victim();
        self.engines.kill(victim);
        self.engines.fail_over(victim);
        sleep(PEACE);
        self.engines.start_again(victim);
        self.engines.restore();
    }

    fn stop_engine(&mut self) {
        let victim = self.engines.victim();
        self.engines.freeze(victim);
        if self.engines.fail_over_by_themselves() {
            self.engines.fail_over(victim);
        } else {
            sleep(STANDSTILL);
        }
        self.engines.go_on(victim);
        if self.engines.fail_over_by_themselves() {
            self.engines.restore();
        }
    }

    fn cut_off_engine(&mut self) {
        if !self.lan.can_cut_off() {
            return;
        }
        // Engines are on the first machines.
        let victim = self.engines.victim();
        self.lan.cut_off(victim);
        sleep(STANDSTILL);
        self.engines.fail_over(victim);
        sleep(PEACE);
        self.lan.heal(victim);
        self.engines.restore();
        self.faults.partitions += 1;
    }

    fn kill_both(&mut self, member: usize) {
        let victim = self.engines.victim();
        self.engines.kill(victim);
        self.members[member].server.kill();
        self.engines.fail_over(victim);
        self.engines.start_again(victim);
        let member = &mut self.members[member];
        member.server.restart_on(&member.machine);
        self.engines.restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_has_the_wanted_counts() {
        let plan = plan(&Size::FULL);
        let count = |wanted: &[Fault]| plan.iter().filter(|fault| wanted.contains(fault)).count();
        assert_eq!(count(&[Fault::MemberKilled, Fault::BothKilled]), 50);
        assert_eq!(count(&[Fault::EngineKilled, Fault::BothKilled]), 20);
        assert_eq!((count(&[Fault::EngineCutOff]), count(&[Fault::MemberCutOff])), (10, 5));
        assert_eq!((count(&[Fault::MemberStopped]), count(&[Fault::EngineStopped])), (5, 5));
        let first: Vec<_> = plan[..plan.len() / 2].iter().filter(|fault| **fault == Fault::EngineKilled).collect();
        assert_eq!(first.len(), 8, "half of them in the first half");
    }
}
