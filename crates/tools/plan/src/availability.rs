//! Availability of a service from the availability of its parts.
//!
//! Assumes that repairs are much shorter than the time between failures, and that parts fail independently.

use serde::Serialize;

use crate::error::{PlanError, at_most, count, share};
use crate::explain::{Explain, Explanation};
use crate::units;

/// Availability of a system.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Availability {
    /// Probability that the system answers.
    pub availability: f64,
    /// 1 − availability, computed without cancellation.
    pub unavailability: f64,
    /// −log₁₀ of the unavailability: 5.4 for 99.9996 %.
    pub nines: f64,
    /// Expected downtime in a year of 365.25 days, s.
    pub downtime_s_per_year: f64,
    #[serde(skip)]
    explanation: Explanation,
}

const MOST: u32 = 1 << 20;

impl Availability {
    /// Returns (1 − (1 − R_s)^S)·(1 − (1 − R_p)^B)^P, for S servers in front of P clusters of B members.
    ///
    /// See the failover paper, section 4.5. Without a first stage (S = 0) its factor is 1.
    ///
    /// # Errors
    /// A probability outside 0 to 1; no cluster; no member.
    pub fn two_stage(
        first: u32,
        first_node: f64,
        clusters: u32,
        members: u32,
        member_node: f64,
    ) -> Result<Self, PlanError> {
        at_most("first-stage servers", first, MOST)?;
        share("availability of a first-stage server", first_node)?;
        count("clusters", clusters, MOST)?;
        count("members of a cluster", members, MOST)?;
        share("availability of a member", member_node)?;
        let front = if first == 0 { 0.0 } else { ln_any_of(first, first_node) };
        let behind = f64::from(clusters) * ln_any_of(members, member_node);
        let formula =
            if first == 0 { "(1 − (1 − R_p)^B)^P" } else { "(1 − (1 − R_s)^S)·(1 − (1 − R_p)^B)^P" };
        let second = format!("(1 − (1 − {})^{members})^{clusters}", units::number(member_node));
        let numbers = if first == 0 {
            second
        } else {
            format!("(1 − (1 − {})^{first}) × {second}", units::number(first_node))
        };
        Ok(Self::from_ln(front + behind, formula, numbers, "section 4.5"))
    }

    /// Returns (1 − (1 − R_p)^P)·(1 − (1 − R_d)^D), for P proxies and D databases that each hold all data (section
    /// 4.1).
    ///
    /// # Errors
    /// A probability outside 0 to 1; no proxy; no database.
    pub fn replicated(proxies: u32, proxy: f64, databases: u32, database: f64) -> Result<Self, PlanError> {
        count("proxies", proxies, MOST)?;
        share("availability of a proxy", proxy)?;
        count("databases", databases, MOST)?;
        share("availability of a database", database)?;
        Ok(Self::from_ln(
            ln_any_of(proxies, proxy) + ln_any_of(databases, database),
            "(1 − (1 − R_p)^P)·(1 − (1 − R_d)^D)",
            format!(
                "(1 − (1 − {})^{proxies}) × (1 − (1 − {})^{databases})",
                units::number(proxy),
                units::number(database)
            ),
            "section 4.1",
        ))
    }

    /// Returns 1 − (1 − R)², for a primary and a backup (section 3.7).
    ///
    /// # Errors
    /// A probability outside 0 to 1.
    pub fn pair(node: f64) -> Result<Self, PlanError> {
        share("availability of a server", node)?;
        let numbers = format!("1 − (1 − {})²", units::number(node));
        Ok(Self::from_ln(ln_any_of(2, node), "1 − (1 − R)²", numbers, "section 3.7"))
    }

    /// Returns R_0·R_p^D·R_d^D, for one load balancer in front of D proxies with a database each, all without a spare
    /// (section 4.2).
    ///
    /// # Errors
    /// A probability outside 0 to 1; no group.
    pub fn without_redundancy(front: f64, groups: u32, proxy: f64, database: f64) -> Result<Self, PlanError> {
        share("availability of the first stage", front)?;
        let many = f64::from(count("groups", groups, MOST)?);
        share("availability of a proxy", proxy)?;
        share("availability of a database", database)?;
        Ok(Self::from_ln(
            front.ln() + many * (proxy.ln() + database.ln()),
            "R_0·R_p^D·R_d^D",
            format!(
                "{} × {}^{groups} × {}^{groups}",
                units::number(front),
                units::number(proxy),
                units::number(database)
            ),
            "section 4.2",
        ))
    }

    fn from_ln(ln: f64, formula: &str, numbers: String, section: &str) -> Self {
        // Subtract from 0 so that the result is 0 and not −0 when nothing fails.
        let unavailability = 0.0 - ln.exp_m1();
        let availability = ln.exp();
        let explanation = Explanation::new().step(
            ("R", "the probability that a request is answered"),
            formula,
            numbers,
            units::all_but(unavailability),
            &format!("Singh and Schulzrinne, failover paper, {section}"),
        );
        Self {
            availability,
            unavailability,
            nines: -unavailability.log10(),
            downtime_s_per_year: unavailability * units::SECONDS_PER_YEAR,
            explanation,
        }
    }
}

/// Returns ln of the probability that at least one of the nodes works.
fn ln_any_of(many: u32, node: f64) -> f64 {
    (-(1.0 - node).powi(many.min(i32::MAX as u32) as i32)).ln_1p()
}

impl Explain for Availability {
    fn explain(&self) -> Explanation {
        self.explanation.clone().step(
            ("outage", "the downtime per year"),
            "(1 − R)·365.25 d",
            format!("{} × 365.25 d", units::number(self.unavailability)),
            units::outage(self.downtime_s_per_year),
            "its definition",
        )
    }
}
