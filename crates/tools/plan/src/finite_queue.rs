//! Stationary distribution of c exponential servers with a buffer of `buffer` places, in closed form and without
//! overflow or cancellation.

use crate::error::{PlanError, count, positive};

/// Highest number of servers, c.
pub const MAX_SERVERS: u32 = 65_536;
/// Highest system size, K; above it the rounding of ρ shows in the result.
pub const MAX_QUEUE: u64 = 1_000_000_000;

/// Highest offered load, λ·E\[X\]: far above any meaningful load, and low enough that nothing overflows.
const MAX_OFFERED: f64 = 1e50;

/// Returns λ·E\[X\]. The product may be out of range although both factors are in range.
pub(crate) fn offered_load(rate_per_s: f64, service_s: f64) -> Result<f64, PlanError> {
    let offered = positive("offered load", rate_per_s * service_s)?;
    if offered > MAX_OFFERED {
        return Err(PlanError::TooMany { input: "offered load".into(), value: offered, limit: MAX_OFFERED });
    }
    Ok(offered)
}

pub(crate) fn limits(servers: u32, queue: u64) -> Result<(), PlanError> {
    count("servers", servers, MAX_SERVERS)?;
    if queue < u64::from(servers) {
        return Err(PlanError::SmallerThanServers { queue, servers });
    }
    if queue > MAX_QUEUE {
        return Err(PlanError::TooMany { input: "queue".into(), value: queue as f64, limit: MAX_QUEUE as f64 });
    }
    Ok(())
}

/// Stationary state of the queue.
pub(crate) struct FiniteQueue {
    /// p_K: probability that the system is full.
    pub full: f64,
    /// p_0: probability that the system is empty.
    pub empty: f64,
    /// Mean number of busy servers.
    pub busy: f64,
    /// Mean number of waiting customers.
    pub waiting: f64,
}

impl FiniteQueue {
    /// Computes the distribution. `offered` is λ/μ, above 0; `buffer` is K − c and need not be an integer.
    ///
    /// With t_n = (λ/μ)^n/n! and r = λ/(cμ), p_n is proportional to t_n for n ≤ c and to t_c·r^(n−c) above. Below c
    /// the terms are summed and rescaled when they grow large; above c the sums are geometric. All terms are
    /// positive, so nothing cancels. With r > 1 the sums run from the full end in powers of 1/r, so nothing
    /// overflows.
    pub(crate) fn solve(offered: f64, servers: u32, buffer: f64) -> Self {
        let r = offered / f64::from(servers);
        let below = PartialSums::sum(offered, servers);
        let ln_r = r.ln();
        let geometric = Geometric::new(-ln_r.abs(), buffer + 1.0);
        // If r is above 1, all terms are divided by r^buffer.
        let overloaded = ln_r > 0.0;
        let shrink = if overloaded { (-buffer * ln_r).exp() } else { 1.0 };
        let above = below.last * geometric.sum;
        let all = below.terms * shrink + above;
        let full = if overloaded || buffer == 0.0 { below.last } else { below.last * (buffer * ln_r).exp() };
        // Mean position in the buffer; if overloaded, it was counted from the far end.
        let place = if overloaded { buffer - geometric.mean } else { geometric.mean };
        let ln_all = all.ln() + below.ln_scale + if overloaded { buffer * ln_r } else { 0.0 };
        Self {
            full: full / all,
            empty: (-ln_all).exp(),
            busy: (below.weighted * shrink + f64::from(servers) * above) / all,
            waiting: above * place / all,
        }
    }
}

/// Sums of t_n over n < c, each divided by e^`ln_scale`.
struct PartialSums {
    terms: f64,
    /// Σ_{n<c} n·t_n.
    weighted: f64,
    /// t_c.
    last: f64,
    ln_scale: f64,
}

impl PartialSums {
    fn sum(offered: f64, servers: u32) -> Self {
        let mut sum = Self { terms: 0.0, weighted: 0.0, last: 1.0, ln_scale: 0.0 };
        for n in 0..servers {
            let n = f64::from(n);
            sum.terms += sum.last;
            sum.weighted += n * sum.last;
            sum.last *= offered / (n + 1.0);
            if sum.last.max(sum.weighted) > TOO_LARGE {
                sum.terms /= TOO_LARGE;
                sum.weighted /= TOO_LARGE;
                sum.last /= TOO_LARGE;
                sum.ln_scale += TOO_LARGE.ln();
            }
        }
        sum
    }
}

/// Rescaling threshold, 2^200.
///
/// Division by a power of two is exact. The value is far enough from overflow that a term can be multiplied by any
/// load up to [`MAX_OFFERED`] and still be below the threshold after the division.
const TOO_LARGE: f64 = 1.606_938_044_258_990_3e60;

/// Geometric sums of q^0, q^1, … q^(M−1), for 0 < q ≤ 1. M need not be an integer.
struct Geometric {
    sum: f64,
    /// Σ j·q^j divided by Σ q^j.
    mean: f64,
}

impl Geometric {
    fn new(ln_q: f64, terms: f64) -> Self {
        let x = -ln_q;
        if x == 0.0 {
            return Self { sum: terms, mean: (terms - 1.0) / 2.0 };
        }
        let sum = (-terms * x).exp_m1() / (-x).exp_m1();
        // 1/(e^x − 1) − M/(e^(Mx) − 1). For small x both terms are close to 1/x, so 1/x is removed from each first.
        let mean = if x < 1.0 {
            without_pole(x) - terms * without_pole(terms * x)
        } else {
            1.0 / x.exp_m1() - terms / (terms * x).exp_m1()
        };
        Self { sum, mean: mean.max(0.0) }
    }
}

/// Returns 1/(e^x − 1) − 1/x for x > 0. For small x, where the difference would cancel, it uses the Bernoulli series.
fn without_pole(x: f64) -> f64 {
    if x >= 0.5 {
        return 1.0 / x.exp_m1() - 1.0 / x;
    }
    let y = x * x;
    let series = COEFFICIENTS.iter().rev().fold(0.0, |sum, coefficient| sum * y + coefficient);
    series * x - 0.5
}

/// B_{2k}/(2k)!, k from 1; at x = 0.5 the first omitted term is about 10⁻¹⁷.
const COEFFICIENTS: [f64; 7] = [
    1.0 / 12.0,
    -1.0 / 720.0,
    1.0 / 30_240.0,
    -1.0 / 1_209_600.0,
    1.0 / 47_900_160.0,
    -691.0 / 1_307_674_368_000.0,
    1.0 / 74_724_249_600.0,
];
