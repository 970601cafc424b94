//! A session's pending request: the state that the metrics of RFC 6076 need for each session.

use std::time::Duration;

use strowger_foundation::Timestamp;

use super::Metrics;
use crate::script::{MethodId, SessionResult};

/// State of a session for the metrics of RFC 6076. It is notified of each message that is sent or received for the
/// first time.
//= rfc6076#4
// Times start at the first transmission. Retransmissions, and requests repeated with credentials, do not restart
// them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attempt {
    stage: Stage,
    /// When the REGISTER, INVITE or BYE was first sent.
    asked: Timestamp,
    /// When the first response to the INVITE other than 100 came; after its 2xx, when that came.
    told: Timestamp,
    /// The longest time from a request to its 2xx, in µs.
    slowest_us: u32,
    /// How late the session began, in µs.
    late_us: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Idle,
    Registering,
    /// An INVITE has been sent, and no response above 100 has come.
    Inviting,
    /// A provisional response has come.
    Ringing,
    /// A 3xx has come; another INVITE may follow.
    Redirected,
    Established,
    /// A BYE has been sent.
    Leaving,
}

/// Whether a response asks for something that the caller may be able to supply.
//= rfc6076#4.2
// Challenges do not count as failures.
const fn is_challenge(status: u16) -> bool {
    matches!(status, 401 | 402 | 407)
}

impl Attempt {
    /// Records that a request was sent for the first time.
    pub fn on_sent(&mut self, verb: MethodId, now: Timestamp) {
        self.stage = match (verb, self.stage) {
            (MethodId::Register, Stage::Idle) => Stage::Registering,
            (MethodId::Invite, Stage::Idle) => Stage::Inviting,
            (MethodId::Bye, Stage::Established) => Stage::Leaving,
            //= rfc6076#4.3.1
            // The delay of a redirected session is measured from its first INVITE.
            (MethodId::Invite, Stage::Redirected) => return self.stage = Stage::Inviting,
            // Repeated with credentials, or sent inside the dialog.
            _ => return,
        };
        self.asked = now;
    }

    /// Records that a response was sent for the first time. A 2xx to the other end's INVITE begins a session here,
    /// too.
    pub fn on_response_sent(&mut self, verb: MethodId, status: u16, now: Timestamp) {
        if verb == MethodId::Invite && (200..300).contains(&status) && self.stage == Stage::Idle {
            (self.stage, self.told) = (Stage::Established, now);
        }
    }

    /// Records that a response, of any status, came for the first time.
    pub fn on_response(&mut self, verb: MethodId, status: u16, at: Timestamp, metrics: &mut Metrics) {
        match (verb, self.stage) {
            (MethodId::Register, Stage::Registering) => self.on_register_response(status, at, metrics),
            (MethodId::Invite, Stage::Inviting | Stage::Ringing) => self.on_invite_response(status, at, metrics),
            (MethodId::Bye, Stage::Leaving) => self.on_bye_response(status, at, metrics),
            _ => {}
        }
    }

    /// Records how long after its arrival time the session began.
    pub fn on_begin(&mut self, late: Duration) {
        self.late_us = u32::try_from(late.as_micros()).unwrap_or(u32::MAX);
    }

    /// Records that a request was answered with 2xx, `after` it was sent. For the session's first such request,
    /// returns the time since the request was due.
    pub fn on_success(&mut self, after: Duration) -> Option<Duration> {
        let is_first = self.slowest_us == 0;
        self.slowest_us = self.slowest_us.max(u32::try_from(after.as_micros()).unwrap_or(u32::MAX)).max(1);
        is_first.then(|| after + Duration::from_micros(u64::from(self.late_us)))
    }

    /// Returns the longest time from a request of the session to its 2xx, or zero without one.
    #[must_use]
    pub const fn slowest(&self) -> Duration {
        Duration::from_micros(self.slowest_us as u64)
    }

    fn on_register_response(&mut self, status: u16, at: Timestamp, metrics: &mut Metrics) {
        match status {
            ..=199 | 300..=399 => return,
            200..=299 => metrics.rrd.record(at.saturating_since(self.asked)),
            _ if is_challenge(status) => return,
            //= rfc6076#4.1
            // The delay is defined for successful registrations only.
            _ => metrics.registrations_ineffective += 1,
        }
        metrics.registrations += 1;
        self.stage = Stage::Idle;
    }

    fn on_invite_response(&mut self, status: u16, at: Timestamp, metrics: &mut Metrics) {
        if status <= 100 || is_challenge(status) {
            return;
        }
        if self.stage == Stage::Inviting && !(300..400).contains(&status) {
            self.told = at;
        }
        let delay = self.told.saturating_since(self.asked);
        self.stage = match status {
            ..=199 => return self.stage = Stage::Ringing,
            200..=299 => {
                metrics.srd_successful.record(delay);
                metrics.invites_successful += 1;
                metrics.calls.on_answer(at.saturating_since(self.asked));
                self.told = at;
                Stage::Established
            }
            300..=399 => {
                metrics.invites_redirected += 1;
                Stage::Redirected
            }
            _ => {
                metrics.srd_failed.record(delay);
                metrics.invites_declined += u64::from(matches!(status, 480 | 486 | 600 | 603));
                metrics.invites_ineffective += u64::from(matches!(status, 408 | 500 | 503 | 504));
                metrics.sessions += 1;
                Stage::Idle
            }
        };
        metrics.invites += 1;
    }

    fn on_bye_response(&mut self, status: u16, at: Timestamp, metrics: &mut Metrics) {
        let delay = at.saturating_since(self.asked);
        match status {
            ..=199 => return,
            _ if is_challenge(status) => return,
            200..=299 => {
                metrics.sdd_successful.record(delay);
                metrics.sessions_completed += 1;
            }
            _ => metrics.sdd_failed.record(delay),
        }
        metrics.sdt_successful.record(self.asked.saturating_since(self.told));
        metrics.sessions += 1;
        self.stage = Stage::Idle;
    }

    /// Records that the other end's BYE came for the first time.
    pub fn on_bye(&mut self, now: Timestamp, metrics: &mut Metrics) {
        if matches!(self.stage, Stage::Established | Stage::Leaving) {
            metrics.sdt_successful.record(now.saturating_since(self.told));
            metrics.sessions += 1;
            metrics.sessions_completed += 1;
            self.stage = Stage::Idle;
        }
    }

    /// Records the end of the session.
    pub fn on_end(&mut self, ending: SessionResult, now: Timestamp, metrics: &mut Metrics) {
        let is_carried = ending == SessionResult::Carried;
        match self.stage {
            Stage::Idle => {}
            Stage::Registering => {
                metrics.registrations += 1;
                metrics.registrations_ineffective += u64::from(!is_carried);
            }
            Stage::Inviting | Stage::Ringing => {
                metrics.invites += 1;
                //= rfc3261#8.1.3.1
                // A missing response counts as 408.
                metrics.invites_ineffective += u64::from(ending == SessionResult::Lost);
                metrics.sessions += 1;
            }
            Stage::Redirected => metrics.sessions += 1,
            // A script that ends successfully during a session does not show how the session would have ended.
            Stage::Established | Stage::Leaving if is_carried => {}
            Stage::Established => metrics.sessions += 1,
            Stage::Leaving => {
                //= rfc6076#4.5.2
                // The session lasted until the BYE was given up. Such a BYE has no disconnect delay (§4.4).
                if ending == SessionResult::Lost {
                    metrics.sdt_failed.record(now.saturating_since(self.told));
                }
                metrics.sessions += 1;
            }
        }
        self.stage = Stage::Idle;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time_histogram::TimeHistogram;

    /// An event of a session, with its time in ms.
    enum Event {
        Sent(MethodId),
        Replied(MethodId, u16),
        Response(MethodId, u16),
        Bye,
        End(SessionResult),
    }
    use Event::{Bye, End, Replied, Response, Sent};
    use MethodId::{Ack, Bye as BYE, Cancel, Invite, Register};

    fn play(events: &[(u64, Event)]) -> Metrics {
        let (mut attempt, mut metrics) = (Attempt::default(), Metrics::default());
        for (millis, event) in events {
            let at = Timestamp::from_millis(1_000 + millis);
            match event {
                Sent(verb) => attempt.on_sent(*verb, at),
                Replied(verb, status) => attempt.on_response_sent(*verb, *status, at),
                Response(verb, status) => attempt.on_response(*verb, *status, at, &mut metrics),
                Bye => attempt.on_bye(at, &mut metrics),
                End(ending) => attempt.on_end(*ending, at, &mut metrics),
            }
        }
        metrics
    }

    fn is_once(times: &TimeHistogram, millis: u64) {
        assert_eq!(times.count(), 1, "{times:?}");
        let expected = Duration::from_millis(millis).as_secs_f64();
        let got = times.max().as_secs_f64();
        assert!((got / expected - 1.0).abs() < 0.01, "{got} s for {expected} s");
    }

    fn holds(metrics: &Metrics, ratios: [Option<f64>; 5]) {
        assert_eq!([metrics.ser(), metrics.seer(), metrics.isa(), metrics.scr(), metrics.ira()], ratios);
    }

    #[test]
    fn a_challenged_call_rings_and_is_hung_up() {
        let metrics = play(&[
            (0, Sent(Invite)),
            (5, Response(Invite, 407)),
            (5, Sent(Ack)),
            (6, Sent(Invite)),
            (8, Response(Invite, 100)),
            (40, Response(Invite, 180)),
            (900, Response(Invite, 183)),
            (2_000, Response(Invite, 200)),
            (2_001, Sent(Ack)),
            (3_000, Sent(Invite)),
            (3_001, Response(Invite, 200)),
            (62_000, Sent(BYE)),
            (62_003, Response(BYE, 407)),
            (62_004, Sent(BYE)),
            (62_020, Response(BYE, 200)),
            (62_020, End(SessionResult::Carried)),
        ]);
        is_once(&metrics.srd_successful, 40);
        is_once(&metrics.sdt_successful, 60_000);
        is_once(&metrics.sdd_successful, 20);
        assert_eq!(metrics.srd_failed.count() + metrics.sdd_failed.count() + metrics.sdt_failed.count(), 0);
        assert_eq!((metrics.invites, metrics.sessions), (1, 1));
        holds(&metrics, [Some(100.0), Some(100.0), Some(0.0), Some(100.0), None]);
    }

    #[test]
    fn a_call_without_ringing_is_timed_to_its_200() {
        let metrics =
            play(&[(0, Sent(Invite)), (70, Response(Invite, 200)), (500, Bye), (600, End(SessionResult::Carried))]);
        is_once(&metrics.srd_successful, 70);
        is_once(&metrics.sdt_successful, 430);
        assert_eq!((metrics.sessions, metrics.sessions_completed), (1, 1));
        assert_eq!(metrics.sdd_successful.count(), 0, "it is the other end's");
    }

    #[test]
    fn the_callee_times_answered_calls() {
        let metrics = play(&[
            (0, Replied(Invite, 180)),
            (100, Replied(Invite, 200)),
            (400, Bye),
            (400, End(SessionResult::Carried)),
        ]);
        is_once(&metrics.sdt_successful, 300);
        assert_eq!(metrics.ser(), None, "only the caller says that");
        let metrics = play(&[(0, Replied(Invite, 200)), (200, Sent(BYE)), (250, Response(BYE, 200))]);
        is_once(&metrics.sdt_successful, 200);
        is_once(&metrics.sdd_successful, 50);
    }

    #[test]
    fn refusals_are_classified() {
        for (status, ratios) in [
            (486, [Some(0.0), Some(100.0), Some(0.0), Some(0.0), None]),
            (480, [Some(0.0), Some(100.0), Some(0.0), Some(0.0), None]),
            (603, [Some(0.0), Some(100.0), Some(0.0), Some(0.0), None]),
            (404, [Some(0.0), Some(0.0), Some(0.0), Some(0.0), None]),
            (408, [Some(0.0), Some(0.0), Some(100.0), Some(0.0), None]),
            (503, [Some(0.0), Some(0.0), Some(100.0), Some(0.0), None]),
        ] {
            let ending = End(SessionResult::Refused(status));
            let metrics = play(&[(0, Sent(Invite)), (30, Response(Invite, status)), (31, ending)]);
            is_once(&metrics.srd_failed, 30);
            assert_eq!(metrics.srd_successful.count(), 0);
            holds(&metrics, ratios);
        }
    }

    #[test]
    fn a_failure_after_ringing_is_timed_to_the_ringing() {
        let metrics = play(&[
            (0, Sent(Invite)),
            (20, Response(Invite, 180)),
            (9_000, Sent(Cancel)),
            (9_010, Response(Invite, 487)),
        ]);
        is_once(&metrics.srd_failed, 20);
        assert_eq!(metrics.invites, 1);
    }

    #[test]
    fn a_redirect_is_part_of_the_same_delay() {
        let metrics = play(&[
            (0, Sent(Invite)),
            (10, Response(Invite, 302)),
            (11, Sent(Invite)),
            (50, Response(Invite, 180)),
            (60, Response(Invite, 200)),
            (70, Sent(BYE)),
            (80, Response(BYE, 200)),
        ]);
        is_once(&metrics.srd_successful, 50);
        assert_eq!((metrics.invites, metrics.invites_redirected, metrics.sessions), (2, 1, 1));
        holds(&metrics, [Some(100.0), Some(100.0), Some(0.0), Some(100.0), None]);
        let given_up = play(&[(0, Sent(Invite)), (10, Response(Invite, 302)), (10, End(SessionResult::Refused(302)))]);
        holds(&given_up, [None, None, None, Some(0.0), None]);
    }

    #[test]
    fn an_unanswered_call_is_lost() {
        let invite = play(&[(0, Sent(Invite)), (32_000, End(SessionResult::Lost))]);
        assert_eq!(invite.srd_failed.count(), 0, "there was no response");
        holds(&invite, [Some(0.0), Some(0.0), Some(100.0), Some(0.0), None]);
        let bye = play(&[
            (0, Sent(Invite)),
            (10, Response(Invite, 200)),
            (100, Sent(BYE)),
            (32_100, End(SessionResult::Lost)),
        ]);
        is_once(&bye.sdt_failed, 32_090);
        assert_eq!(bye.sdt_successful.count() + bye.sdd_successful.count() + bye.sdd_failed.count(), 0);
        holds(&bye, [Some(100.0), Some(100.0), Some(0.0), Some(0.0), None]);
        let refused =
            play(&[(0, Sent(Invite)), (10, Response(Invite, 200)), (100, Sent(BYE)), (150, Response(BYE, 503))]);
        is_once(&refused.sdd_failed, 50);
        assert_eq!(refused.scr(), Some(0.0));
    }

    #[test]
    fn registrations_are_timed_across_their_challenge() {
        let metrics = play(&[
            (0, Sent(Register)),
            (3, Response(Register, 401)),
            (4, Sent(Register)),
            (25, Response(Register, 200)),
        ]);
        is_once(&metrics.rrd, 25);
        assert_eq!(metrics.ira(), Some(0.0));
        let refused = play(&[(0, Sent(Register)), (3, Response(Register, 503)), (4, End(SessionResult::Refused(503)))]);
        assert_eq!((refused.rrd.count(), refused.registrations, refused.ira()), (0, 1, Some(100.0)));
        let lost = play(&[(0, Sent(Register)), (32_000, End(SessionResult::Lost))]);
        assert_eq!((lost.rrd.count(), lost.registrations, lost.ira()), (0, 1, Some(100.0)));
    }

    #[test]
    fn open_calls_are_in_no_ratio_and_metrics_merge() {
        let mut sum = play(&[(0, Sent(Invite)), (10, Response(Invite, 180))]);
        holds(&sum, [None; 5]);
        sum.merge(&play(&[(0, Sent(Invite)), (10, Response(Invite, 200)), (20, Bye)]));
        sum.merge(&play(&[(0, Sent(Invite)), (10, Response(Invite, 503))]));
        sum.merge(&play(&[(0, Sent(Invite)), (10, Response(Invite, 486))]));
        sum.merge(&play(&[(0, Sent(Invite)), (10, Response(Invite, 302))]));
        assert_eq!((sum.invites, sum.srd_successful.count(), sum.srd_failed.count()), (4, 1, 2));
        let third = 100.0 / 3.0;
        holds(&sum, [Some(third), Some(2.0 * third), Some(third), Some(third), None]);
    }
}
