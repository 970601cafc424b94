//! What a number of subscribers sends.

use serde::{Deserialize, Serialize};

use crate::error::{PlanError, not_negative, positive};
use crate::explain::{Explain, Explanation};
use crate::units;

/// How much is called in the busy hour.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Calls {
    /// So many call attempts by each subscriber.
    PerSubscriber(f64),
    /// So many call attempts by all (BHCA).
    Total(f64),
    /// So many calls in progress for each subscriber on the mean: 0.1 erlang are 6 minutes of each hour.
    Erlangs(f64),
}

/// What they send in the busy hour.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Traffic {
    /// Who.
    pub subscribers: f64,
    /// How often each registers again, s.
    pub refresh_s: f64,
    /// How long a call lasts, s.
    pub hold_s: f64,
    /// Requests of a call: INVITE, ACK and BYE, and what comes between.
    pub requests_per_call: f64,
    /// REGISTERs, which are updates of the location table, 1/s.
    pub registers_per_s: f64,
    /// Call attempts, 1/s.
    pub calls_per_s: f64,
    /// Requests of calls, 1/s.
    pub requests_per_s: f64,
    /// Calls in progress, which is the traffic in erlangs.
    pub calls_in_progress: f64,
}

/// The rates that subscribers make.
///
/// # Errors
/// Negative numbers, a refresh interval or a hold time that is not above 0.
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
        // Each contact of a subscriber registers.
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
