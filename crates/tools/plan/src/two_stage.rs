//! Two-stage clusters: n servers that only forward, in front of m servers that each serve a share of the users.

use serde::Serialize;

use crate::error::{PlanError, at_most, count, finite, not_negative, positive, share, shares};
use crate::explain::{Explain, Explanation};
use crate::units;

const MOST: u32 = 1 << 16;

/// S*n*P*m: n first-stage servers of capacity C_s, m second-stage servers of capacity C_p, and the share f_j of the
/// load that the hash gives to each.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TwoStage {
    first: u32,
    first_capacity_per_s: f64,
    second_capacity_per_s: f64,
    shares: Vec<f64>,
}

/// Servers that saturate at a break point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// All servers of the first stage.
    First,
    /// Number of second-stage servers that are saturated: those with the largest shares.
    Second(u32),
}

/// Load at which servers saturate, so that the slope of throughput over load changes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BreakPoint {
    /// λ, 1/s.
    pub load_per_s: f64,
    /// τ(λ), 1/s.
    pub throughput_per_s: f64,
    /// Share of additional load that is carried: the sum of the shares of unsaturated servers.
    pub slope_after: f64,
    /// Saturated servers.
    pub full: Bottleneck,
}

impl TwoStage {
    /// Creates a cluster with n = `first` servers, 0 for none, and one share per second-stage server.
    ///
    /// # Errors
    /// A capacity that is not above 0 (the first stage's is ignored if it has no servers); shares that are invalid or
    /// do not sum to 1.
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

    /// Creates a cluster whose hash spreads evenly: f_j = 1/m.
    ///
    /// # Errors
    /// As [`TwoStage::new`], and an empty second stage.
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

    /// Returns the shares, largest first.
    pub fn shares(&self) -> &[f64] {
        &self.shares
    }

    /// Returns the load that passes the first stage: min(λ, n·C_s), or λ without a first stage.
    pub fn passes_first(&self, load_per_s: f64) -> f64 {
        if self.first == 0 { load_per_s } else { load_per_s.min(self.first_limit()) }
    }

    /// Returns τ(λ) = Σ_j min(f_j·min(λ, n·C_s), C_p), 1/s.
    pub fn throughput(&self, load_per_s: f64) -> f64 {
        let passed = self.passes_first(load_per_s.max(0.0));
        self.shares.iter().map(|share| (share * passed).min(self.second_capacity_per_s)).sum()
    }

    /// Returns the highest throughput at any load, 1/s.
    pub fn capacity(&self) -> f64 {
        if self.first == 0 {
            let serving = self.shares.iter().filter(|share| **share > 0.0).count();
            return serving as f64 * self.second_capacity_per_s;
        }
        self.throughput(self.first_limit())
    }

    /// Returns the highest load that is carried completely, 1/s.
    pub fn carries_all_up_to(&self) -> f64 {
        let largest = self.shares.first().copied().unwrap_or(1.0);
        self.passes_first(self.second_capacity_per_s / largest)
    }

    /// Returns the break points by rising load. After the last, throughput is the capacity.
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
            // The second stage is already saturated, so a saturated first stage changes nothing.
            Some(last) if last.slope_after <= 0.0 => {}
            // Both stages saturate at the same load.
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
                ("n·C_s", "the throughput of the first stage"),
                "n·C_s",
                format!("{} × {}", self.first, units::rate(self.first_capacity_per_s)),
                units::rate(self.first_limit()),
                SOURCE,
            );
        }
        for point in self.break_points() {
            let (meaning, formula) = match point.full {
                Bottleneck::First => ("the first stage is full".to_owned(), "n·C_s"),
                Bottleneck::Second(many) => (format!("{many} second-stage servers are full"), "C_p/f_j"),
            };
            let numbers = match point.full {
                Bottleneck::First => format!("{} × {}", self.first, units::rate(self.first_capacity_per_s)),
                Bottleneck::Second(_) => {
                    format!("{second} / {}", units::number(self.second_capacity_per_s / point.load_per_s))
                }
            };
            let value = format!(
                "at {}: {} carried, then {} of further load",
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

/// Server that is stateful for part of its load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PartStateful {
    /// f_s: stateful share of the load.
    pub stateful_share: f64,
    /// C: capacity if everything is stateless, 1/s.
    pub stateless_per_s: f64,
    /// C′: capacity if everything is stateful, 1/s.
    pub stateful_per_s: f64,
    /// Capacity with the stateful share, 1/s.
    pub capacity_per_s: f64,
}

/// Computes the capacity of a server that is stateful for a share f_s of its load: (1 − f_s)·C + f_s·C′.
///
/// This interpolates linearly between the stateless and the stateful measurement (failover paper, section 5.4).
///
/// # Errors
/// An invalid share, capacities that are not above 0.
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

/// Returns only the capacity of [`part_stateful`], 1/s.
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
            ("C_f", "the capacity with a part of the load forwarded statefully"),
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

/// Requirements of a two-stage cluster (failover paper, section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StageRequirements {
    /// λ_R: REGISTERs, 1/s.
    pub registers_per_s: f64,
    /// λ_P: INVITEs and other proxied requests, 1/s.
    pub requests_per_s: f64,
    /// μ_s: forwarding rate of a first-stage server, 1/s.
    pub first_per_s: f64,
    /// μ_r: REGISTER rate of a second-stage server, 1/s.
    pub register_per_s: f64,
    /// μ_p: proxying rate of a second-stage server, 1/s.
    pub proxy_per_s: f64,
    /// Highest utilization of a server; the rest is headroom for bursts.
    pub utilization: f64,
    /// Load of the largest cluster relative to the mean: 1 for a hash that spreads evenly.
    pub skew: f64,
}

/// Number of servers in each stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StageSizing {
    /// Requirements.
    #[serde(rename = "asked")]
    pub requirements: StageRequirements,
    /// Utilization of a single server with all the load: λ_R/μ_r + λ_P/μ_p.
    pub single_utilization: f64,
    /// Whether one cluster is not enough, so that a first stage must send each user to the right cluster.
    pub first_is_needed: bool,
    /// S: first-stage servers without spares; 0 if no first stage is needed.
    pub first: u32,
    /// P: number of clusters, each without spares.
    pub clusters: u32,
    /// Utilization of each first-stage server.
    pub first_utilization: f64,
    /// Utilization of the busiest cluster.
    pub second_utilization: f64,
}

/// Computes whether a first stage is needed, and the servers of each stage.
///
/// With ρ = λ_R/μ_r + λ_P/μ_p, one cluster without a first stage is enough if ρ ≤ u. Otherwise P = ⌈skew·ρ/u⌉ and S =
/// ⌈(λ_R + λ_P)/(μ_s·u)⌉.
///
/// # Errors
/// Rates that are negative or all zero, servers with a rate of 0, a utilization outside (0, 1], a skew below 1, and a
/// result above 65,536 servers.
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

/// Checks the load of the largest cluster relative to the mean.
pub(crate) fn check_skew(skew: f64) -> Result<f64, PlanError> {
    if finite("skew", skew)? >= 1.0 {
        return Ok(skew);
    }
    Err(PlanError::Contradiction {
        input: "skew".into(),
        reason: format!("the busiest cluster cannot have {skew} times the mean cluster's load"),
        remedy: "give 1 for an even distribution, more for an uneven one",
    })
}

/// Returns the number of servers for `load` times the work of one.
pub(crate) fn servers(input: &'static str, load: f64) -> Result<u32, PlanError> {
    // A rounding error above an integer must not add a server.
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
            ("ρ", "the utilization of one server with the whole load"),
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
                "0: one cluster serves all users",
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
