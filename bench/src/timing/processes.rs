//! Kamailio with several processes on one core, as in the thesis's tables 5.2 to 5.6: where a packet's time goes, and
//! what is dropped.

use std::path::Path;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strowger_timing::TimingReport;

use super::figures::without_histograms;
use super::probe::{Place, ProbeRequest, probe};
use super::program::start_server;
use crate::models::load::{Load, Pace, Spacing, prepare};
use crate::models::server::Kind;

/// Numbers of processes.
pub const COUNTS: [u32; 5] = [1, 2, 4, 8, 16];
/// Base name of the tables of runs.
pub const TABLES: &str = "processes";
/// Shares of the saturation rate at which drops are measured, for the fit and for the prediction.
pub const SEEN: [f64; 2] = [0.6, 0.85];
/// The same for the prediction: from no drops to drops that callers notice.
pub const UNSEEN: [f64; 5] = [0.92, 0.98, 1.04, 1.1, 1.16];
/// Calls per second at which all numbers of processes are probed: the least of them carries it.
pub const PROBED_CALLS_PER_S: f64 = 5_000.0;
/// Time of a run that is left for starting the probe.
const MARGIN: Duration = Duration::from_millis(1_800);

/// Kamailio with some processes at one rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessRun {
    /// c: number of processes.
    pub count: u32,
    /// Calls per second.
    pub calls_per_s: f64,
    /// The probe's report.
    pub report: TimingReport,
}

/// Probes Kamailio with `count` processes.
///
/// # Errors
/// If Kamailio, the generator or the probe fails.
pub fn measure(strowger: &Path, count: u32, calls_per_s: f64, time: Duration) -> Result<ProcessRun, String> {
    let server = start_server(Kind::ProbedKamailio(count), strowger)?;
    let warm_up = Duration::from_secs(1);
    let pace = Pace::Rate(calls_per_s);
    let run = prepare(&Load { pace, course: Spacing::Spread, warm_up, time: time + MARGIN, seed: u64::from(count) })?;
    let (outcome, probed) = thread::scope(|scope| {
        let pid = server.pid();
        let probed = scope.spawn(move || {
            thread::sleep(warm_up);
            probe(ProbeRequest { strowger, pid, time, place: Place::WhenIdle, log: None })
        });
        (run.go().map_err(|error| error.to_string()), probed.join())
    });
    outcome?;
    let report = probed.map_err(|_| "the measuring thread panicked")??.report;
    Ok(ProcessRun { count, calls_per_s, report: without_histograms(report) })
}
