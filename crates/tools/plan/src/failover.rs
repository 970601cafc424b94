//! Effect of a failure on callers.

use serde::{Deserialize, Serialize};

use crate::error::{PlanError, not_negative, positive, share};
use crate::explain::{Explain, Explanation};
use crate::units;

/// Times that determine a failover (failover paper, section 3.7).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailoverTimes {
    /// R: probability that the primary answers.
    pub availability: f64,
    /// T_R: time until a client tries the next server, s.
    pub client_retry_s: f64,
    /// T_D: TTL of the DNS record, s. Until it expires, clients keep using the failed server.
    pub dns_ttl_s: f64,
    /// T_M: mean time to repair, exponentially distributed, s.
    pub repair_s: f64,
    /// T_F: mean time to failure, exponentially distributed, s.
    pub failure_s: f64,
    /// T_d: time to replicate a registration to the secondary, s.
    pub replication_s: f64,
    /// T_c: time that a registration stays in the primary's memory before replication, s; 0 without such a cache.
    pub cache_s: f64,
    /// T_r: interval between a phone's registrations, s.
    pub refresh_s: f64,
}

impl Default for FailoverTimes {
    /// Returns the times of a typical service.
    ///
    /// Servers are 99 % available, as in the failover paper's examples, and repaired within an hour. Clients
    /// implement only RFC 3261, so they give up on a silent server after timer B, 32 s. DNS records have a TTL of
    /// five minutes. Phones register every hour, and a registration is replicated within a tenth of a second.
    fn default() -> Self {
        let (availability, repair_s) = (0.99, 3_600.0);
        Self {
            availability,
            client_retry_s: 32.0,
            dns_ttl_s: 300.0,
            repair_s,
            failure_s: mean_time_to_failure_s(availability, repair_s),
            replication_s: 0.1,
            cache_s: 0.0,
            refresh_s: 3_600.0,
        }
    }
}

/// Returns T_F = T_M·R/(1 − R), s, from R = T_F/(T_F + T_M). It is infinite for a server that always answers.
pub fn mean_time_to_failure_s(availability: f64, repair_s: f64) -> f64 {
    repair_s * availability / (1.0 - availability)
}

/// Effect of a failure on callers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Failover {
    /// Times that it was computed from.
    pub times: FailoverTimes,
    /// P\[t_M < T_D\] = 1 − e^(−T_D/T_M): probability that the server is repaired before the DNS record expires.
    pub repaired_within_ttl: f64,
    /// T_R·(1 − R)·P\[t_M < T_D\]: mean additional call set-up delay, s.
    pub setup_delay_s: f64,
    /// 1 − e^(−T_d/T_F): probability that a phone's first registration is lost with the primary.
    pub lost_registration: f64,
    /// 1 − e^(−(T_d + T_c)/T_F): the same probability with a cache.
    pub lost_registration_with_cache: f64,
    /// T_r + T_R: longest time for which that phone cannot be called, s.
    pub unreachable_s: f64,
}

/// Computes the effect of a failure on callers.
///
/// # Errors
/// Negative times, a mean time to repair or to failure that is not above 0, a probability outside 0 to 1.
pub fn failover(times: FailoverTimes) -> Result<Failover, PlanError> {
    share("availability", times.availability)?;
    let retry = not_negative("client's retry time", times.client_retry_s)?;
    let ttl = not_negative("DNS time to live", times.dns_ttl_s)?;
    let repair = positive("mean time to repair", times.repair_s)?;
    let failure = positive("mean time to failure", times.failure_s)?;
    let replication = not_negative("replication's latency", times.replication_s)?;
    let cache = not_negative("cache's interval", times.cache_s)?;
    let refresh = not_negative("registration's refresh interval", times.refresh_s)?;
    let repaired_within_ttl = -(-ttl / repair).exp_m1();
    Ok(Failover {
        times,
        repaired_within_ttl,
        setup_delay_s: retry * (1.0 - times.availability) * repaired_within_ttl,
        lost_registration: -(-replication / failure).exp_m1(),
        lost_registration_with_cache: -(-(replication + cache) / failure).exp_m1(),
        unreachable_s: refresh + retry,
    })
}

impl Explain for Failover {
    fn explain(&self) -> Explanation {
        let times = &self.times;
        let source = "Singh and Schulzrinne, failover paper, section 3.7";
        let [retry, ttl, repair, failure, replication, cache, refresh] = [
            times.client_retry_s,
            times.dns_ttl_s,
            times.repair_s,
            times.failure_s,
            times.replication_s,
            times.cache_s,
            times.refresh_s,
        ]
        .map(units::time);
        Explanation::new()
            .step(
                ("P[t_M < T_D]", "the server is repaired before the DNS record expires"),
                "1 − e^(−T_D/T_M)",
                format!("1 − e^(−{ttl} / {repair})"),
                units::share(self.repaired_within_ttl),
                source,
            )
            .step(
                ("ΔT", "the additional call set-up delay, averaged over all calls (most do not meet a failed server)"),
                "T_R·(1 − R)·P[t_M < T_D]",
                format!(
                    "{retry} × (1 − {}) × {}",
                    units::number(times.availability),
                    units::number(self.repaired_within_ttl)
                ),
                units::time(self.setup_delay_s),
                source,
            )
            .step(
                ("P[lost]", "a first registration is lost with the primary"),
                "1 − e^(−T_d/T_F)",
                format!("1 − e^(−{replication} / {failure})"),
                units::number(self.lost_registration),
                source,
            )
            .step(
                ("P[lost, cache]", "the same, with a cache before replication"),
                "1 − e^(−(T_d + T_c)/T_F)",
                format!("1 − e^(−({replication} + {cache}) / {failure})"),
                units::number(self.lost_registration_with_cache),
                source,
            )
            .step(
                ("T_u", "the longest time for which that phone cannot be called"),
                "T_r + T_R",
                format!("{refresh} + {retry}"),
                units::time(self.unreachable_s),
                source,
            )
    }
}
