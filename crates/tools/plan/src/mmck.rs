//! M/M/c/K: c servers, one queue, K places in all, Poisson arrivals, exponential service times.

use serde::Serialize;

use crate::error::{PlanError, positive};
use crate::explain::{Explain, Explanation};
use crate::finite_queue::{FiniteQueue, limits, offered_load};
use crate::units;

/// Measures of an M/M/c/K queue.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Mmck {
    /// λ: arrival rate including drops, packets/s.
    pub rate_per_s: f64,
    /// 1/μ = E\[X\], s.
    pub service_s: f64,
    /// c: number of servers.
    pub servers: u32,
    /// K: system size, packets in service included.
    pub queue: u64,
    /// r = λ/(c·μ): offered load per server; may be above 1.
    pub rho: f64,
    /// p_K: probability that a packet finds the system full and is dropped.
    pub drop_probability: f64,
    /// p_0: probability that the system is empty.
    pub idle_probability: f64,
    /// λ·(1 − p_K): throughput, packets/s.
    pub throughput_per_s: f64,
    /// Utilization of a server.
    pub utilization: f64,
    /// W: mean waiting time of an accepted packet, s.
    pub wait_s: f64,
    /// W + E\[X\]: mean response time, s.
    pub response_s: f64,
    /// Lq: mean number of waiting packets.
    pub in_queue: f64,
    /// Mean number of packets in the system.
    pub in_system: f64,
}

/// Computes the stationary M/M/c/K queue, for any load below, at or above 1.
///
/// The relative error of `drop_probability` is below K·10⁻¹⁵: raising a rounded ρ to the power of K multiplies its
/// error.
///
/// # Errors
/// A rate or a service time that is not above 0, no server, more than [`MAX_SERVERS`] servers, K below c or above
/// [`MAX_QUEUE`].
pub fn mmck(rate_per_s: f64, service_s: f64, servers: u32, queue: u64) -> Result<Mmck, PlanError> {
    let rate_per_s = positive("rate", rate_per_s)?;
    let service_s = positive("service time", service_s)?;
    limits(servers, queue)?;
    let offered = offered_load(rate_per_s, service_s)?;
    let state = FiniteQueue::solve(offered, servers, (queue - u64::from(servers)) as f64);
    let throughput_per_s = state.busy / service_s;
    let wait_s = state.waiting / throughput_per_s;
    Ok(Mmck {
        rate_per_s,
        service_s,
        servers,
        queue,
        rho: offered / f64::from(servers),
        drop_probability: state.full,
        idle_probability: state.empty,
        throughput_per_s,
        utilization: (state.busy / f64::from(servers)).min(1.0),
        wait_s,
        response_s: wait_s + service_s,
        in_queue: state.waiting,
        in_system: state.waiting + state.busy,
    })
}

pub use crate::finite_queue::{MAX_QUEUE, MAX_SERVERS};

impl Explain for Mmck {
    fn explain(&self) -> Explanation {
        let (c, k) = (self.servers, units::number(self.queue as f64));
        let (rate, service) = (units::rate(self.rate_per_s), units::time(self.service_s));
        let offered = units::number(self.rate_per_s * self.service_s);
        let rho = units::number(self.rho);
        Explanation::new()
            .step(
                ("r", "the offered load per server"),
                "λ·E[X]/c",
                format!("{rate} × {service} / {c}"),
                &rho,
                "Krishnamurthy, thesis, section 5.3",
            )
            .step(
                ("p_0", "the probability that the system is empty"),
                "[Σ_{n<c} (λ/μ)^n/n! + (λ/μ)^c/c! · (1 − r^(K−c+1))/(1 − r)]^−1",
                format!("λ/μ = {offered}, c = {c}, K = {k}, r = {rho}"),
                units::number(self.idle_probability),
                "Krishnamurthy, thesis, eq. 5.4",
            )
            .step(
                ("p_K", "the probability that a packet finds no room"),
                "(λ/μ)^K / (c^(K−c)·c!) · p_0",
                format!("{offered}^{k} / ({c}^({k}−{c}) × {c}!) × {}", units::number(self.idle_probability)),
                units::number(self.drop_probability),
                "Krishnamurthy, thesis, eq. 5.3",
            )
            .step(
                ("γ", "the throughput"),
                "λ·(1 − p_K)",
                format!("{rate} × (1 − {})", units::number(self.drop_probability)),
                units::rate(self.throughput_per_s),
                "all packets that are not dropped",
            )
            .step(
                ("W", "the mean wait of an accepted packet"),
                "Lq/γ, Lq = Σ_{n>c} (n − c)·p_n",
                format!("{} / {}", units::number(self.in_queue), units::rate(self.throughput_per_s)),
                units::time(self.wait_s),
                "Little's law",
            )
    }
}
