//! M/G/1: one server, Poisson arrivals, any service time distribution, an infinite queue.

use serde::Serialize;

use crate::error::{PlanError, positive};
use crate::explain::{Explain, Explanation};
use crate::service::ServiceTime;
use crate::units;

/// Measures of an M/G/1 queue.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Mg1 {
    /// λ, packets/s.
    pub rate_per_s: f64,
    /// E\[X\], s.
    pub service_s: f64,
    /// E\[X²\], s².
    pub second_moment_s2: f64,
    /// Var\[X\]/E\[X\]².
    pub scv: f64,
    /// λ·E\[X\]: utilization.
    pub rho: f64,
    /// W: mean waiting time, s.
    pub wait_s: f64,
    /// W + E\[X\]: mean response time, s.
    pub response_s: f64,
    /// Lq: mean number of waiting packets.
    pub in_queue: f64,
    /// Lq + ρ: mean number of packets in the system.
    pub in_system: f64,
}

/// Computes the mean waiting time by the Pollaczek-Khinchin formula.
///
/// # Errors
/// A rate that is not above 0; ρ ≥ 1, for which no mean exists.
pub fn mg1(rate_per_s: f64, service: ServiceTime) -> Result<Mg1, PlanError> {
    let rate_per_s = positive("rate", rate_per_s)?;
    let service_s = service.mean_s();
    let rho = rate_per_s * service_s;
    if rho >= 1.0 {
        return Err(PlanError::Unstable { rho, rate_per_s, highest_per_s: 1.0 / service_s });
    }
    let wait_s = rate_per_s * service.second_moment_s2() / (2.0 * (1.0 - rho));
    let in_queue = rate_per_s * wait_s;
    Ok(Mg1 {
        rate_per_s,
        service_s,
        second_moment_s2: service.second_moment_s2(),
        scv: service.scv(),
        rho,
        wait_s,
        response_s: wait_s + service_s,
        in_queue,
        in_system: in_queue + rho,
    })
}

impl Explain for Mg1 {
    fn explain(&self) -> Explanation {
        let (rate, service) = (units::rate(self.rate_per_s), units::time(self.service_s));
        let second = units::number(self.second_moment_s2);
        Explanation::new()
            .step(
                ("E[X²]", "the second moment of the service time"),
                "E[X]²·(1 + scv)",
                format!("({service})² × (1 + {})", units::number(self.scv)),
                format!("{second} s²"),
                "the definition of the squared coefficient of variation",
            )
            .step(
                ("ρ", "the utilization of the server"),
                "λ·E[X]",
                format!("{rate} × {service}"),
                units::number(self.rho),
                "Krishnamurthy, thesis, section 4.3",
            )
            .step(
                ("W", "the mean time that a packet waits"),
                "λ·E[X²] / (2·(1 − ρ))",
                format!("{rate} × {second} s² / (2 × (1 − {}))", units::number(self.rho)),
                units::time(self.wait_s),
                "Krishnamurthy, thesis, eq. 4.2 (Pollaczek-Khinchin)",
            )
            .step(
                ("Lq", "the mean number of packets that wait"),
                "λ·W",
                format!("{rate} × {}", units::time(self.wait_s)),
                units::number(self.in_queue),
                "Little's law",
            )
    }
}
