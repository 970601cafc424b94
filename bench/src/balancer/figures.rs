//! Measured results as they are saved between runs. A run can start from such a file, so a long measurement can be
//! done in parts.

use serde::{Deserialize, Serialize};

use super::contender::{Contender, Layout};

/// Times from a request to its 2xx, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each is what its name says")]
pub struct Times {
    pub mean: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
}

/// Results of one load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Started calls per second.
    pub offered: f64,
    /// Successful calls per second, until the last call started.
    pub carried: f64,
    /// Started calls.
    #[serde(default)]
    pub sent: u64,
    /// Started calls that failed.
    pub not_carried: u64,
    /// INVITE to 200.
    pub invite: Times,
    /// BYE to 200.
    pub bye: Times,
    /// Share of INVITEs and BYEs with a 200 before their first retransmission.
    pub before_t1: f64,
    /// Share of INVITEs and BYEs with a 200 so soon that callers hardly notice the wait.
    pub soon: f64,
    /// Processor time of the balancer per call, in microseconds.
    pub processor: f64,
    /// Whether the generator fell behind, so that the times include its own delay.
    pub is_late: bool,
}

/// Requirement on response times for a load to count as sustained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// 99.99 % of requests have a 200 before their first retransmission.
    BeforeT1,
    /// 99.99 % of requests have a 200 within [`SOON`](super::generate::SOON).
    Soon,
}

/// Share of requests that must be answered in time.
pub const SUCCESS: f64 = 0.999_9;

impl Figures {
    /// Returns the share of started calls that succeeded, in percent, or NaN without calls.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub fn carried_percent(&self) -> f64 {
        100.0 * (1.0 - self.not_carried as f64 / self.sent as f64)
    }

    /// Returns whether the results satisfy a rule.
    #[must_use]
    pub fn holds(&self, rule: Rule) -> bool {
        SUCCESS
            <= match rule {
                Rule::BeforeT1 => self.before_t1,
                Rule::Soon => self.soon,
            }
    }
}

/// A contender under increasing loads, in percent of the targets' capacity.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadRun {
    /// Contender under test.
    pub contender: Contender,
    /// Layout of the targets.
    pub layout: Layout,
    /// Round, from 1.
    pub round: usize,
    /// Each load with its results.
    pub loads: Vec<(u32, Figures)>,
}

/// Results of a policy with ideal queues, at the load at which policies are compared.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ModelResult {
    /// Modelled contender.
    pub contender: Contender,
    /// Layout of the targets.
    pub layout: Layout,
    /// INVITE to 200.
    pub invite: Times,
    /// BYE to 200.
    pub bye: Times,
}

/// Resources that a balancer used at saturation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Calls per second.
    pub rate: f64,
    /// Processor time of all its processes per call, in microseconds.
    pub processor: f64,
    /// Share of that spent in the kernel, in percent.
    pub kernel: f64,
    /// Average number of cores that it kept busy.
    pub cores: f64,
    /// Share of its core that the generator used.
    pub generator: f64,
}

/// Memory of established calls.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Sessions {
    /// Contender under test.
    pub contender: Contender,
    /// Number of calls at the end.
    pub count: u64,
    /// Bytes per additional call, measured once transactions end at the rate at which they begin.
    pub each: f64,
    /// Total memory at the end, in MiB.
    pub all_mib: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balancer::results::Results;
    use crate::saved_results::{self, Conditions};

    #[test]
    fn the_highest_load_is_the_last_before_a_failure() {
        let layout = Layout::equal(8);
        let held = |share: f64| Figures { before_t1: share, soon: 0.5, ..Figures::default() };
        let loads = vec![(80, held(1.0)), (90, held(0.999_95)), (95, held(0.999)), (97, held(1.0))];
        let turn = LoadRun { contender: Contender::Hash, layout, round: 1, loads };
        let results = Results { turns: vec![turn], ..Results::default() };
        let (rate, is_last) = results.highest(Contender::Hash, layout, Rule::BeforeT1).expect("two hold");
        assert!((rate - 2_160.0).abs() < 1e-6 && !is_last, "{rate}");
        assert_eq!(results.highest(Contender::Hash, layout, Rule::Soon), None);
        assert_eq!(results.loads(layout), [80, 90, 95, 97]);
        assert_eq!(results.layouts(), [layout]);
    }

    #[test]
    fn results_round_trip() {
        let layout = Layout::equal(2);
        let turn = LoadRun { contender: Contender::Fnv, layout, round: 2, loads: vec![(80, Figures::default())] };
        let costs = vec![(Contender::KamailioHash, 1, Cost { rate: 9.0, ..Cost::default() })];
        let results = Results { turns: vec![turn], costs, ..Results::default() };
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("balancer.json");
        saved_results::write(&file, &Conditions::default(), &results).expect("it can be written");
        let again: Results = saved_results::read(&file, &Conditions::default()).expect("it can be read");
        assert!(again.has(Contender::Fnv, layout, 2) && !again.has(Contender::Fnv, layout, 1));
        assert_eq!(again.cost(Contender::KamailioHash, |cost| cost.rate), Some(9.0));
    }
}
