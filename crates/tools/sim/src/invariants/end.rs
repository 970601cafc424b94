//! Rules for the end, when all is quiet.

use strowger_foundation::Timestamp;

use super::requests::broken_unless;
use super::{Branch, Invariants, Rule, SLACK, TIMEOUT, Upstream, Verdict, Violation};
use crate::ladder::summary;
use crate::server::Server;
use crate::world::seconds;

impl Invariants {
    /// Checks what can be known only now.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check_end(&self, now: Timestamp, server: &Server) -> Result<(), Violation> {
        self.check_ended(now, server).map_err(|(rule, detail)| Violation { at: now, rule, detail })
    }

    fn check_ended(&self, now: Timestamp, server: &Server) -> Verdict {
        for upstream in self.upstream.values() {
            if upstream.is_invite() && !upstream.stateless {
                upstream.check_ended()?;
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
    /// Timer B where nothing was heard, else Timer C, and 64·T1 after its CANCEL.
    fn check_ended(&self) -> Verdict {
        let patience = |branch: &Branch| match branch.provisional_at {
            Some(at) => branch.ring_deadline.max(at) + TIMEOUT,
            None => branch.sent_at + TIMEOUT,
        };
        let latest = self.branches.iter().map(patience).max().unwrap_or(self.at) + SLACK;
        let ended = self.finals.first().map(|one| one.at);
        broken_unless(ended.is_some_and(|at| at <= latest), Rule::InviteEnds, || {
            let ended = ended.map_or_else(|| "never".to_owned(), seconds);
            format!("ended {ended}, not by {}: {}", seconds(latest), summary(&self.request))
        })
    }

    /// A non-INVITE is answered unless none of its branches was, in time.
    fn check_answered(&self) -> Verdict {
        let in_time = |branch: &Branch| branch.finished.is_some_and(|(_, at)| at + SLACK < branch.sent_at + TIMEOUT);
        let silent = !self.branches.is_empty() && !self.branches.iter().all(in_time);
        broken_unless(silent || !self.finals.is_empty(), Rule::OneFinalResponse, || {
            format!("no final response: {}", summary(&self.request))
        })
    }
}
