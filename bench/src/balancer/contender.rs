//! The compared policies and the layouts of targets.

use std::fmt;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::{BALANCER, target};

/// A load-balancing policy of Strowger or Kamailio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[expect(missing_docs, reason = "`KNOWN` says what they are")]
pub enum Contender {
    Hash,
    Openser,
    Fnv,
    RoundRobin,
    Weighted,
    LeastCalls,
    LeastTransactions,
    LeastWork175,
    LeastWork2,
    LeastWorkOfTwo,
    Adaptive,
    KamailioHash,
    KamailioRoundRobin,
    KamailioWeight,
    KamailioCallLoad,
}

use Contender::{
    Adaptive, Fnv, Hash, KamailioCallLoad, KamailioHash, KamailioRoundRobin, KamailioWeight, LeastCalls,
    LeastTransactions, LeastWork2, LeastWork175, LeastWorkOfTwo, Openser, RoundRobin, Weighted,
};

/// How a policy is configured.
enum PolicyConfig {
    /// Strowger: keys of `[[balancer]]`.
    Ours(&'static str),
    /// Kamailio: number of the dispatcher's algorithm.
    Kamailio(u8),
}

struct ContenderInfo {
    contender: Contender,
    /// Name on the command line.
    name: &'static str,
    /// Name in tables, from the papers.
    shown: &'static str,
    told: PolicyConfig,
    /// Whether the policy uses weights.
    weighs: bool,
}

const fn ours(
    contender: Contender,
    name: &'static str,
    shown: &'static str,
    keys: &'static str,
    weighs: bool,
) -> ContenderInfo {
    ContenderInfo { contender, name, shown, told: PolicyConfig::Ours(keys), weighs }
}

const fn kamailio(
    contender: Contender,
    name: &'static str,
    shown: &'static str,
    algorithm: u8,
    weighs: bool,
) -> ContenderInfo {
    ContenderInfo { contender, name, shown, told: PolicyConfig::Kamailio(algorithm), weighs }
}

const KNOWN: [ContenderInfo; 15] = [
    ours(Hash, "hash", "hash", "policy = \"hash\"", true),
    ours(Openser, "openser", "OpenSER's hash", "policy = \"openser\"", false),
    ours(Fnv, "fnv", "FNV hash", "policy = \"fnv\"", false),
    ours(RoundRobin, "round-robin", "round robin", "policy = \"round-robin\"", false),
    ours(Weighted, "weighted", "weighted", "policy = \"weighted\"", true),
    ours(LeastCalls, "cjsq", "CJSQ", "policy = \"least-calls\"", true),
    ours(LeastTransactions, "tjsq", "TJSQ", "policy = \"least-transactions\"", true),
    ours(LeastWork175, "tlwl-1.75", "TLWL-1.75", "policy = \"least-work\"\ntransaction_cost = \"1.75\"", true),
    ours(LeastWork2, "tlwl-2", "TLWL-2", "policy = \"least-work\"\ntransaction_cost = \"2\"", true),
    ours(
        LeastWorkOfTwo,
        "tlwl-of-two",
        "TLWL-1.75 of two candidates",
        "policy = \"least-work\"\ntransaction_cost = \"1.75\"\ncandidates = \"two\"",
        true,
    ),
    ours(Adaptive, "tlwl-adaptive", "TLWL, adaptive", "policy = \"least-work\"\ntransaction_cost = \"adaptive\"", true),
    kamailio(KamailioHash, "kamailio-hash", "Kamailio, hash (0)", 0, false),
    kamailio(KamailioRoundRobin, "kamailio-round-robin", "Kamailio, round robin (4)", 4, false),
    kamailio(KamailioWeight, "kamailio-weight", "Kamailio, weight (9)", 9, true),
    kamailio(KamailioCallLoad, "kamailio-call-load", "Kamailio, call load (10)", 10, false),
];

impl Contender {
    /// Returns all contenders in the order of tables.
    pub fn all() -> impl Iterator<Item = Self> {
        KNOWN.iter().map(|known| known.contender)
    }

    fn known(self) -> &'static ContenderInfo {
        KNOWN.iter().find(|known| known.contender == self).unwrap_or(&KNOWN[0])
    }

    /// Parses a contender's name.
    ///
    /// # Errors
    /// If there is no contender of this name.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = KNOWN.iter().find(|known| known.name == text);
        found.map(|known| known.contender).ok_or_else(|| {
            let names: Vec<_> = KNOWN.iter().map(|known| known.name).collect();
            format!("no such contender; choose one of {}", names.join(", "))
        })
    }

    /// Returns the name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.known().name
    }

    /// Returns whether the policy is Strowger's.
    #[must_use]
    pub fn is_ours(self) -> bool {
        matches!(self.known().told, PolicyConfig::Ours(_))
    }

    /// Returns the dispatcher's algorithm, or `None` for Strowger.
    #[must_use]
    pub fn algorithm(self) -> Option<u8> {
        match self.known().told {
            PolicyConfig::Ours(_) => None,
            PolicyConfig::Kamailio(algorithm) => Some(algorithm),
        }
    }

    /// Returns whether a layout is worth measuring: a layout with known weights needs a policy that uses them, and
    /// with one target all policies behave the same, so only some are measured.
    #[must_use]
    pub fn is_of(self, layout: Layout) -> bool {
        match layout.speeds {
            TargetSpeeds::Told => self.known().weighs,
            _ if layout.targets == 1 => matches!(self, Hash | LeastWork175 | KamailioHash),
            // Equal to round robin if all weights are equal.
            _ => !matches!(self, Weighted | KamailioWeight),
        }
    }

    /// Returns Strowger's configuration for a layout.
    #[must_use]
    pub fn configuration(self, layout: Layout, more: &ExtraConfig) -> String {
        let PolicyConfig::Ours(policy) = self.known().told else { return String::new() };
        let mut targets = String::new();
        for index in 0..layout.targets {
            // Writing to a String cannot fail.
            let _ = match layout.weight(index) {
                1 => writeln!(targets, "  \"sip:{}\",", target(index)),
                weight => writeln!(targets, "  {{ uri = \"sip:{}\", weight = {weight} }},", target(index)),
            };
        }
        let ExtraConfig { balancer, proxy, t1_ms } = more;
        format!(
            "[server]\nlisten = [\"udp:{BALANCER}\"]\ndomains = [\"balancer.example.net\"]\ndata = \"data\"\nworkers = 1\n\n\
             [store]\nmode = \"memory\"\n\n[auth]\nrequire = []\n\n[log]\nlevel = \"warn\"\n\n[timers]\nt1 = \"{t1_ms}ms\"\n\n\
             [proxy]\n{proxy}\n[[balancer]]\nname = \"pool\"\n{policy}\n{balancer}targets = [\n{targets}]\n\n\
             [[route]]\nmatch = {{ domain = \"*\" }}\nbalance = \"pool\"\n"
        )
    }

    /// Returns Kamailio's list of targets.
    #[must_use]
    pub fn list(self, layout: Layout) -> String {
        let mut text = String::new();
        let units: u32 = (0..layout.targets).map(|index| u32::from(layout.weight(index))).sum();
        for index in 0..layout.targets {
            // In percent, as algorithm 9 expects.
            let weight = (100 * u32::from(layout.weight(index)) + units / 2) / units.max(1);
            let _ = writeln!(text, "1 sip:{} 0 0 duid=t{index};weight={weight}", target(index));
        }
        text
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.known().shown)
    }
}

/// Configuration besides the policy.
#[derive(Clone, Debug)]
pub struct ExtraConfig {
    /// Lines of `[[balancer]]`.
    pub balancer: &'static str,
    /// Lines of `[proxy]`.
    pub proxy: &'static str,
    /// T1 in milliseconds.
    pub t1_ms: u32,
}

impl Default for ExtraConfig {
    fn default() -> Self {
        Self { balancer: "", proxy: "", t1_ms: 500 }
    }
}

/// Speeds of the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TargetSpeeds {
    /// Equal speeds.
    Equal,
    /// Every second target has half the speed, unknown to the balancer.
    Unequal,
    /// The same, with weights configured in the balancer.
    Told,
}

/// Distribution of service times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Law {
    /// Exponential.
    Exponential,
    /// Constant per method.
    Constant,
}

/// Calls per second that a target can serve.
pub const CALLS: f64 = 300.0;
/// Ratio of the service time of an INVITE to that of a BYE.
pub const RATIO: f64 = 1.75;

/// Returns the mean service times of an INVITE and a BYE at a fast target, in seconds.
#[must_use]
pub fn service() -> (f64, f64) {
    let bye = 1.0 / CALLS / (1.0 + RATIO);
    (RATIO * bye, bye)
}

/// A layout of targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Layout {
    /// Number of targets.
    pub targets: u16,
    /// Their speeds.
    pub speeds: TargetSpeeds,
    /// Distribution of their service times.
    pub law: Law,
}

impl Layout {
    /// Returns equal targets with exponential service times.
    #[must_use]
    pub const fn equal(targets: u16) -> Self {
        Self { targets, speeds: TargetSpeeds::Equal, law: Law::Exponential }
    }

    /// Returns whether a target has half the speed.
    #[must_use]
    pub const fn is_slow(&self, index: u16) -> bool {
        !matches!(self.speeds, TargetSpeeds::Equal) && index % 2 == 1
    }

    /// Returns the configured weight of a target.
    #[must_use]
    pub const fn weight(&self, index: u16) -> u16 {
        if matches!(self.speeds, TargetSpeeds::Told) && !self.is_slow(index) { 2 } else { 1 }
    }

    /// Returns the calls per second that all targets together can serve.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        (0..self.targets).map(|index| if self.is_slow(index) { CALLS / 2.0 } else { CALLS }).sum()
    }

    /// Returns the `--service-time` of targets of this speed.
    #[must_use]
    pub fn service_time(&self, is_slow: bool) -> String {
        let times = if is_slow { 2.0 } else { 1.0 };
        let (invite, bye) = service();
        let us = |seconds: f64| format!("{:.1}us", 1e6 * seconds * times);
        match self.law {
            Law::Exponential => format!("INVITE=exp(mean={}),BYE=exp(mean={})", us(invite), us(bye)),
            Law::Constant => format!("INVITE={},BYE={}", us(invite), us(bye)),
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { targets, speeds, law } = self;
        let plural = if *targets == 1 { "" } else { "s" };
        write!(f, "{targets} target{plural}")?;
        match speeds {
            TargetSpeeds::Equal => {}
            TargetSpeeds::Unequal => write!(f, ", half of them half as fast")?,
            TargetSpeeds::Told => write!(f, ", half of them half as fast, weights told")?,
        }
        if *law == Law::Constant { write!(f, ", constant service times") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contender_has_a_unique_name_and_one_kind_of_config() {
        for contender in Contender::all() {
            assert_eq!(Contender::parse(contender.name()), Ok(contender));
            let text = contender.configuration(Layout::equal(2), &ExtraConfig::default());
            assert_eq!(contender.is_ours(), text.contains("[[balancer]]"), "{contender}");
            assert_eq!(contender.is_ours(), contender.algorithm().is_none());
        }
        assert_eq!(Contender::all().collect::<std::collections::BTreeSet<_>>().len(), KNOWN.len());
    }

    #[test]
    fn a_target_serves_the_set_call_rate() {
        let (invite, bye) = service();
        assert!((1.0 / (invite + bye) - CALLS).abs() < 1e-9 && (invite / bye - RATIO).abs() < 1e-9);
        assert_eq!(Layout::equal(8).capacity(), 2_400.0);
        let unequal = Layout { speeds: TargetSpeeds::Unequal, ..Layout::equal(8) };
        assert_eq!(unequal.capacity(), 1_800.0);
        let parsed = strowger_traffic::service::ServiceTimes::parse(&unequal.service_time(true)).expect("laws");
        assert_eq!(parsed.to_string(), "INVITE=exp(mean=4242.4us),BYE=exp(mean=2424.2us)");
    }

    #[test]
    fn weights_are_written_only_where_wanted() {
        let more = ExtraConfig::default();
        let unequal = Layout { speeds: TargetSpeeds::Unequal, ..Layout::equal(4) };
        let told = Layout { speeds: TargetSpeeds::Told, ..unequal };
        let contender = LeastWork175;
        assert!(!contender.configuration(unequal, &more).contains("weight ="));
        assert_eq!(contender.configuration(told, &more).matches("weight = 2").count(), 2);
        let list = KamailioWeight.list(told);
        assert!(list.starts_with("1 sip:127.0.1.1:5080 0 0 duid=t0;weight=33\n") && list.ends_with("weight=17\n"));
    }
}
