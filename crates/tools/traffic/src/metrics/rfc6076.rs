//! The metrics of RFC 6076. Each counts only sessions that have ended in its sense: sessions in progress at the end
//! of a run are in no ratio, so a run may be cut anywhere.

use super::Calls;
use crate::time_histogram::TimeHistogram;

/// Metrics of the [`Attempt`](super::Attempt)s of one end.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Registration Request Delay: from the first REGISTER to its 200, including challenges (RFC 6076 §4.1).
    pub rrd: TimeHistogram,
    /// Session Request Delay of successful sessions: from the first INVITE to the first response other than 100,
    /// including challenges and redirections (§4.3.1).
    pub srd_successful: TimeHistogram,
    /// Session Request Delay of failed sessions (§4.3.2).
    //= rfc6076#4.3
    // The two are never combined.
    pub srd_failed: TimeHistogram,
    /// Session Disconnect Delay: from the BYE to its 2xx. A BYE without any answer has none (§4.4).
    pub sdd_successful: TimeHistogram,
    /// Session Disconnect Delay of BYEs that were refused.
    //= rfc6076#4.4
    // The two are never combined.
    pub sdd_failed: TimeHistogram,
    /// Session Duration Time: from the 200 to the INVITE to the BYE of either end (§4.5.1).
    pub sdt_successful: TimeHistogram,
    /// Session Duration Time of sessions whose BYE was given up: from the 200 to the INVITE until then (§4.5.2).
    pub sdt_failed: TimeHistogram,
    /// REGISTER requests that got a final response or were given up. Challenged and repeated requests count once.
    pub registrations: u64,
    /// Ineffective registrations: refused, other than by a challenge, or not answered (§4.2).
    pub registrations_ineffective: u64,
    /// INVITEs for new sessions that got a final response or were given up. Challenged and repeated INVITEs count
    /// once; an INVITE after a redirection counts again.
    pub invites: u64,
    /// INVITEs answered with 2xx.
    pub invites_successful: u64,
    /// INVITEs answered with 3xx.
    pub invites_redirected: u64,
    /// INVITEs answered with 480, 486, 600 or 603: failures caused by the callee.
    pub invites_declined: u64,
    /// INVITEs answered with 408, 500, 503 or 504, or not at all (§4.8).
    pub invites_ineffective: u64,
    /// Requested sessions that have ended in any way.
    pub sessions: u64,
    /// Sessions whose BYE was answered with 2xx or came from the other end (§4.9).
    pub sessions_completed: u64,
    /// Outcomes of calls for which the RFC has no metric.
    pub calls: Calls,
}

/// Value of a metric.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// In percent; `None` if undefined because the denominator is zero.
    Ratio(Option<f64>),
    /// Delays or durations.
    Times(&'a TimeHistogram),
}

/// A metric, ready for display.
#[derive(Clone, Debug)]
pub struct Figure<'a> {
    /// The RFC's abbreviation.
    pub name: &'static str,
    /// The full name.
    pub title: &'static str,
    /// The section of the RFC.
    pub section: &'static str,
    /// The unit that the RFC requires: `%`, `ms` or `s`.
    pub unit: &'static str,
    /// The value.
    pub value: Value<'a>,
}

impl Metrics {
    /// Returns the Session Establishment Ratio, in percent: INVITEs answered with 200, out of all that were not
    /// redirected (RFC 6076 §4.6).
    #[must_use]
    pub fn ser(&self) -> Option<f64> {
        percent(self.invites_successful, self.invites.saturating_sub(self.invites_redirected))
    }

    /// Returns the Session Establishment Effectiveness Ratio, in percent: as [`ser`](Self::ser), but a callee who
    /// declines is not a failure (§4.7).
    #[must_use]
    pub fn seer(&self) -> Option<f64> {
        let effective = self.invites_successful + self.invites_declined;
        percent(effective, self.invites.saturating_sub(self.invites_redirected))
    }

    /// Returns the Ineffective Session Attempts, in percent: requests that failed at a server on the way (§4.8).
    #[must_use]
    pub fn isa(&self) -> Option<f64> {
        percent(self.invites_ineffective, self.invites.saturating_sub(self.invites_redirected))
    }

    /// Returns the Session Completion Ratio, in percent (§4.9).
    #[must_use]
    pub fn scr(&self) -> Option<f64> {
        percent(self.sessions_completed, self.sessions)
    }

    /// Returns the Ineffective Registration Attempts, in percent (§4.2).
    #[must_use]
    pub fn ira(&self) -> Option<f64> {
        percent(self.registrations_ineffective, self.registrations)
    }

    /// Returns all metrics, in the order of the RFC.
    #[must_use]
    pub fn figures(&self) -> [Figure<'_>; 12] {
        let times =
            |name, title, section, unit, times| Figure { name, title, section, unit, value: Value::Times(times) };
        let ratio =
            |name, title, section, value| Figure { name, title, section, unit: "%", value: Value::Ratio(value) };
        [
            times("RRD", "registration request delay", "4.1", "ms", &self.rrd),
            ratio("IRA", "ineffective registration attempts", "4.2", self.ira()),
            times("SRD", "session request delay, successful", "4.3.1", "s", &self.srd_successful),
            times("SRD failed", "session request delay, failed", "4.3.2", "s", &self.srd_failed),
            times("SDD", "session disconnect delay, successful", "4.4", "ms", &self.sdd_successful),
            times("SDD failed", "session disconnect delay, failed", "4.4", "ms", &self.sdd_failed),
            times("SDT", "session duration, successful", "4.5.1", "s", &self.sdt_successful),
            times("SDT failed", "session duration, failed", "4.5.2", "s", &self.sdt_failed),
            ratio("SER", "session establishment ratio", "4.6", self.ser()),
            ratio("SEER", "session establishment effectiveness ratio", "4.7", self.seer()),
            ratio("ISA", "ineffective session attempts", "4.8", self.isa()),
            ratio("SCR", "session completion ratio", "4.9", self.scr()),
        ]
    }

    /// Adds the counts of another driver.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in [
            (&mut self.rrd, &other.rrd),
            (&mut self.srd_successful, &other.srd_successful),
            (&mut self.srd_failed, &other.srd_failed),
            (&mut self.sdd_successful, &other.sdd_successful),
            (&mut self.sdd_failed, &other.sdd_failed),
            (&mut self.sdt_successful, &other.sdt_successful),
            (&mut self.sdt_failed, &other.sdt_failed),
        ] {
            mine.merge(theirs);
        }
        self.calls.merge(&other.calls);
        for (mine, theirs) in [
            (&mut self.registrations, other.registrations),
            (&mut self.registrations_ineffective, other.registrations_ineffective),
            (&mut self.invites, other.invites),
            (&mut self.invites_successful, other.invites_successful),
            (&mut self.invites_redirected, other.invites_redirected),
            (&mut self.invites_declined, other.invites_declined),
            (&mut self.invites_ineffective, other.invites_ineffective),
            (&mut self.sessions, other.sessions),
            (&mut self.sessions_completed, other.sessions_completed),
        ] {
            *mine += theirs;
        }
    }
}

/// Returns `part` of `all` in percent.
//= rfc6076#4
// A ratio with a zero denominator is undefined.
#[expect(clippy::cast_precision_loss, reason = "for people")]
fn percent(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| 100.0 * part as f64 / all as f64)
}
