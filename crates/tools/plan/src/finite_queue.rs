//! The stationary distribution of c exponential servers with room for `buffer` more, in closed form and without
//! overflow or cancellation.

use crate::error::{PlanError, count, positive};

/// c at most.
pub const MAX_SERVERS: u32 = 65_536;
/// K at most: beyond it the rounding of ρ shows in the answer.
pub const MAX_QUEUE: u64 = 1_000_000_000;

/// λ·E\[X\] at most: far beyond what has a meaning, and near enough for nothing to overflow.
const MAX_OFFERED: f64 = 1e50;

/// λ·E\[X\], which may be out of range although both are in theirs.
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

/// What is true of the queue at a random moment.
pub(crate) struct FiniteQueue {
    /// p_K.
    pub full: f64,
    /// p_0.
    pub empty: f64,
    /// The mean number of servers that work.
    pub busy: f64,
    /// The mean number who wait.
    pub waiting: f64,
}

impl FiniteQueue {
    /// `offered` is λ/μ, above 0; `buffer` is K − c and need not be whole.
    ///
    /// With t_n = (λ/μ)^n/n! and r = λ/(cμ), p_n is t_n for n ≤ c and t_c·r^(n−c) above, over the sum of them all. Below c
    /// the terms are summed, scaled whenever they grow; above, the sums are geometric. All terms are
    /// positive, so nothing cancels; with r > 1 they are counted from the full end, as powers of 1/r, so nothing overflows.
    pub(crate) fn solve(offered: f64, servers: u32, buffer: f64) -> Self {
        let r = offered / f64::from(servers);
        let below = Below::sum(offered, servers);
        let ln_r = r.ln();
        let geometric = Geometric::new(-ln_r.abs(), buffer + 1.0);
        // Where r is above 1, everything is divided by r^buffer.
        let overloaded = ln_r > 0.0;
        let shrink = if overloaded { (-buffer * ln_r).exp() } else { 1.0 };
        let above = below.last * geometric.sum;
        let all = below.terms * shrink + above;
        let full = if overloaded || buffer == 0.0 { below.last } else { below.last * (buffer * ln_r).exp() };
        // The mean place in the queue, counted from its near end or from its far one.
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

/// Σ_{n<c} t_n and its like, each divided by e^`ln_scale`.
struct Below {
    terms: f64,
    /// Σ_{n<c} n·t_n.
    weighted: f64,
    /// t_c.
    last: f64,
    ln_scale: f64,
}

impl Below {
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

/// 2^200: a power of two, so that dividing by it rounds nothing, and far enough from overflow for a term to be
/// multiplied by any load up to [`MAX_OFFERED`] and stay below it after that division.
const TOO_LARGE: f64 = 1.606_938_044_258_990_3e60;

/// q^0, q^1, … q^(M−1), for 0 < q ≤ 1: M need not be whole.
struct Geometric {
    sum: f64,
    /// Σ j·q^j over the sum.
    mean: f64,
}

impl Geometric {
    fn new(ln_q: f64, terms: f64) -> Self {
        let x = -ln_q;
        if x == 0.0 {
            return Self { sum: terms, mean: (terms - 1.0) / 2.0 };
        }
        let sum = (-terms * x).exp_m1() / (-x).exp_m1();
        // 1/(e^x − 1) − M/(e^(Mx) − 1). For small x both are near 1/x, which is taken out of each beforehand.
        let mean = if x < 1.0 {
            without_pole(x) - terms * without_pole(terms * x)
        } else {
            1.0 / x.exp_m1() - terms / (terms * x).exp_m1()
        };
        Self { sum, mean: mean.max(0.0) }
    }
}

/// 1/(e^x − 1) − 1/x for x > 0: by its series, whose coefficients are Bernoulli's numbers over factorials, where the
/// difference would cancel.
fn without_pole(x: f64) -> f64 {
    if x >= 0.5 {
        return 1.0 / x.exp_m1() - 1.0 / x;
    }
    let y = x * x;
    let series = COEFFICIENTS.iter().rev().fold(0.0, |sum, coefficient| sum * y + coefficient);
    series * x - 0.5
}

/// B_{2k}/(2k)!, k from 1; the next one is worth 10⁻¹⁷ at 0.5.
const COEFFICIENTS: [f64; 7] = [
    1.0 / 12.0,
    -1.0 / 720.0,
    1.0 / 30_240.0,
    -1.0 / 1_209_600.0,
    1.0 / 47_900_160.0,
    -691.0 / 1_307_674_368_000.0,
    1.0 / 74_724_249_600.0,
];
