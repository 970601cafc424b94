//! Cost of c threads on one core: β.

use serde::{Deserialize, Serialize};

use crate::error::{PlanError, count, finite, not_negative};
use crate::explain::{Explain, Explanation};
use crate::finite_queue::MAX_SERVERS;
use crate::service::ServiceTime;
use crate::units;

/// Coefficients of β(λ, c) = `per_thread`·c + `per_packet`·λ + `constant`.
///
/// β is the slowdown of c threads on one core relative to an ideal division of that core by c (thesis, eq. 5.5, 5.6).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beta {
    /// Slowdown per thread.
    pub per_thread: f64,
    /// Slowdown per packet/s, s.
    pub per_packet: f64,
    /// Constant term.
    pub constant: f64,
}

impl Beta {
    /// Fit of the thesis for OpenSIPS (eq. 5.6).
    ///
    /// It is fitted to the loads at which drops pass 1 %. It agrees with the last columns of tables 5.2–5.6;
    /// elsewhere, measure.
    pub const THESIS: Self = Self { per_thread: 0.174, per_packet: 0.923e-4, constant: -0.60 };

    /// Returns β at a rate of packets for c threads.
    ///
    /// It is 1 for one thread, which waits for no other. Values of the line below 1 become 1, because threads that
    /// share a core are not faster than the core.
    ///
    /// # Errors
    /// A negative rate, no thread, coefficients that are not finite.
    pub fn at(&self, packets_per_s: f64, threads: u32) -> Result<f64, PlanError> {
        let line = self.line_at(packets_per_s, threads)?;
        Ok(if threads == 1 { 1.0 } else { line.max(1.0) })
    }

    /// Returns the value of the line (eq. 5.6) without a lower bound.
    ///
    /// # Errors
    /// As [`Beta::at`].
    pub fn line_at(&self, packets_per_s: f64, threads: u32) -> Result<f64, PlanError> {
        let rate = not_negative("rate", packets_per_s)?;
        let threads = f64::from(count("threads", threads, MAX_SERVERS)?);
        finite("β", self.per_thread * threads + self.per_packet * rate + self.constant)
    }
}

/// Service time of one of c threads on one core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ThreadService {
    /// λ: rate of all threads together, packets/s.
    pub rate_per_s: f64,
    /// c: number of threads.
    pub threads: u32,
    /// X_1: service time with one thread.
    pub single: ServiceTime,
    /// Coefficients of β.
    pub coefficients: Beta,
    /// β(λ, c).
    pub beta: f64,
    /// X_c = β·c·X_1: service time on one of the c threads.
    pub service: ServiceTime,
}

/// Computes E\[X_c\] = β(λ, c)·E\[X_1\]·c (thesis, eq. 5.5), for [`mmck()`](crate::mmck()) with c servers.
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
                ("β", "the slowdown by contention between threads"),
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
                ("E[X_c]", "the service time of one of c threads on one core"),
                "β·E[X_1]·c",
                format!("{} × {} × {}", units::number(self.beta), units::time(self.single.mean_s()), self.threads),
                units::time(self.service.mean_s()),
                "Krishnamurthy, thesis, eq. 5.5",
            )
    }
}
