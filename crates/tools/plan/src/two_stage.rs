//! Two stages: n servers that only forward, in front of m that serve, each a share of the users.

use serde::Serialize;

use crate::error::{PlanError, at_most, count, finite, not_negative, positive, share, shares};
use crate::explain::{Explain, Explanation};
use crate::units;

const MOST: u32 = 1 << 16;

/// S*n*P*m: n first-stage servers of capacity C_s, m second-stage servers of capacity C_p, and which share f_j of the
/// load the hash gives to each.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TwoStage {
    first: u32,
    first_capacity_per_s: f64,
    second_capacity_per_s: f64,
    shares: Vec<f64>,
}

/// What is full at a break point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// All servers of the first stage.
    First,
    /// So many servers of the second, those with the largest shares.
    Second(u32),
}

/// Where the line of throughput over load bends, because something is full from there on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BreakPoint {
    /// λ, 1/s.
    pub load_per_s: f64,
    /// τ(λ), 1/s.
    pub throughput_per_s: f64,
    /// How much of each further request is carried: the sum of the shares that are not full yet.
    pub slope_after: f64,
    /// What is full.
    pub full: Bottleneck,
}

impl TwoStage {
    /// n = `first` servers, 0 for none; one share for each server of the second stage.
    ///
    /// # Errors
    /// A capacity that is not above 0 (the first stage's is not looked at where there is none); shares that are
    /// none or do not sum to 1.
    pub fn new(
        first: u32,
        first_capacity_per_s: f64,
        second_capacity_per_s: f64,
        given: &[f64],
    ) -> Result<Self, PlanError> {
        at_most("first-stage servers", first, MOST)?;
        let first_capacity_per_s =
            if first == 0 { 0.0 } else { positive("first stage's capacity", first_capacity_per_s)? };
        let second_capacity_per_s = positive("second stage's capacity", second_capacity_per_s)?;
        let mut shares = shares("shares of the second stage", given)?;
        shares.sort_by(|a, b| b.total_cmp(a));
        Ok(Self { first, first_capacity_per_s, second_capacity_per_s, shares })
    }

    /// The same with a hash that spreads evenly: f_j = 1/m.
    ///
    /// # Errors
    /// As [`TwoStage::new`], and no second stage.
    pub fn even(
        first: u32,
        first_capacity_per_s: f64,
        second: u32,
        second_capacity_per_s: f64,
    ) -> Result<Self, PlanError> {
        let second = count("second-stage servers", second, MOST)?;
        let share = 1.0 / f64::from(second);
        Self::new(first, first_capacity_per_s, second_capacity_per_s, &vec![share; second as usize])
    }

    /// The shares, the largest first.
    pub fn shares(&self) -> &[f64] {
        &self.shares
    }

    /// What passes the first stage at a load: min(λ, n·C_s), or λ where there is none.
    pub fn passes_first(&self, load_per_s: f64) -> f64 {
        if self.first == 0 { load_per_s } else { load_per_s.min(self.first_limit()) }
    }

    /// τ(λ) = Σ_j min(f_j·min(λ, n·C_s), C_p), 1/s.
    pub fn throughput(&self, load_per_s: f64) -> f64 {
        let passed = self.passes_first(load_per_s.max(0.0));
        self.shares.iter().map(|share| (share * passed).min(self.second_capacity_per_s)).sum()
    }

    /// The highest throughput at any load, 1/s.
    pub fn capacity(&self) -> f64 {
        if self.first == 0 {
            let serving = self.shares.iter().filter(|share| **share > 0.0).count();
            return serving as f64 * self.second_capacity_per_s;
        }
        self.throughput(self.first_limit())
    }

    /// The highest load of which everything is carried, 1/s.
    pub fn carries_all_up_to(&self) -> f64 {
        let largest = self.shares.first().copied().unwrap_or(1.0);
        self.passes_first(self.second_capacity_per_s / largest)
    }

    /// Where the throughput bends, by rising load. After the last it is the capacity.
    pub fn break_points(&self) -> Vec<BreakPoint> {
        let limit = if self.first == 0 { f64::INFINITY } else { self.first_limit() };
        let mut points: Vec<BreakPoint> = Vec::new();
        for (at, share) in self.shares.iter().enumerate() {
            let load_per_s = self.second_capacity_per_s / share;
            if *share <= 0.0 || load_per_s > limit {
                break;
            }
            let full = Bottleneck::Second(at as u32 + 1);
            let slope_after = self.shares.iter().skip(at + 1).sum();
            if points.last().is_some_and(|last| is_same(last.load_per_s, load_per_s)) {
                points.pop();
            }
            points.push(BreakPoint { load_per_s, throughput_per_s: self.throughput(load_per_s), slope_after, full });
        }
        match points.last_mut() {
            _ if self.first == 0 => {}
            // A first stage that fills up when nothing behind it has room bends nothing.
            Some(last) if last.slope_after <= 0.0 => {}
            // Both fill up at once.
            Some(last) if is_same(last.load_per_s, limit) => last.slope_after = 0.0,
            _ => points.push(BreakPoint {
                load_per_s: limit,
                throughput_per_s: self.throughput(limit),
                slope_after: 0.0,
                full: Bottleneck::First,
            }),
        }
        points
    }

    fn first_limit(&self) -> f64 {
        f64::from(self.first) * self.first_capacity_per_s
    }
}

fn is_same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

impl Explain for TwoStage {
    fn explain(&self) -> Explanation {
        let second = units::rate(self.second_capacity_per_s);
        let mut out = Explanation::new();
        if self.first > 0 {
            out = out.step(
                ("n·C_s", "what the first stage passes on"),
                "n·C_s",
                format!("{} × {}", self.first, units::rate(self.first_capacity_per_s)),
                units::rate(self.first_limit()),
                SOURCE,
            );
        }
        for point in self.break_points() {
            let (meaning, formula) = match point.full {
                Bottleneck::First => ("the first stage is full".to_owned(), "n·C_s"),
                Bottleneck::Second(many) => (format!("{many} of the second stage are full"), "C_p/f_j"),
            };
            let numbers = match point.full {
                Bottleneck::First => format!("{} × {}", self.first, units::rate(self.first_capacity_per_s)),
                Bottleneck::Second(_) => {
                    format!("{second} / {}", units::number(self.second_capacity_per_s / point.load_per_s))
                }
            };
            let value = format!(
                "at {}: {} carried, then {} of each more",
                units::rate(point.load_per_s),
                units::rate(point.throughput_per_s),
                units::share(point.slope_after)
            );
            out = out.step(("λ", meaning.as_str()), formula, numbers, value, SOURCE);
        }
        let shares: Vec<String> = self.shares.iter().map(|share| units::number(*share)).collect();
        out.step(
            ("τ", "the highest throughput"),
            "Σ_j min(f_j·min(λ, n·C_s), C_p), λ → ∞",
            format!("f = {{{}}}, C_p = {second}", shares.join(", ")),
            units::rate(self.capacity()),
            SOURCE,
        )
    }
}

const SOURCE: &str = "Singh and Schulzrinne, failover paper, section 5.2";

/// A server that keeps state for a part of its load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PartStateful {
    /// f_s.
    pub stateful_share: f64,
    /// C: what it carries when nothing is kept, 1/s.
    pub stateless_per_s: f64,
    /// C′: what it carries when everything is, 1/s.
    pub stateful_per_s: f64,
    /// What it carries, 1/s.
    pub capacity_per_s: f64,
}

/// The capacity of a server of whose load a share f_s is kept stateful: (1 − f_s)·C + f_s·C′ (failover paper,
/// section 5.4), a straight line between what was measured without state and with it.
///
/// # Errors
/// A share that is none, capacities that are not above 0.
pub fn part_stateful(
    stateful_share: f64,
    stateless_per_s: f64,
    stateful_per_s: f64,
) -> Result<PartStateful, PlanError> {
    share("stateful share", stateful_share)?;
    positive("stateless capacity", stateless_per_s)?;
    positive("stateful capacity", stateful_per_s)?;
    let capacity_per_s = (1.0 - stateful_share) * stateless_per_s + stateful_share * stateful_per_s;
    Ok(PartStateful { stateful_share, stateless_per_s, stateful_per_s, capacity_per_s })
}

/// [`part_stateful`]'s capacity alone, 1/s.
///
/// # Errors
/// As [`part_stateful`].
pub fn part_stateful_capacity(
    stateful_share: f64,
    stateless_per_s: f64,
    stateful_per_s: f64,
) -> Result<f64, PlanError> {
    part_stateful(stateful_share, stateless_per_s, stateful_per_s).map(|answer| answer.capacity_per_s)
}

impl Explain for PartStateful {
    fn explain(&self) -> Explanation {
        let share = units::number(self.stateful_share);
        Explanation::new().step(
            ("C_f", "the capacity with a part of the load kept stateful"),
            "(1 − f_s)·C + f_s·C′",
            format!(
                "(1 − {share}) × {} + {share} × {}",
                units::rate(self.stateless_per_s),
                units::rate(self.stateful_per_s)
            ),
            units::rate(self.capacity_per_s),
            "Singh and Schulzrinne, failover paper, section 5.4",
        )
    }
}

/// What is asked of two stages (failover paper, section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StageRequirements {
    /// λ_R: REGISTERs, 1/s.
    pub registers_per_s: f64,
    /// λ_P: INVITEs and what else is proxied, 1/s.
    pub requests_per_s: f64,
    /// μ_s: what a first-stage server forwards, 1/s.
    pub first_per_s: f64,
    /// μ_r: the REGISTERs that a second-stage server serves, 1/s.
    pub register_per_s: f64,
    /// μ_p: the requests that a second-stage server proxies, 1/s.
    pub proxy_per_s: f64,
    /// The share of its time that a server may work: what is left is for bursts.
    pub utilization: f64,
    /// The largest cluster's load over the mean cluster's: 1 for a hash that spreads evenly.
    pub skew: f64,
}

/// How many servers of each stage that takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StageSizing {
    /// What was asked.
    #[serde(rename = "asked")]
    pub requirements: StageRequirements,
    /// The share of its time that one server would work on everything: λ_R/μ_r + λ_P/μ_p.
    pub single_utilization: f64,
    /// Whether one cluster is not enough, so that something must send each user to his own.
    pub first_is_needed: bool,
    /// S, without spares; 0 where no first stage is needed.
    pub first: u32,
    /// P, each without spares.
    pub clusters: u32,
    /// What each first-stage server works of its time.
    pub first_utilization: f64,
    /// What the busiest cluster works of its time.
    pub second_utilization: f64,
}

/// When a first stage is needed, and how many of each: P = ⌈skew·(λ_R/μ_r + λ_P/μ_p)/u⌉ and, if that is more than
/// one, S = ⌈(λ_R + λ_P)/(μ_s·u)⌉.
///
/// # Errors
/// Rates that are negative or none, servers that serve nothing, a utilization outside (0, 1], a skew below 1, and
/// needs of more than 65,536 servers.
pub fn stages(asked: StageRequirements) -> Result<StageSizing, PlanError> {
    let registers = not_negative("REGISTER rate", asked.registers_per_s)?;
    let requests = not_negative("request rate", asked.requests_per_s)?;
    let first_rate = positive("first stage's rate", asked.first_per_s)?;
    let register_rate = positive("REGISTER service rate", asked.register_per_s)?;
    let proxy_rate = positive("proxy service rate", asked.proxy_per_s)?;
    let limit = positive("utilization", share("utilization", asked.utilization)?)?;
    let skew = check_skew(asked.skew)?;
    let single = registers / register_rate + requests / proxy_rate;
    let clusters = if single <= limit { 1 } else { servers("clusters", skew * single / limit)? };
    let first_is_needed = clusters > 1;
    let first = if first_is_needed {
        servers("first-stage servers", (registers + requests) / (first_rate * limit))?
    } else {
        0
    };
    let skew = if first_is_needed { skew } else { 1.0 };
    Ok(StageSizing {
        requirements: asked,
        single_utilization: single,
        first_is_needed,
        first,
        clusters,
        first_utilization: if first == 0 { 0.0 } else { (registers + requests) / (first_rate * f64::from(first)) },
        second_utilization: skew * single / f64::from(clusters),
    })
}

/// The largest cluster's load over the mean cluster's.
pub(crate) fn check_skew(skew: f64) -> Result<f64, PlanError> {
    if finite("skew", skew)? >= 1.0 {
        return Ok(skew);
    }
    Err(PlanError::Contradiction {
        input: "skew".into(),
        reason: format!("the busiest cluster cannot have {skew} times the mean cluster's load"),
        remedy: "give 1 for a hash that spreads evenly, more for one that does not",
    })
}

/// The whole number of servers that work `load` times the time of one.
pub(crate) fn servers(input: &'static str, load: f64) -> Result<u32, PlanError> {
    // What is above a whole number by a rounding error needs no further server.
    let whole = (load * (1.0 - 1e-12)).ceil().max(1.0);
    if whole > f64::from(MOST) {
        return Err(PlanError::TooMany { input: input.into(), value: whole, limit: f64::from(MOST) });
    }
    Ok(whole as u32)
}

impl Explain for StageSizing {
    fn explain(&self) -> Explanation {
        let asked = &self.requirements;
        let limit = units::number(asked.utilization);
        let out = Explanation::new().step(
            ("ρ", "what one server would work of its time, with everything"),
            "λ_R/μ_r + λ_P/μ_p",
            format!(
                "{}/{} + {}/{}",
                units::rate(asked.registers_per_s),
                units::rate(asked.register_per_s),
                units::rate(asked.requests_per_s),
                units::rate(asked.proxy_per_s)
            ),
            units::number(self.single_utilization),
            STAGES,
        );
        if !self.first_is_needed {
            return out.step(
                ("S", "first-stage servers"),
                "0 where ρ ≤ u",
                format!("{} ≤ {limit}", units::number(self.single_utilization)),
                "0: one cluster serves all, nothing has to choose among clusters",
                STAGES,
            );
        }
        out.step(
            ("P", "clusters of the second stage"),
            "⌈skew·ρ/u⌉",
            format!("⌈{} × {} / {limit}⌉", units::number(asked.skew), units::number(self.single_utilization)),
            self.clusters.to_string(),
            STAGES,
        )
        .step(
            ("S", "first-stage servers"),
            "⌈(λ_R + λ_P)/(μ_s·u)⌉",
            format!(
                "⌈({} + {}) / ({} × {limit})⌉",
                units::rate(asked.registers_per_s),
                units::rate(asked.requests_per_s),
                units::rate(asked.first_per_s)
            ),
            self.first.to_string(),
            STAGES,
        )
    }
}

const STAGES: &str = "Singh and Schulzrinne, failover paper, section 4.5: constant service rates, λ/P to each cluster";
