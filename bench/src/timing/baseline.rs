//! The parts without load, as in the thesis's table 4.3: no packet waits for another.

use std::path::Path;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strowger_timing::TimingReport;

use super::figures::without_histograms;
use super::packets::Sender;
use super::probe::{ATTACH, Place, ProbeRequest, RunningProbe, probe};
use super::program::{ECHO, Program, start_echo, start_server};
use crate::models::load::{Load, Pace, Spacing, prepare};

/// Calls per second: so few that packets of different calls do not meet.
pub const CALLS_PER_S: f64 = 25.0;
/// Packets of a call that a server receives.
const PACKETS: f64 = 6.0;

/// A program without load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// The program.
    pub program: Program,
    /// The probe's report.
    pub report: TimingReport,
}

/// Measures a program for `time`.
///
/// # Errors
/// If the program, the generator or the probe fails.
pub fn measure(strowger: &Path, program: Program, time: Duration) -> Result<Baseline, String> {
    let report = match program.kind() {
        Some(kind) => {
            let server = start_server(kind, strowger)?;
            let warm_up = Duration::from_secs(1);
            let load = Load {
                pace: Pace::Rate(CALLS_PER_S),
                course: Spacing::Spread,
                warm_up,
                time: time + 2 * ATTACH,
                seed: 1,
            };
            let run = prepare(&load)?;
            thread::scope(|scope| {
                let pid = server.pid();
                let probed = scope.spawn(move || {
                    thread::sleep(warm_up);
                    probe(ProbeRequest { strowger, pid, time, place: Place::WhenIdle, log: None })
                });
                let outcome = run.go().map_err(|error| error.to_string());
                let probed = probed.join().map_err(|_| "the measuring thread panicked")?;
                outcome.and(probed)
            })?
        }
        None => {
            let echo = start_echo(0)?;
            let request = ProbeRequest { strowger, pid: echo.pid(), time: 2 * time, place: Place::WhenIdle, log: None };
            let probe = RunningProbe::start(request)?;
            thread::sleep(ATTACH);
            let sender = Sender::open(ECHO, ECHO);
            let sent = sender.and_then(|mut sender| sender.poisson(PACKETS * CALLS_PER_S, time, 1));
            sent.map_err(|error| error.to_string())?;
            probe.stop()?
        }
    };
    Ok(Baseline { program, report: without_histograms(report.report) })
}
