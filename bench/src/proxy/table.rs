//! The tables, as Markdown.

use std::fmt::Write as _;

use super::figures::{Key, Results, middle, single};
use super::peer::Peer;
use super::scenario::Scenario;
use super::steps::Load;
use crate::callgrind::Parts;

/// A goal and its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// Description of the compared figure.
    pub what: String,
    /// Required value.
    pub wanted: Limit,
    /// Measured value.
    pub measured: Option<f64>,
    /// Note after the measured value.
    pub note: String,
}

/// A limit, with its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Upper limit of the measured value.
    AtMost(f64, &'static str),
    /// Lower limit of the measured value.
    AtLeast(f64, &'static str),
}

impl Limit {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit, _) => value <= limit,
            Self::AtLeast(limit, _) => value >= limit,
        }
    }

    fn show(self) -> String {
        match self {
            Self::AtMost(limit, unit) => format!("≤ {}", with_unit(limit, unit)),
            Self::AtLeast(limit, unit) => format!("≥ {}", with_unit(limit, unit)),
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::AtMost(_, unit) | Self::AtLeast(_, unit) => unit,
        }
    }
}

fn with_unit(value: f64, unit: &str) -> String {
    if unit.starts_with('×') { format!("{value:.2} {unit}") } else { format!("{value:.0} {unit}").trim().to_owned() }
}

/// Returns all goals that this program measures.
#[must_use]
pub fn targets(results: &Results) -> Vec<Goal> {
    let mut targets = Vec::new();
    for (scenario, by_kamailio, by_relay) in [
        (Scenario::Call, 0.55, Some(1.4)),
        (Scenario::Stateless, 0.6, Some(1.25)),
        (Scenario::Register, 0.55, None),
        (Scenario::Challenge, 0.55, None),
    ] {
        let full = results.saturation(scenario).unwrap_or(Load::Saturation(64));
        let others = [(Peer::Kamailio, "× Kamailio", Some(by_kamailio)), (Peer::Relay, "× the relay", by_relay)];
        for (other, unit, limit) in others {
            let Some(limit) = limit else { continue };
            let of = |own| results.ratio(scenario, (own, other), full, Key::Processor);
            let what = format!("{scenario}, CPU each at saturation");
            let note = noted(Peer::Apart, &of);
            targets.push(Goal { what, wanted: Limit::AtMost(limit, unit), measured: of(Peer::Strowger), note });
        }
    }
    for (scenario, limit) in [
        (Scenario::Call, 30_000.0),
        (Scenario::Stateless, 25_000.0),
        (Scenario::Register, 5_000.0),
        (Scenario::Challenge, 11_000.0),
    ] {
        let counted = results.parts(scenario, Peer::Strowger).map(Parts::all);
        targets.push(plain(format!("{scenario}, user instructions each"), Limit::AtMost(limit, ""), counted));
    }
    for (scenario, limit) in [(Scenario::Call, 1.8), (Scenario::Stateless, 1.6)] {
        let rate = |peer| results.highest_rate(scenario, peer);
        let measured = rate(Peer::Strowger).zip(rate(Peer::Kamailio)).map(|(ours, others)| ours / others);
        targets.push(plain(
            format!("{scenario}, highest rate with 99.99 % success"),
            Limit::AtLeast(limit, "× Kamailio"),
            measured,
        ));
    }
    for (key, name) in [(Key::P50, "p50"), (Key::P99, "p99")] {
        let of = |own| results.ratio(Scenario::Call, (own, Peer::Kamailio), Load::Rate(1_000), key);
        let (what, wanted) = (format!("INVITE to 180 at 1,000 calls/s, {name}"), Limit::AtMost(0.5, "× Kamailio"));
        targets.push(Goal { what, wanted, measured: of(Peer::Strowger), note: noted(Peer::Awake, &of) });
    }
    for scenario in Scenario::ALL {
        let measured = results.first_by_warm(scenario, Peer::Strowger);
        let what = format!("{scenario}, CPU each in {}", first(scenario));
        targets.push(plain(what, Limit::AtMost(1.1, "× warm"), measured));
    }
    let ringing = single(&results.ringing_bytes, Scenario::Call, Peer::Strowger);
    targets.push(plain("memory of a call in progress".to_owned(), Limit::AtMost(4_096.0, "B"), ringing));
    let turns = results.of(Scenario::Call, Peer::Strowger);
    let answered = middle(turns.filter_map(|turn| turn.answered_bytes).collect());
    targets.push(plain(
        "memory of an answered call, until its timers end".to_owned(),
        Limit::AtMost(1_024.0, "B"),
        answered,
    ));
    for target in &mut targets {
        let is_of = |scenario: Scenario| target.what.starts_with(&scenario.to_string());
        let is_bounded = |scenario| {
            let mut all = Peer::ALL.into_iter().flat_map(|peer| results.highest(scenario, peer));
            is_of(scenario) && all.any(|found| found.is_generators)
        };
        if target.what.contains("highest") && Scenario::ALL.into_iter().any(is_bounded) {
            target.note = " (the generator's limit)".to_owned();
        }
    }
    targets
}

/// Describes the time before the steady state.
fn first(scenario: Scenario) -> String {
    let of = if scenario.is_call() { "" } else { " of saturation" };
    format!("the first {} s{of}", scenario.beginning().as_secs())
}

/// Returns a goal without a note.
fn plain(what: String, wanted: Limit, measured: Option<f64>) -> Goal {
    Goal { what, wanted, measured, note: String::new() }
}

/// Returns the note after Strowger's ratio: the same ratio for the variant `peer`.
fn noted(peer: Peer, of: &impl Fn(Peer) -> Option<f64>) -> String {
    let said = of(peer).zip(peer.difference()).map(|(ratio, difference)| format!(" ({ratio:.2} {difference})"));
    said.unwrap_or_default()
}

/// Returns all goals in one table.
#[must_use]
pub fn summary(results: &Results) -> String {
    summary_of(&targets(results))
}

/// Returns a table of goals and whether they are met.
#[must_use]
pub fn summary_of(targets: &[Goal]) -> String {
    let mut text = String::from("### Targets\n\n| | wanted | measured | |\n|---|---:|---:|---|\n");
    for Goal { what, wanted, measured, note } in targets {
        let (value, verdict) = match measured {
            None => ("–".to_owned(), "not measured"),
            Some(value) => {
                let verdict = if wanted.holds(*value) { "met" } else { "**not met**" };
                (with_unit(*value, wanted.unit()) + note.as_str(), verdict)
            }
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {what} | {} | {value} | {verdict} |", wanted.show());
    }
    text
}

/// Returns the table of a scenario: a row per load and server with medians over the rounds, followed by Strowger's
/// ratios to the others.
#[must_use]
pub fn of(results: &Results, scenario: Scenario) -> String {
    let loads = results.loads(scenario);
    if loads.is_empty() {
        return String::new();
    }
    let (received, sent) = scenario.packets();
    let received = if received == 1 { "1 packet".to_owned() } else { format!("{received} packets") };
    let mut text = format!(
        "\n### {scenario}\n\n{received} in and {sent} out for each.\n\n| load | server | carried/s | not carried % | \
         CPU µs each (least to most) | in the kernel % | {0} p50 µs | p99 µs | switches each | memory MiB | drops | \
         server's core |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        scenario.timed_words()
    );
    for load in &loads {
        for peer in Peer::ALL {
            if results.of(scenario, peer).any(|turn| turn.loads.iter().any(|(known, _)| known == load)) {
                text.push_str(&row(results, scenario, peer, *load));
            }
        }
    }
    for load in &loads {
        for own in [Peer::Strowger, Peer::Apart, Peer::Awake] {
            for other in [Peer::Kamailio, Peer::Relay] {
                let ratios = ratios(results, scenario, (own, other), *load);
                if !ratios.is_empty() {
                    let with = own.difference().map(|difference| format!(", {difference}")).unwrap_or_default();
                    let name = if other == Peer::Relay { "the bare relay's" } else { "Kamailio's" };
                    let _ = writeln!(text, "\nAt {load}{with}: {} {name}.", ratios.join(", "));
                }
            }
        }
    }
    text.push_str(&beside(results, scenario));
    text
}

fn row(results: &Results, scenario: Scenario, peer: Peer, load: Load) -> String {
    let of = |key, digits: usize| match results.median(scenario, peer, load, key) {
        Some(value) => format!("{value:.digits$}"),
        None => "–".to_owned(),
    };
    let costs = results.all(scenario, peer, load, Key::Processor);
    let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
    let most = costs.iter().copied().fold(0.0, f64::max);
    let spread = if costs.len() > 1 { format!(" ({least:.1} to {most:.1})") } else { String::new() };
    let is_late = results.all(scenario, peer, load, Key::Late).iter().any(|late| *late > 0.0);
    let doubt = if is_late { " (generator late)" } else { "" };
    format!(
        "| {load} | {peer} | {}{doubt} | {} | {}{spread} | {} | {} | {} | {} | {} | {} | {} |\n",
        of(Key::Rate, 0),
        of(Key::Lost, 3),
        of(Key::Processor, 1),
        of(Key::Kernel, 0),
        of(Key::P50, 0),
        of(Key::P99, 0),
        of(Key::Switches, 2),
        of(Key::Memory, 0),
        of(Key::Drops, 0),
        of(Key::Cores, 2),
    )
}

/// Returns the comparisons of Strowger with another server under a load.
fn ratios(results: &Results, scenario: Scenario, peers: (Peer, Peer), load: Load) -> Vec<String> {
    let mut keys = vec![(Key::Processor, "CPU"), (Key::P50, "p50"), (Key::P99, "p99")];
    if matches!(load, Load::Saturation(_)) {
        keys.insert(1, (Key::Rate, "rate"));
    }
    let said = keys.into_iter().filter_map(|(key, name)| {
        let ratio = results.ratio(scenario, peers, load, key)?;
        Some(format!("{name} {ratio:.2} ×"))
    });
    said.collect()
}

/// Returns figures that do not belong to one load: highest rate, instructions, first seconds, memory per call.
fn beside(results: &Results, scenario: Scenario) -> String {
    let mut text = String::new();
    for peer in [Peer::Strowger, Peer::Kamailio] {
        let mut facts = Vec::new();
        if let Some(rate) = results.highest_rate(scenario, peer) {
            let bound = if results.highest(scenario, peer).any(|found| found.is_generators) { "at least " } else { "" };
            let rounds: Vec<String> =
                results.highest(scenario, peer).map(|found| format!("{:.0}", found.rate)).collect();
            let rounds = if rounds.len() > 1 { format!(" (rounds: {})", rounds.join(", ")) } else { String::new() };
            facts.push(format!("{bound}{rate:.0}/s with 99.99 % success in an open loop{rounds}"));
        }
        if let Some(parts) = results.parts(scenario, peer) {
            facts.push(format!("{:.1} k user instructions each", parts.all() / 1e3));
        }
        if let Some(ratio) = results.first_by_warm(scenario, peer) {
            facts.push(format!("{ratio:.2} times the CPU of a warm one in {}", first(scenario)));
        }
        if let Some(bytes) = single(&results.ringing_bytes, scenario, peer) {
            facts.push(format!("{:.1} kB a call that rings", bytes / 1024.0));
        }
        let turns = || results.of(scenario, peer);
        let answered = turns().filter_map(|turn| turn.answered_bytes).collect();
        if let Some(bytes) = middle(answered).filter(|_| scenario == Scenario::Call) {
            facts.push(format!("{:.1} kB a call that was answered, until its timers end", bytes / 1024.0));
        }
        let private = middle(turns().map(|turn| turn.memory.0).collect());
        let shared = middle(turns().map(|turn| turn.memory.1).collect());
        if let Some((private, shared)) = private.zip(shared).filter(|(_, shared)| *shared >= 1.0) {
            facts.push(format!(
                "at the end {private:.0} MiB of private memory and {shared:.0} MiB that its processes share"
            ));
        }
        if !facts.is_empty() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "\n{peer}: {}.", facts.join("; "));
        }
    }
    text
}

/// Returns the distribution of each server's instructions per scenario.
#[must_use]
pub fn profile(results: &Results) -> String {
    if results.parts.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\n### Where user instructions go\n\nCounted by callgrind, for each crate or module \
         with what was inlined into it.\n\n| | server | each | |\n|---|---|---:|---|\n",
    );
    // Writing to a String cannot fail.
    for (scenario, peer, parts) in &results.parts {
        let _ = writeln!(text, "| {scenario} | {peer} | {:.0} | {} |", parts.all(), parts.shares());
    }
    text.push_str("\nThe functions with the largest shares, without their callees:\n\n| | server | |\n|---|---|---|\n");
    for (scenario, peer, parts) in &results.parts {
        let _ = writeln!(text, "| {scenario} | {peer} | {} |", parts.most());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::figures::{Figures, Highest, ServerRun};
    use super::*;
    use crate::saved_results::{self, Conditions};

    fn turn(peer: Peer, processor: f64, p50: f64) -> ServerRun {
        let figures = |factor: f64| {
            let mut figures = Figures::default();
            figures.put(Key::Processor, factor * processor);
            figures.put(Key::P50, p50);
            figures
        };
        ServerRun {
            scenario: Scenario::Call,
            peer,
            round: 1,
            first: Some((Load::Rate(1_000), figures(2.2))),
            loads: vec![(Load::Rate(1_000), figures(2.0)), (Load::Saturation(64), figures(1.0))],
            course: Vec::new(),
            answered_bytes: Some(900.0),
            memory: (10.0, 0.0),
        }
    }

    fn results() -> Results {
        let own = [("proxy", 20_000.0), ("message", 10_600.0), ("libc.so.6", 400.0)];
        let own = own.map(|(part, count)| (part.to_owned(), count)).into();
        let functions = [("proxy `forward`".to_owned(), 3_100.0)].into();
        let instructions = Parts { own, functions, choice: 0.0 };
        let ours = [(Peer::Strowger, 30.0, 60.0), (Peer::Apart, 36.0, 70.0)];
        let turns = [&[(Peer::Relay, 20.0, 40.0)], &ours[..], &[(Peer::Kamailio, 60.0, 100.0)]].concat();
        let mut turns: Vec<_> = turns.into_iter().map(|(peer, processor, p50)| turn(peer, processor, p50)).collect();
        let awake = turn(Peer::Awake, 300.0, 20.0);
        turns.push(ServerRun { first: None, loads: awake.loads[..1].to_vec(), ..awake });
        Results {
            turns,
            highest: [(Peer::Strowger, 30_000.0), (Peer::Kamailio, 15_000.0)]
                .map(|(peer, rate)| Highest { scenario: Scenario::Call, peer, rate, is_generators: false })
                .to_vec(),
            parts: vec![(Scenario::Call, Peer::Strowger, instructions)],
            ringing_bytes: Vec::new(),
        }
    }

    #[test]
    fn goals_are_judged_by_ratios_of_medians() {
        let summary = summary(&results());
        for line in [
            "| stateful Proxy-200, CPU each at saturation | ≤ 0.55 × Kamailio | 0.50 × Kamailio (0.60 without segmentation) | met |",
            "| stateful Proxy-200, CPU each at saturation | ≤ 1.40 × the relay | 1.50 × the relay (1.80 without segmentation) | **not met** |",
            "| stateful Proxy-200, user instructions each | ≤ 30000 | 31000 | **not met** |",
            "| stateful Proxy-200, highest rate with 99.99 % success | ≥ 1.80 × Kamailio | 2.00 × Kamailio | met |",
            "| INVITE to 180 at 1,000 calls/s, p50 | ≤ 0.50 × Kamailio | 0.60 × Kamailio (0.20 always awake) | **not met** |",
            "| stateful Proxy-200, CPU each in the first 10 s | ≤ 1.10 × warm | 1.10 × warm | met |",
            "| memory of an answered call, until its timers end | ≤ 1024 B | 900 B | met |",
            "| REGISTER, CPU each at saturation | ≤ 0.55 × Kamailio | – | not measured |",
        ] {
            assert!(summary.contains(line), "{line}\n{summary}");
        }
    }

    #[test]
    fn the_cold_start_is_compared_with_the_warm_load() {
        let mut results = results();
        let first = |results: &Results| results.first_by_warm(Scenario::Call, Peer::Strowger);
        assert_eq!(first(&results), Some(1.1));
        for turn in &mut results.turns {
            turn.first = turn.first.take().map(|(_, figures)| (Load::Saturation(64), figures));
        }
        assert_eq!(first(&results), Some(2.2));
    }

    #[test]
    fn a_table_has_all_servers_of_its_scenario_only() {
        let text = of(&results(), Scenario::Call);
        for peer in Peer::ALL {
            let is_in = text.contains(&format!("| saturation (64 at once) | {peer} |"));
            assert_eq!(is_in, peer != Peer::Awake, "where it was not measured it has no row:\n{text}");
        }
        assert!(text.contains("At 1000/s, always awake: CPU 5.00 ×, p50 0.20 × Kamailio's."), "{text}");
        assert!(text.contains("At saturation (64 at once): CPU 0.50 ×, p50 0.60 × Kamailio's."), "{text}");
        assert!(
            text.contains("At saturation (64 at once), without segmentation: CPU 0.60 ×, p50 0.70 × Kamailio's."),
            "{text}"
        );
        assert_eq!(of(&results(), Scenario::Register), "");
    }

    #[test]
    fn a_round_slow_for_all_servers_does_not_count() {
        let mut results = results();
        for (peer, processor) in [(Peer::Relay, 40.0), (Peer::Strowger, 60.0), (Peer::Kamailio, 120.0)] {
            results.turns.push(ServerRun { round: 2, ..turn(peer, processor, 60.0) });
        }
        // A third round in which only one server has run.
        results.turns.push(ServerRun { round: 3, ..turn(Peer::Relay, 1.0, 1.0) });
        let of = |other| results.ratio(Scenario::Call, (Peer::Strowger, other), Load::Saturation(64), Key::Processor);
        assert_eq!((of(Peer::Relay), of(Peer::Kamailio)), (Some(1.5), Some(0.5)));
    }

    #[test]
    fn the_profile_names_the_largest_parts_first() {
        let text = profile(&results());
        let line = "| stateful Proxy-200 | Strowger | 31000 | proxy 64.5 %, message 34.2 %, the rest 1.3 % |";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("| stateful Proxy-200 | Strowger | proxy `forward` 10.0 %, the rest 90.0 % |"), "{text}");
    }

    #[test]
    fn the_median_round_counts() {
        let mut results = results();
        for rate in [20_000.0, 31_000.0] {
            results.highest.push(Highest {
                scenario: Scenario::Call,
                peer: Peer::Strowger,
                rate,
                is_generators: false,
            });
        }
        assert_eq!(results.highest_rate(Scenario::Call, Peer::Strowger), Some(30_000.0));
        let text = of(&results, Scenario::Call);
        assert!(text.contains("30000/s with 99.99 % success in an open loop (rounds: 30000, 20000, 31000)"), "{text}");
    }

    #[test]
    fn results_round_trip() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("results.json");
        saved_results::write(&file, &Conditions::default(), &results()).expect("it can be written");
        let again: Results = saved_results::read(&file, &Conditions::default()).expect("it can be read");
        assert_eq!(summary(&again), summary(&results()));
    }
}
