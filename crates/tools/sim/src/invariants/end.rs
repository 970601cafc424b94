//! Rules for the end of a run.

use core::time::Duration;

use strowger_foundation::Timestamp;
use strowger_proxy::Policy;

use super::fork::ExpectedTargets;
use super::{Branch, Invariants, Rule, SLACK, TIMEOUT, Upstream, Verdict, Violation};
use crate::invariants::broken_unless;
use crate::ladder::{seconds, summary};
use crate::server::Server;

/// Duration of the longest DNS lookup.
const MAX_ASKING: Duration = Duration::from_secs(16);

/// Coverage of the rules for forks and connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct RuleCoverage {
    /// Branches to contacts of lower preference.
    pub later_steps: u64,
    /// Branches to a second or third target.
    pub failovers: u64,
    /// Targets that responded after the server had moved on, and were cancelled.
    pub abandoned: u64,
    /// Closed connections.
    pub closed: u64,
    /// Branches whose target was unreachable.
    pub lost: u64,
    /// DNS answers.
    pub answers: u64,
}

impl RuleCoverage {
    /// Adds another coverage.
    pub const fn add(&mut self, other: &Self) {
        self.later_steps += other.later_steps;
        self.failovers += other.failovers;
        self.abandoned += other.abandoned;
        self.closed += other.closed;
        self.lost += other.lost;
        self.answers += other.answers;
    }
}

impl Invariants {
    /// Returns the coverage so far.
    #[must_use]
    pub fn coverage(&self) -> RuleCoverage {
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let mut seen = RuleCoverage {
            closed: count(self.closed.len()),
            answers: count(self.answers.len()),
            ..RuleCoverage::default()
        };
        for upstream in self.upstream.values() {
            let first = upstream.branches.first().map_or(0, |first| first.opened_in);
            let later = count(upstream.branches.iter().filter(|branch| branch.opened_in > first).count());
            match upstream.targets {
                ExpectedTargets::One => {}
                ExpectedTargets::Contacts(_) => seen.later_steps += later,
                ExpectedTargets::Targets { .. } => seen.failovers += later,
            }
            let branches = || upstream.branches.iter();
            let left = |branch: &&Branch| branch.superseded && branch.cancelled_at.is_some();
            seen.abandoned += count(branches().filter(left).count());
            seen.lost += count(branches().filter(|branch| branch.lost_at.is_some()).count());
        }
        seen
    }

    /// Checks the rules that can be checked only at the end.
    ///
    /// # Errors
    /// The first violation.
    pub fn check_end(&self, now: Timestamp, server: &Server) -> Result<(), Violation> {
        self.check_ended(now, server).map_err(|(rule, detail)| Violation { at: now, rule, detail })
    }

    fn check_ended(&self, now: Timestamp, server: &Server) -> Verdict {
        for upstream in self.upstream.values() {
            if upstream.is_invite() && !upstream.stateless {
                upstream.check_ended(&self.snapshot.proxy)?;
            } else {
                upstream.check_answered()?;
            }
        }
        let left = server.transactions();
        broken_unless(left == 0, Rule::Quiescence, || format!("{left} transactions are left"))?;
        let timer = server.next_timeout();
        broken_unless(timer.is_none(), Rule::Quiescence, || format!("a timer is left: {timer:?}"))?;
        let empty = server.locations().is_empty() && self.table.is_empty(now);
        broken_unless(empty, Rule::Quiescence, || format!("{} bindings are left", server.locations().len()))
    }
}

impl Upstream {
    /// Checks that every INVITE ended in time.
    ///
    /// The limit is timer B without a response, otherwise timer C, plus 64·T1 after a CANCEL. While the caller waits,
    /// no target of several may be silent for longer than the failover timeout.
    fn check_ended(&self, policy: &Policy) -> Verdict {
        let listed = matches!(&self.targets, ExpectedTargets::Targets { named: false, .. }) && self.branches.len() > 1;
        let silence = if listed && !self.cancelled { policy.failover_timeout.min(TIMEOUT) } else { TIMEOUT };
        let patience = |branch: &Branch| match branch.provisional_at {
            Some(at) if !branch.superseded => branch.ring_deadline.max(at) + TIMEOUT,
            _ => branch.sent_at + silence,
        };
        // A name may need a DNS lookup first, and one more for each attempt.
        let asking = if matches!(self.targets, ExpectedTargets::Targets { named: true, .. }) {
            MAX_ASKING
        } else {
            Duration::ZERO
        };
        let latest = self.branches.iter().map(patience).max().unwrap_or(self.at) + SLACK + asking;
        let ended = self.finals.first().map(|one| one.at);
        broken_unless(ended.is_some_and(|at| at <= latest), Rule::InviteEnds, || {
            let ended = ended.map_or_else(|| "never".to_owned(), seconds);
            format!("ended {ended}, not by {}: {}", seconds(latest), summary(&self.request))
        })
    }

    /// Checks that a non-INVITE is answered unless none of its branches was answered in time.
    fn check_answered(&self) -> Verdict {
        let in_time = |branch: &Branch| branch.finished.is_some_and(|(_, at)| at + SLACK < branch.sent_at + TIMEOUT);
        let silent = !self.branches.is_empty() && !self.branches.iter().all(in_time);
        broken_unless(silent || !self.finals.is_empty(), Rule::OneFinalResponse, || {
            format!("no final response: {}", summary(&self.request))
        })
    }
}
