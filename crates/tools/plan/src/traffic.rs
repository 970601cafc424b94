//! Traffic of a number of subscribers.

use serde::{Deserialize, Serialize};

use crate::error::{PlanError, not_negative, positive};
use crate::explain::{Explain, Explanation};
use crate::units;

/// Call volume in the busy hour.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Calls {
    /// Call attempts per subscriber.
    PerSubscriber(f64),
    /// Call attempts of all subscribers (BHCA).
    Total(f64),
    /// Mean number of calls in progress per subscriber: 0.1 erlang is 6 minutes of each hour.
    Erlangs(f64),
}

/// Traffic in the busy hour.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Traffic {
    /// Number of subscribers.
    pub subscribers: f64,
    /// Interval between a subscriber's registrations, s.
    pub refresh_s: f64,
    /// Duration of a call, s.
    pub hold_s: f64,
    /// Requests per call: INVITE, ACK, BYE and any between.
    pub requests_per_call: f64,
    /// REGISTERs, each an update of the location table, 1/s.
    pub registers_per_s: f64,
    /// Call attempts, 1/s.
    pub calls_per_s: f64,
    /// Requests of calls, 1/s.
    pub requests_per_s: f64,
    /// Calls in progress: the traffic in erlangs.
    pub calls_in_progress: f64,
}

/// Computes the rates that subscribers cause.
///
/// # Errors
/// Negative numbers, a refresh interval or a call duration that is not above 0.
pub fn traffic(
    subscribers: f64,
    refresh_s: f64,
    calls: Calls,
    hold_s: f64,
    requests_per_call: f64,
) -> Result<Traffic, PlanError> {
    let subscribers = not_negative("subscribers", subscribers)?;
    let refresh_s = positive("refresh interval", refresh_s)?;
    let hold_s = positive("hold time", hold_s)?;
    let requests_per_call = not_negative("requests of a call", requests_per_call)?;
    let calls_per_s = match calls {
        Calls::PerSubscriber(each) => subscribers * not_negative("calls of a subscriber", each)? / 3_600.0,
        Calls::Total(all) => not_negative("calls of the busy hour", all)? / 3_600.0,
        Calls::Erlangs(each) => subscribers * not_negative("erlangs of a subscriber", each)? / hold_s,
    };
    Ok(Traffic {
        subscribers,
        refresh_s,
        hold_s,
        requests_per_call,
        registers_per_s: subscribers / refresh_s,
        calls_per_s,
        requests_per_s: calls_per_s * requests_per_call,
        calls_in_progress: calls_per_s * hold_s,
    })
}

impl Explain for Traffic {
    fn explain(&self) -> Explanation {
        let source = "Ono and Schulzrinne, TCP paper, section 3.2";
        // Contacts per subscriber: each contact registers.
        let each = self.registers_per_s * self.refresh_s / self.subscribers;
        let subscribers = units::number(self.subscribers);
        let (formula, contacts) = if (each - 1.0).abs() < 1e-9 || !each.is_finite() {
            ("subscribers/T_r", subscribers)
        } else {
            ("subscribers·contacts/T_r", format!("{subscribers} × {}", units::number(each)))
        };
        Explanation::new()
            .step(
                ("λ_R", "registrations"),
                formula,
                format!("{contacts} / {}", units::time(self.refresh_s)),
                units::rate(self.registers_per_s),
                source,
            )
            .step(
                ("λ_C", "call attempts in the busy hour"),
                "erlangs/hold time",
                format!("{} / {}", units::number(self.calls_in_progress), units::time(self.hold_s)),
                units::rate(self.calls_per_s),
                source,
            )
            .step(
                ("λ_P", "requests of calls"),
                "λ_C · requests of a call",
                format!("{} × {}", units::rate(self.calls_per_s), units::number(self.requests_per_call)),
                units::rate(self.requests_per_s),
                source,
            )
    }
}
