//! What c threads on one core cost: β.

use serde::{Deserialize, Serialize};

use crate::error::{PlanError, count, finite, not_negative};
use crate::explain::{Explain, Explanation};
use crate::finite_queue::MAX_SERVERS;
use crate::service::ServiceTime;
use crate::units;

/// β(λ, c) = `per_thread`·c + `per_packet`·λ + `constant`: by how much c threads on one core are slower than that core
/// shared among c would make them (thesis, eq. 5.5, 5.6).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beta {
    /// What each thread adds.
    pub per_thread: f64,
    /// What each packet/s adds, s.
    pub per_packet: f64,
    /// What is added whatever comes.
    pub constant: f64,
}

impl Beta {
    /// The thesis's fit for OpenSIPS (eq. 5.6). It is a fit to the loads at which drops pass 1 %: it agrees with its tables
    /// 5.2–5.6 in each one's last column, and elsewhere it should be measured anew.
    pub const THESIS: Self = Self { per_thread: 0.174, per_packet: 0.923e-4, constant: -0.60 };

    /// β at a rate of packets for c threads. One thread has no other to wait for: 1. What the line gives below 1 is 1,
    /// because threads that share a core are not faster than the core.
    ///
    /// # Errors
    /// A negative rate, no thread, coefficients that are no numbers.
    pub fn at(&self, packets_per_s: f64, threads: u32) -> Result<f64, PlanError> {
        let line = self.line_at(packets_per_s, threads)?;
        Ok(if threads == 1 { 1.0 } else { line.max(1.0) })
    }

    /// The line itself (eq. 5.6), as it is.
    ///
    /// # Errors
    /// As [`Beta::at`].
    pub fn line_at(&self, packets_per_s: f64, threads: u32) -> Result<f64, PlanError> {
        let rate = not_negative("rate", packets_per_s)?;
        let threads = f64::from(count("threads", threads, MAX_SERVERS)?);
        finite("β", self.per_thread * threads + self.per_packet * rate + self.constant)
    }
}

/// The service time of a thread among c on one core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ThreadService {
    /// λ, packets/s, of all threads together.
    pub rate_per_s: f64,
    /// c.
    pub threads: u32,
    /// X_1: with one thread.
    pub single: ServiceTime,
    /// The coefficients.
    pub coefficients: Beta,
    /// β(λ, c).
    pub beta: f64,
    /// X_c = β·c·X_1: what a packet takes on one of the c threads.
    pub service: ServiceTime,
}

/// E\[X_c\] = β(λ, c)·E\[X_1\]·c (thesis, eq. 5.5), for [`mmck()`](crate::mmck()) with c servers.
///
/// # Errors
/// As [`Beta::at`].
pub fn threads_on_one_core(
    rate_per_s: f64,
    single: ServiceTime,
    threads: u32,
    coefficients: Beta,
) -> Result<ThreadService, PlanError> {
    let beta = coefficients.at(rate_per_s, threads)?;
    let service = single.times(beta * f64::from(threads))?;
    Ok(ThreadService { rate_per_s, threads, single, coefficients, beta, service })
}

impl Explain for ThreadService {
    fn explain(&self) -> Explanation {
        let Beta { per_thread, per_packet, constant } = self.coefficients;
        Explanation::new()
            .step(
                ("β", "what threads lose to each other"),
                "a·c + b·λ + d, at least 1; 1 for one thread",
                format!(
                    "{} × {} + {} × {} + ({})",
                    units::number(per_thread),
                    self.threads,
                    units::number(per_packet),
                    units::rate(self.rate_per_s),
                    units::number(constant)
                ),
                units::number(self.beta),
                "Krishnamurthy, thesis, eq. 5.6",
            )
            .step(
                ("E[X_c]", "the service time of a thread among c on one core"),
                "β·E[X_1]·c",
                format!("{} × {} × {}", units::number(self.beta), units::time(self.single.mean_s()), self.threads),
                units::time(self.service.mean_s()),
                "Krishnamurthy, thesis, eq. 5.5",
            )
    }
}
