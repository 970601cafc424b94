//! Who has failed to log in recently, for people who look after the server.

use std::collections::VecDeque;
use std::net::IpAddr;

use strowger_control::protocol::{Failure, Failures};
use strowger_foundation::Timestamp;

/// Maximum number of entries: an address, a kind and a user each. The one that failed longest ago gives way to a new one.
pub(crate) const MAX_FAILURES: usize = 1_000;

/// Somebody who has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailedLogIn {
    pub(crate) event: &'static str,
    pub(crate) ip: IpAddr,
    pub(crate) transport: &'static str,
    pub(crate) user: Option<String>,
    pub(crate) is_proven: bool,
    pub(crate) is_exempt: bool,
}

struct Entry {
    last: FailedLogIn,
    count: u64,
    first_at: Timestamp,
    last_at: Timestamp,
}

/// Recent failures, the latest last.
#[derive(Default)]
pub(crate) struct RecentFailures(VecDeque<Entry>);

impl RecentFailures {
    /// Adds a failure. The number of calls is limited by that of log lines.
    pub(crate) fn push(&mut self, now: Timestamp, failed: FailedLogIn) {
        let key = |one: &FailedLogIn| (one.event, one.ip);
        let known = self.0.iter().rposition(|entry| key(&entry.last) == key(&failed) && entry.last.user == failed.user);
        let earlier = known.and_then(|at| self.0.remove(at));
        if self.0.len() == MAX_FAILURES {
            self.0.pop_front();
        }
        let (count, first_at) = earlier.map_or((0, now), |entry| (entry.count, entry.first_at));
        self.0.push_back(Entry { last: failed, count: count + 1, first_at, last_at: now });
    }

    /// Lists failures, the most recent first.
    pub(crate) fn list(&self, now: Timestamp, limit: usize) -> Failures {
        let seconds = |at: Timestamp| now.saturating_since(at).as_secs_f64();
        let failure = |Entry { last, count, first_at, last_at }: &Entry| Failure {
            event: last.event.to_owned(),
            address: last.ip.to_string(),
            transport: last.transport.to_owned(),
            user: last.user.clone(),
            count: *count,
            first_s: seconds(*first_at),
            last_s: seconds(*last_at),
            proven: last.is_proven,
            exempt: last.is_exempt,
        };
        Failures { failures: self.0.iter().rev().take(limit).map(failure).collect(), more: self.0.len() > limit }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    fn failed(number: u32, user: &str) -> FailedLogIn {
        FailedLogIn {
            event: "wrong-password",
            ip: Ipv4Addr::from(0x0A00_0000 + number).into(),
            transport: "udp",
            user: Some(user.to_owned()),
            is_proven: true,
            is_exempt: false,
        }
    }

    #[test]
    fn failures_are_counted_by_source_and_user_and_the_latest_comes_first() {
        let mut recent = RecentFailures::default();
        let at = |s: u64| Timestamp::ZERO + Duration::from_secs(s);
        recent.push(at(1), failed(1, "alice"));
        recent.push(at(2), failed(2, "alice"));
        recent.push(at(3), failed(1, "bob"));
        recent.push(at(4), failed(1, "alice"));
        let found = recent.list(at(10), 2);
        assert!(found.more);
        let shown: Vec<_> =
            found.failures.iter().map(|one| (&*one.address, one.count, one.first_s, one.last_s)).collect();
        assert_eq!(shown, [("10.0.0.1", 2, 9.0, 6.0), ("10.0.0.1", 1, 7.0, 7.0)]);
    }

    #[test]
    fn they_are_limited() {
        let mut recent = RecentFailures::default();
        (0..5_000).for_each(|number| recent.push(Timestamp::ZERO, failed(number, "alice")));
        let found = recent.list(Timestamp::ZERO, usize::MAX);
        assert_eq!((found.failures.len(), found.more), (MAX_FAILURES, false));
        assert_eq!(found.failures[0].address, "10.0.19.135", "the last one");
    }
}
