//! What the probe costs: packets per second at saturation with and without it.

use std::path::Path;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::packets::Sender;
use super::probe::{ATTACH, Place, ProbeRequest, RunningProbe};
use super::program::{ECHO, Program, start_echo, start_server};
use crate::models::load::{Load, Pace, Spacing, run};
use crate::proxy::figures::middle;

/// Packets under way to the echo program.
const AT_ONCE: usize = 32;
/// Longest time of a probe.
const AT_MOST: Duration = Duration::from_secs(60);
/// Cause of lost events in a report's drops or notes.
const LOST: &str = "lost";

/// A program at saturation. Each list has one value for each round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// The program.
    pub program: Program,
    /// Packets received per second without the probe.
    pub without: Vec<f64>,
    /// The same with it.
    pub with: Vec<f64>,
    /// Processors that the probe itself uses.
    pub own_cpu: Vec<f64>,
    /// Share of the packets that are in the probe's report.
    pub seen: Vec<f64>,
    /// What the probe said about lost events.
    pub notes: Vec<String>,
}

impl Overhead {
    /// Returns the medians without and with the probe.
    #[must_use]
    pub fn medians(&self) -> Option<(f64, f64)> {
        middle(self.without.clone()).zip(middle(self.with.clone()))
    }

    /// Returns the share of the packets per second that the probe costs, percent: the median over pairs of runs.
    #[must_use]
    pub fn percent(&self) -> Option<f64> {
        middle(self.without.iter().zip(&self.with).map(|(without, with)| 100.0 * (1.0 - with / without)).collect())
    }
}

/// Measures a program in rounds, alternately without and with the probe.
///
/// # Errors
/// If the program, the generator or the probe fails.
pub fn measure(strowger: &Path, program: Program, time: Duration, rounds: u64) -> Result<Overhead, String> {
    let mut found = Overhead {
        program,
        without: Vec::new(),
        with: Vec::new(),
        own_cpu: Vec::new(),
        seen: Vec::new(),
        notes: Vec::new(),
    };
    for round in 0..rounds {
        // The first of a pair changes, in case the second has an advantage.
        for has_probe in [round % 2 == 1, round % 2 == 0] {
            saturate(strowger, (program, has_probe), time, 1 + round, &mut found)?;
        }
    }
    Ok(found)
}

fn saturate(
    strowger: &Path,
    (program, has_probe): (Program, bool),
    time: Duration,
    seed: u64,
    found: &mut Overhead,
) -> Result<(), String> {
    let probe = |pid: u32| -> Result<Option<RunningProbe>, String> {
        let request = ProbeRequest { strowger, pid, time: AT_MOST, place: Place::WithGenerator, log: None };
        let probe = if has_probe { Some(RunningProbe::start(request)?) } else { None };
        thread::sleep(if has_probe { ATTACH } else { Duration::ZERO });
        Ok(probe)
    };
    let (rate, packets, running) = match program.kind() {
        None => {
            let echo = start_echo(0)?;
            let running = probe(echo.pid())?;
            let sender = Sender::open(ECHO, ECHO);
            let rate = sender.and_then(|mut sender| sender.closed_loop(AT_ONCE, time));
            let rate = rate.map_err(|error| error.to_string())?;
            (rate, rate * time.as_secs_f64(), running)
        }
        Some(kind) => {
            let server = start_server(kind, strowger)?;
            let running = probe(server.pid())?;
            let warm_up = Duration::from_secs(1);
            let load = Load { pace: Pace::Saturation, course: Spacing::AtOnce, warm_up, time, seed };
            let outcome = run(&server, &load)?;
            (outcome.packets_per_s, outcome.packets_per_s * (time + warm_up).as_secs_f64(), running)
        }
    };
    let Some(running) = running else {
        found.without.push(rate);
        return Ok(());
    };
    let probed = running.stop()?;
    found.with.push(rate);
    found.own_cpu.push(probed.own_cpu);
    found.seen.push(count(probed.report.all.packets) / packets);
    found.notes.extend(probed.report.notes.into_iter().filter(|note| note.contains(LOST)));
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a count of packets")]
const fn count(packets: u64) -> f64 {
    packets as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_the_median_of_pairs() {
        let found = Overhead {
            program: Program::Echo,
            without: vec![100.0, 200.0, 50.0],
            with: vec![90.0, 190.0, 30.0],
            own_cpu: Vec::new(),
            seen: Vec::new(),
            notes: Vec::new(),
        };
        assert!(found.percent().is_some_and(|percent| (percent - 10.0).abs() < 1e-9));
        assert_eq!(found.medians(), Some((100.0, 90.0)));
    }
}
