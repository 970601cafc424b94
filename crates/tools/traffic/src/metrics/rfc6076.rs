//! The metrics of RFC 6076. Each counts sessions that have come to the end it asks about: those that still go on when a
//! run ends are in no ratio, so that a run may be cut anywhere.

use super::Calls;
use crate::time_histogram::TimeHistogram;

/// What [`Attempt`](super::Attempt)s have come to, at one end.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Registration Request Delay: from the first REGISTER to its 200, challenges included (RFC 6076 §4.1).
    pub rrd: TimeHistogram,
    /// Session Request Delay of sessions that came about: from the first INVITE to the first response that says something
    /// of the callee (not 100), challenges and redirections included (§4.3.1).
    pub srd_successful: TimeHistogram,
    /// The same of sessions that failed (§4.3.2).
    //= rfc6076#4.3
    // The two are never added up.
    pub srd_failed: TimeHistogram,
    /// Session Disconnect Delay: from the BYE to its 2xx; of BYEs without any answer there is none (§4.4).
    pub sdd_successful: TimeHistogram,
    /// The same where the BYE was refused.
    //= rfc6076#4.4
    // The two are never added up.
    pub sdd_failed: TimeHistogram,
    /// Session Duration Time: from the 200 to the INVITE to the BYE, whoever sends it (§4.5.1).
    pub sdt_successful: TimeHistogram,
    /// From the 200 to the INVITE until the BYE was given up (§4.5.2).
    pub sdt_failed: TimeHistogram,
    /// REGISTER requests that were answered finally or given up; challenged and repeated ones count once.
    pub registrations: u64,
    /// Ineffective ones: refused (but for challenges), or not answered (§4.2).
    pub registrations_ineffective: u64,
    /// INVITEs that ask for a new session, and were answered finally or given up; challenged and repeated ones count once, one
    /// that follows a redirection anew.
    pub invites: u64,
    /// Those answered 2xx.
    pub invites_successful: u64,
    /// Those answered 3xx.
    pub invites_redirected: u64,
    /// Those answered 480, 486, 600 or 603: the callee's own doing.
    pub invites_declined: u64,
    /// Those answered 408, 500, 503 or 504, or not at all (§4.8).
    pub invites_ineffective: u64,
    /// Sessions that were asked for, and have ended one way or another.
    pub sessions: u64,
    /// Those whose BYE was answered 2xx, or came from the other end (§4.9).
    pub sessions_completed: u64,
    /// What the RFC has no metric for.
    pub calls: Calls,
}

/// What a metric comes to.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// In percent; `None` where it is undefined: there is nothing to divide by.
    Ratio(Option<f64>),
    /// A delay or a duration.
    Times(&'a TimeHistogram),
}

/// A metric, ready to be shown.
#[derive(Clone, Debug)]
pub struct Figure<'a> {
    /// As the RFC abbreviates it.
    pub name: &'static str,
    /// What that means.
    pub title: &'static str,
    /// Its section.
    pub section: &'static str,
    /// Its unit as the RFC wants it: `%`, `ms` or `s`.
    pub unit: &'static str,
    /// Its value.
    pub value: Value<'a>,
}

impl Metrics {
    /// Session Establishment Ratio: INVITEs answered 200, of all but those that were redirected, in percent (RFC 6076 §4.6).
    #[must_use]
    pub fn ser(&self) -> Option<f64> {
        percent(self.invites_successful, self.invites.saturating_sub(self.invites_redirected))
    }

    /// Session Establishment Effectiveness Ratio: as [`ser`](Self::ser), and a callee who does not want to is no fault (§4.7).
    #[must_use]
    pub fn seer(&self) -> Option<f64> {
        let effective = self.invites_successful + self.invites_declined;
        percent(effective, self.invites.saturating_sub(self.invites_redirected))
    }

    /// Ineffective Session Attempts: requests that a server in between gave up, in percent (§4.8).
    #[must_use]
    pub fn isa(&self) -> Option<f64> {
        percent(self.invites_ineffective, self.invites.saturating_sub(self.invites_redirected))
    }

    /// Session Completion Ratio, in percent (§4.9).
    #[must_use]
    pub fn scr(&self) -> Option<f64> {
        percent(self.sessions_completed, self.sessions)
    }

    /// Ineffective Registration Attempts, in percent (§4.2).
    #[must_use]
    pub fn ira(&self) -> Option<f64> {
        percent(self.registrations_ineffective, self.registrations)
    }

    /// All of them, in the order of the RFC.
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

    /// Adds another driver's.
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

/// `part` of `all` in percent.
//= rfc6076#4
// Where there is nothing to divide by, a ratio is undefined.
#[expect(clippy::cast_precision_loss, reason = "for people")]
fn percent(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| 100.0 * part as f64 / all as f64)
}
