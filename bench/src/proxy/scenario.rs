//! The scenarios, and the configuration of each server for them.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strowger_traffic::meter::ResponseClass;
use strowger_traffic::script::MethodId;

use super::DOMAIN;
use super::peer::Peer;

/// A scenario of the generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Scenario {
    /// Proxy-200 between registered users: INVITE, 180, 200, ACK, BYE, 200. The server is stateful and record-routes.
    Call,
    /// The same through a stateless server.
    Stateless,
    /// A REGISTER that refreshes a binding, without authentication.
    Register,
    /// A REGISTER that is challenged and repeated with credentials.
    Challenge,
}

/// T1 of RFC 3261 in milliseconds.
pub const T1_MS: u32 = 500;

impl Scenario {
    /// All scenarios.
    pub const ALL: [Self; 4] = [Self::Call, Self::Stateless, Self::Register, Self::Challenge];

    /// Parses a scenario's name.
    ///
    /// # Errors
    /// If there is no scenario of this name.
    pub fn parse(text: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::name);
        let found = Self::ALL.into_iter().find(|scenario| scenario.name() == text);
        found.ok_or_else(|| format!("no such scenario; choose one of {}", names.join(", ")))
    }

    /// Returns the name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Stateless => "stateless",
            Self::Register => "register",
            Self::Challenge => "challenge",
        }
    }

    /// Returns whether it consists of calls.
    #[must_use]
    pub const fn is_call(self) -> bool {
        matches!(self, Self::Call | Self::Stateless)
    }

    /// Returns the workload of `strowger load`.
    #[must_use]
    pub const fn workload(self) -> &'static str {
        if self.is_call() { "proxy-200" } else { "registration" }
    }

    /// Returns the request and the response whose time is reported.
    #[must_use]
    pub const fn timed(self) -> (MethodId, ResponseClass) {
        match self {
            // The callee's first response: 100 Trying is the server's own and does not count.
            Self::Call | Self::Stateless => (MethodId::Invite, ResponseClass::Provisional),
            Self::Register | Self::Challenge => (MethodId::Register, ResponseClass::Success),
        }
    }

    /// Returns the same in words.
    #[must_use]
    pub const fn timed_words(self) -> &'static str {
        if self.is_call() { "INVITE to 180" } else { "REGISTER to 200" }
    }

    /// Returns the packets that the server receives and sends per unit.
    #[must_use]
    pub const fn packets(self) -> (u32, u32) {
        match self {
            Self::Call => (6, 7),
            Self::Stateless => (6, 6),
            Self::Register => (1, 1),
            Self::Challenge => (2, 2),
        }
    }

    /// Returns the number of caller ports. A registrar treats a REGISTER of the same user from another port as
    /// another phone.
    #[must_use]
    pub const fn sockets(self) -> usize {
        if self.is_call() { 8 } else { 1 }
    }

    /// Returns the number of concurrent registrations at saturation per call. A registration has a sixth of the
    /// packets of a call; with as few registrations as calls, the server and the generator would wait for each other
    /// alternately with both cores half idle.
    #[must_use]
    pub const fn crowd(self) -> u32 {
        if self.is_call() { 1 } else { 4 }
    }

    /// Returns Strowger's configuration: the defaults, but with bindings in memory and one worker, as Kamailio has
    /// one receiver, plus the lines of `[server]` in `set`.
    #[must_use]
    pub fn configuration(self, address: SocketAddr, t1_ms: u32, set: &str) -> String {
        let require = if self == Self::Challenge { "[\"REGISTER\"]" } else { "[]" };
        let route = if self == Self::Stateless {
            format!(
                "\n[proxy]\nstateless = \"when-possible\"\n\n[[route]]\nmatch = {{ domain = \"{DOMAIN}\" }}\n\
                 stateless = \"when-possible\"\n"
            )
        } else {
            String::new()
        };
        let timers = if t1_ms == T1_MS { String::new() } else { format!("\n[timers]\nt1 = \"{t1_ms}ms\"\n") };
        format!(
            "[server]\nlisten = [\"udp:{address}\"]\ndomains = [\"{DOMAIN}\"]\ndata = \"data\"\nworkers = 1\n{set}\n\
             [store]\nmode = \"memory\"\n\n[auth]\nrequire = {require}\nrealm = \"{DOMAIN}\"\n\n[log]\nlevel = \"warn\"\n{timers}{route}"
        )
    }

    /// Returns the definitions for Kamailio's configuration file.
    #[must_use]
    pub const fn defines(self) -> &'static [&'static str] {
        match self {
            Self::Stateless => &["STATELESS"],
            Self::Challenge => &["CHALLENGE"],
            Self::Call | Self::Register => &[],
        }
    }

    /// Returns the time until transactions end at the rate at which they begin: over UDP they live for 64·T1. Below
    /// saturation, where a server sleeps, calls take twice that: the kernel moves the memory of a process that has
    /// grown to huge pages, 16 MiB every ten seconds and several milliseconds at a time, on the idle core. A
    /// stateless server needs no such time. For REGISTER, where only one of the servers keeps transactions, it is
    /// skipped except before saturation: loads come in ascending order there, so none pays for an earlier one.
    const fn fill(self, is_saturation: bool) -> Duration {
        Duration::from_secs(match (self, is_saturation) {
            (Self::Call, false) => 66,
            (Self::Call | Self::Register | Self::Challenge, true) => 33,
            (Self::Stateless, _) | (Self::Register | Self::Challenge, false) => 2,
        })
    }

    /// Returns the time before the steady state: from the server's start for calls, from the beginning of saturation
    /// for registrations, until transactions end at the rate at which they begin.
    #[must_use]
    pub const fn beginning(self) -> Duration {
        if self.is_call() { Duration::from_secs(10) } else { self.fill(true) }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Call => "stateful Proxy-200",
            Self::Stateless => "stateless Proxy-200",
            Self::Register => "REGISTER",
            Self::Challenge => "REGISTER with challenge",
        })
    }
}

/// Load offered to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Load {
    /// Rate per second, with Poisson arrivals.
    Rate(u32),
    /// Closed loop with this many calls or registrations: a new one begins when one ends.
    Saturation(u32),
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Saturation(count) => write!(f, "saturation ({count} at once)"),
            Self::Rate(rate) => write!(f, "{rate}/s"),
        }
    }
}

/// Loads and their durations.
#[derive(Clone, Debug)]
pub struct Loads {
    /// Concurrent calls at saturation.
    pub outstanding: u32,
    /// The other loads, per second; a server begins with the last.
    pub rates: Vec<u32>,
    /// Time until a server counts as in the steady state.
    pub warm_up: Duration,
    /// Measured time of each load.
    pub time: Duration,
    /// Whether this is a smoke test.
    pub is_quick: bool,
}

/// A step of a run: a load, the beginning of which is not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Offered load.
    pub load: Load,
    /// Whether it is the scenario's [beginning](Scenario::beginning).
    pub is_first: bool,
    /// Initial time that is not counted.
    pub settle: Duration,
    /// Counted time.
    pub time: Duration,
}

impl Step {
    /// Returns the total duration.
    #[must_use]
    pub const fn length(&self) -> Duration {
        self.settle.saturating_add(self.time)
    }
}

/// Initial time that is not counted if the load is the same as before.
const BREATH: Duration = Duration::from_secs(1);

/// Returns the steps of a server's run.
#[must_use]
pub fn steps(scenario: Scenario, peer: Peer, loads: &Loads) -> Vec<Step> {
    let step = |load, settle, time| Step { load, is_first: false, settle, time };
    let saturation = Load::Saturation(loads.outstanding * scenario.crowd());
    let mut rates = loads.rates.clone();
    let brief = loads.is_quick || peer == Peer::Relay;
    if brief {
        // The relay needs no warm-up.
        let (settle, time) = (Duration::from_secs(1), loads.time.min(Duration::from_secs(4)));
        let all = rates.into_iter().map(Load::Rate).chain([saturation]);
        return all.map(|load| step(load, settle, time)).collect();
    }
    // Skipped for variants of Strowger: it is measured with the default already.
    let beginning = peer.difference().is_none().then(|| scenario.beginning());
    let first = |load, time| Step { load, is_first: true, settle: Duration::ZERO, time };
    let mut steps = Vec::new();
    let mut since = Duration::ZERO;
    if peer == Peer::Apart {
        rates.clear();
    }
    if scenario.is_call() {
        // The highest rate comes first, before and in the steady state.
        rates.reverse();
        if let Some(time) = beginning {
            steps.push(first(Load::Rate(rates.first().copied().unwrap_or(loads.outstanding)), time));
            since = time;
        }
    }
    let begun = steps.len();
    // At saturation no worker sleeps, so one that never sleeps has no advantage.
    let full = (peer != Peer::Awake).then_some(saturation);
    for load in rates.into_iter().map(Load::Rate).chain(full) {
        let is_last = matches!(load, Load::Saturation(_));
        let is_next = steps.len() == begun && scenario.is_call() && !is_last;
        let cold = if is_next || is_last { loads.warm_up.saturating_sub(since) } else { Duration::ZERO };
        let fill = if is_next { Duration::ZERO } else { scenario.fill(is_last) };
        let mut settle = fill.max(cold);
        since += settle + loads.time;
        if let Some(time) = beginning.filter(|_| is_last && !scenario.is_call()) {
            steps.push(first(load, time));
            settle = settle.saturating_sub(time).max(BREATH);
        }
        steps.push(step(load, settle, loads.time));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads() -> Loads {
        let seconds = Duration::from_secs;
        Loads { outstanding: 64, rates: vec![1_000, 3_000], warm_up: seconds(40), time: seconds(8), is_quick: false }
    }

    #[test]
    fn a_server_is_warm_before_it_is_compared() {
        for scenario in Scenario::ALL {
            for peer in [Peer::Strowger, Peer::Kamailio] {
                let steps = steps(scenario, peer, &loads());
                let last = steps.last().expect("there are some");
                let at_once = if scenario.is_call() { 64 } else { 256 };
                assert_eq!(last.load, Load::Saturation(at_once), "{scenario}");
                let before: Duration = steps[..steps.len() - 1].iter().map(Step::length).sum();
                assert!(before + last.settle >= Duration::from_secs(40), "{scenario}: {steps:?}");
            }
        }
    }

    #[test]
    fn variants_are_warm_and_run_only_what_differs() {
        for scenario in Scenario::ALL {
            let paced = |step: &Step| matches!(step.load, Load::Rate(_));
            let awake = steps(scenario, Peer::Awake, &loads());
            assert_eq!((awake.len(), awake.iter().all(paced)), (2, true), "{scenario}: {awake:?}");
            let apart = steps(scenario, Peer::Apart, &loads());
            assert_eq!((apart.len(), apart.iter().any(paced)), (1, false), "{scenario}: {apart:?}");
            let first = if scenario.is_call() { awake[0] } else { apart[0] };
            assert!(first.settle >= Duration::from_secs(40) && !first.is_first, "{scenario}: {first:?}");
        }
    }

    #[test]
    fn the_first_seconds_are_compared_with_the_same_load_when_warm() {
        for scenario in [Scenario::Call, Scenario::Stateless] {
            let steps = steps(scenario, Peer::Strowger, &loads());
            assert!(steps[0].is_first && steps[0].settle.is_zero(), "{steps:?}");
            assert_eq!(steps[0].load, steps[1].load);
            assert!(steps[0].time + steps[1].settle >= Duration::from_secs(40), "{steps:?}");
            assert!(steps[1..].iter().all(|step| !step.is_first));
        }
        for scenario in [Scenario::Register, Scenario::Challenge] {
            let steps = steps(scenario, Peer::Strowger, &loads());
            let [rates @ .., first, warm] = steps.as_slice() else { panic!("{steps:?}") };
            assert!(first.is_first && first.settle.is_zero() && first.time >= Duration::from_secs(32), "{steps:?}");
            assert_eq!(first.load, warm.load);
            assert!(rates.iter().all(|step| !step.is_first && step.load != warm.load), "{steps:?}");
        }
    }

    #[test]
    fn a_load_that_keeps_transactions_lasts_until_they_end() {
        for step in steps(Scenario::Call, Peer::Kamailio, &loads()).iter().skip(1) {
            assert!(step.settle >= Duration::from_secs(30), "{step:?}");
        }
    }

    #[test]
    fn quick_is_quick() {
        let quick = Loads { is_quick: true, time: Duration::from_secs(1), ..loads() };
        for scenario in Scenario::ALL {
            let all: Duration = steps(scenario, Peer::Kamailio, &quick).iter().map(Step::length).sum();
            assert!(all <= Duration::from_secs(8), "{scenario}: {all:?}");
        }
    }
}
