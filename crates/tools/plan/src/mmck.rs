//! M/M/c/K: c servers behind one queue, K places in all, Poisson arrivals, exponential service times.

use serde::Serialize;

use crate::error::{PlanError, positive};
use crate::explain::{Explain, Explanation};
use crate::finite_queue::{FiniteQueue, limits, offered_load};
use crate::units;

/// What an M/M/c/K queue does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Mmck {
    /// λ, packets/s that come, whether or not they find room.
    pub rate_per_s: f64,
    /// 1/μ = E\[X\], s.
    pub service_s: f64,
    /// c.
    pub servers: u32,
    /// K: who is served and who waits.
    pub queue: u64,
    /// r = λ/(c·μ): the load offered to a server; may be above 1.
    pub rho: f64,
    /// p_K: the probability that a packet finds no room and is dropped.
    pub drop_probability: f64,
    /// p_0: the probability that nobody is there.
    pub idle_probability: f64,
    /// λ·(1 − p_K), packets/s.
    pub throughput_per_s: f64,
    /// The share of its time that a server works.
    pub utilization: f64,
    /// W, the mean time that a packet which found room waits for its service, s.
    pub wait_s: f64,
    /// W + E\[X\], s.
    pub response_s: f64,
    /// Lq, the mean number of packets that wait.
    pub in_queue: f64,
    /// The mean number that wait or are served.
    pub in_system: f64,
}

/// The stationary M/M/c/K queue, for any load below, at and above 1.
///
/// The relative error of `drop_probability` is below K·10⁻¹⁵: what a rounded ρ is raised to the power of K makes of it.
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
                ("r", "the load offered to a server"),
                "λ·E[X]/c",
                format!("{rate} × {service} / {c}"),
                &rho,
                "Krishnamurthy, thesis, section 5.3",
            )
            .step(
                ("p_0", "the probability that nobody is there"),
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
                ("γ", "the packets that are served"),
                "λ·(1 − p_K)",
                format!("{rate} × (1 − {})", units::number(self.drop_probability)),
                units::rate(self.throughput_per_s),
                "what is not dropped is served",
            )
            .step(
                ("W", "the mean time that a packet waits which found room"),
                "Lq/γ, Lq = Σ_{n>c} (n − c)·p_n",
                format!("{} / {}", units::number(self.in_queue), units::rate(self.throughput_per_s)),
                units::time(self.wait_s),
                "Little's law",
            )
    }
}
