//! The results as JSON and as tables.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::Probe;
use super::wire::{Distance, Offsets, Variance};
use crate::register::rounds::median;

/// All results.
#[derive(Debug)]
pub struct Figures {
    /// Kolmogorov-Smirnov distance with one thread and with two.
    pub distances: Vec<(usize, Distance)>,
    /// Variance of counts with one thread and with two.
    pub variances: Vec<(usize, Variance)>,
    /// Deviations of arrivals from a file of gaps.
    pub offsets: Offsets,
    /// Alternating measurements: cost per call of the relay and of the generator in microseconds, and the generator's
    /// calls per second.
    pub rounds: Vec<Round>,
    /// Highest clean rate of the generator, with both ends in one thread on one core.
    pub ours: Option<Probe>,
    /// SIPp's version and highest clean rates, with a core for each end and with one core for both.
    pub sipp: Option<Sipp>,
}

/// The relay and the generator, one after the other on one core.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// The bare relay.
    pub relay: super::relay::RelayCost,
    /// The generator, in a closed loop.
    pub ours: super::strowger::Loop,
}

/// Results of SIPp.
#[derive(Debug)]
pub struct Sipp {
    /// Its version.
    pub version: String,
    /// Highest clean rate with a core for each end.
    pub apart: Option<Probe>,
    /// Highest clean rate with both ends on one core.
    pub together: Option<Probe>,
}

impl Figures {
    fn middle(&self, of: impl Fn(&Round) -> f64) -> f64 {
        median(self.rounds.iter().map(of).collect())
    }

    /// Returns the results as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let rate = |probe: &Option<Probe>| probe.as_ref().map(|probe| probe.asked.round());
        json!({
            "poisson_1000": self.distances.iter().map(|(threads, found)| json!({
                "threads": threads, "distance": found.distance, "limit": found.limit, "gaps": found.count,
            })).collect::<Vec<_>>(),
            "poisson_20000": self.variances.iter().map(|(threads, found)| json!({
                "threads": threads, "variance_by_mean": found.wire, "clock_alone": found.clock,
                "standard_error_of_one": found.error, "bins_of_one": found.bins,
            })).collect::<Vec<_>>(),
            "file_of_gaps": {
                "median_us": self.offsets.median, "p99_us": self.offsets.p99, "messages": self.offsets.count,
            },
            "calls_a_second": {
                "closed_loop": self.middle(|round| round.ours.rate),
                "open_loop_clean": rate(&self.ours),
                "bare_relay": self.middle(|round| round.relay.rate),
            },
            "cpu_us_a_call": {
                "ours": self.middle(|round| round.ours.cost),
                "bare_relay": self.middle(|round| round.relay.cost),
                "ratio": self.middle(|round| round.ours.cost / round.relay.cost),
            },
            "sipp": self.sipp.as_ref().map(|sipp| json!({
                "version": sipp.version, "clean_on_two_cores": rate(&sipp.apart), "clean_on_one_core": rate(&sipp.together),
            })),
        })
    }

    /// Returns the results as Markdown tables.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut text = String::from(
            "## Arrivals on the wire\n\nMeasured by the receiving kernel's time stamps of each call's first message. Only the calling end runs; nobody answers.\n\n\
             | what | threads | found | wanted |\n|---|---:|---:|---:|\n",
        );
        // Writing to a String cannot fail.
        for (threads, found) in &self.distances {
            let _ = writeln!(
                text,
                "| Poisson, 1,000/s, {} gaps: Kolmogorov–Smirnov distance | {threads} | {:.4} | below {:.4} (1 %) |",
                found.count, found.distance, found.limit
            );
        }
        let list = |ratios: &[f64]| ratios.iter().map(|ratio| format!("{ratio:.3}")).collect::<Vec<_>>().join(", ");
        for (threads, found) in &self.variances {
            let what = format!("Poisson, 20,000/s, {} bins of 10 ms: variance by mean", found.bins);
            let (wire, clock) = (median(found.wire.clone()), median(found.clock.clone()));
            let _ = writeln!(
                text,
                "| {what}, the middle one of {} (± {:.3} each) | {threads} | **{wire:.3}** | 0.95 to 1.05 |\n\
                 | threads that only watch the clock | {threads} | {clock:.3} | |\n\
                 | all runs, on the wire; by the clock | {threads} | {}; {} | |",
                found.wire.len(),
                found.error,
                list(&found.wire),
                list(&found.clock)
            );
        }
        let Offsets { median, p99, count } = self.offsets;
        let _ = writeln!(text, "| a file of {count} gaps: off by, at the median | 1 | {median:.1} µs | 20 µs |");
        let _ = writeln!(text, "| a file of {count} gaps: off by, at the 99th percentile | 1 | {p99:.1} µs | |");
        self.push_rates(&mut text);
        text
    }

    fn push_rates(&self, text: &mut String) {
        text.push_str(
            "\n## Calls\n\nINVITE, 180, 200, ACK, BYE, 200 over UDP, directly from caller to callee. A rate is *clean* if every call \
             is carried, nothing is retransmitted and the rate is reached within 1 %. Ours must also start calls in time (within \
             1 ms at the median, 50 ms at the 99th percentile).\n\n| what | cores | calls/s | CPU a call |\n|---|---:|---:|---:|\n",
        );
        let rate =
            |probe: &Option<Probe>| probe.as_ref().map_or("none".to_owned(), |probe| format!("{:.0}", probe.asked));
        let _ = writeln!(
            text,
            "| strowger load, both ends in one thread, closed loop | 1 | {:.0} | {:.1} µs |",
            self.middle(|round| round.ours.rate),
            self.middle(|round| round.ours.cost)
        );
        let _ = writeln!(
            text,
            "| strowger load, both ends in one thread, Poisson arrivals, highest clean rate | 1 | {} | |",
            rate(&self.ours)
        );
        let _ = writeln!(
            text,
            "| a bare relay of the same packets | 1 | {:.0} | {:.1} µs |",
            self.middle(|round| round.relay.rate),
            self.middle(|round| round.relay.cost)
        );
        match &self.sipp {
            Some(sipp) => {
                let _ = writeln!(text, "| SIPp, uac against uas, highest clean rate | 2 | {} | |", rate(&sipp.apart));
                let _ =
                    writeln!(text, "| SIPp, uac against uas, highest clean rate | 1 | {} | |", rate(&sipp.together));
            }
            None => text.push_str("| SIPp is not installed | | | |\n"),
        }
        let _ = writeln!(
            text,
            "\nCPU a call: {:.2} times the relay's, the median of {} alternating rounds (wanted: 1.5).",
            self.middle(|round| round.ours.cost / round.relay.cost),
            self.rounds.len()
        );
    }
}
