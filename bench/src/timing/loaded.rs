//! Programs under Poisson load, as in the thesis's tables 4.1 and 4.4, and what `strowger plan` predicts for the runs
//! that its fit has not seen.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strowger_timing::TimingReport;

use super::figures::without_histograms;
use super::packets::Sender;
use super::probe::{ATTACH, Place, ProbeRequest, RunningProbe, probe};
use super::program::{ECHO, Program, start_echo, start_server};
use crate::models::describe::{PlanFiles, predict};
use crate::models::load::{Load, Pace, Spacing, prepare};

/// Loads for the fit, as shares of the saturation rate.
pub const SEEN: [f64; 5] = [0.1, 0.3, 0.5, 0.7, 0.85];
/// Loads for the prediction.
pub const UNSEEN: [f64; 5] = [0.2, 0.4, 0.6, 0.8, 0.9];
/// Work of the echo program on each packet, µs: its service time is nearly constant.
pub const ECHO_WORK_US: u64 = 10;
/// Time of a run that is left for starting the probe and for the end of the last calls.
const MARGIN: Duration = Duration::from_millis(1_800);
/// Share of late packets beyond which the generator was too slow.
const LATE: f64 = 0.01;

/// A program at a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadedRun {
    /// The program.
    pub program: Program,
    /// Load as a share of the saturation rate.
    pub load: f64,
    /// Whether the fit uses the run.
    pub is_seen: bool,
    /// Offered calls per second, or packets for the echo program.
    pub rate: f64,
    /// Whether the generator was late.
    pub is_late: bool,
    /// The probe's report.
    pub report: TimingReport,
}

/// What `strowger plan validate` says about a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The program.
    pub program: Program,
    /// Its output.
    pub validation: Value,
}

/// A run to be made.
#[derive(Clone, Copy, Debug)]
pub struct LoadedRequest<'a> {
    /// The `strowger` binary.
    pub strowger: &'a Path,
    /// Folder of the log; none is written without.
    pub logs: Option<&'a Path>,
    /// The program.
    pub program: Program,
    /// Load as a share of the saturation rate.
    pub load: f64,
    /// Calls per second, or packets for the echo program.
    pub rate: f64,
    /// Whether the fit uses the run.
    pub is_seen: bool,
    /// Measured time.
    pub time: Duration,
    /// Random seed.
    pub seed: u64,
}

impl LoadedRequest<'_> {
    fn log(&self) -> Option<PathBuf> {
        self.logs.map(|logs| log_file(logs, self.program, self.is_seen, self.load))
    }
}

fn log_file(logs: &Path, program: Program, is_seen: bool, load: f64) -> PathBuf {
    let use_ = if is_seen { "seen" } else { "unseen" };
    logs.join(format!("{}-{use_}-{:02.0}.csv", program.file_name(), 100.0 * load))
}

/// Makes a run.
///
/// # Errors
/// If the program, the generator or the probe fails.
pub fn measure(request: LoadedRequest<'_>) -> Result<LoadedRun, String> {
    request.logs.map_or(Ok(()), fs::create_dir_all).map_err(|error| error.to_string())?;
    let (is_late, report) = match request.program {
        Program::Echo => echo(request)?,
        Program::Strowger | Program::Kamailio => server(request)?,
    };
    let LoadedRequest { program, load, is_seen, rate, .. } = request;
    Ok(LoadedRun { program, load, is_seen, rate, is_late, report: without_histograms(report) })
}

fn server(request: LoadedRequest<'_>) -> Result<(bool, TimingReport), String> {
    let kind = request.program.kind().ok_or("the echo program takes no calls")?;
    let server = start_server(kind, request.strowger)?;
    let warm_up = Duration::from_secs(1);
    let pace = Pace::Rate(request.rate.round());
    let load = Load { pace, course: Spacing::Spread, warm_up, time: request.time + MARGIN, seed: request.seed };
    let run = prepare(&load)?;
    let log = request.log();
    let (report, probed) = thread::scope(|scope| {
        let (pid, log, strowger, time) = (server.pid(), log.as_deref(), request.strowger, request.time);
        let probed = scope.spawn(move || {
            thread::sleep(warm_up);
            probe(ProbeRequest { strowger, pid, time, place: Place::WhenIdle, log })
        });
        (run.go().map_err(|error| error.to_string()), probed.join())
    });
    let report = report?;
    let is_late = report.phases.iter().any(|phase| phase.is_measured && phase.bottleneck().is_some());
    Ok((is_late, probed.map_err(|_| "the measuring thread panicked")??.report))
}

#[expect(clippy::cast_precision_loss, reason = "counts of packets")]
fn echo(request: LoadedRequest<'_>) -> Result<(bool, TimingReport), String> {
    let echo = start_echo(ECHO_WORK_US)?;
    let (pid, log) = (echo.pid(), request.log());
    let LoadedRequest { strowger, time, .. } = request;
    let probe = RunningProbe::start(ProbeRequest { strowger, pid, time, place: Place::WhenIdle, log: log.as_deref() })?;
    let sender = Sender::open(ECHO, ECHO);
    // The probe ends before the load.
    let sent = sender.and_then(|mut sender| sender.poisson(request.rate, time + ATTACH + MARGIN, request.seed));
    let sent = sent.map_err(|error| error.to_string())?;
    let report = probe.finish(Duration::ZERO)?.report;
    Ok((sent.late as f64 > LATE * sent.packets as f64, report))
}

/// Fits a profile to the logs of the seen runs of a program and validates it with those of the others.
///
/// # Errors
/// If `strowger plan` fails, or a log is missing.
pub fn validate(
    strowger: &Path,
    logs: &Path,
    program: Program,
    loads: (&[f64], &[f64]),
    plot: Option<&Path>,
) -> Result<Prediction, String> {
    let files =
        |is_seen: bool, loads: &[f64]| loads.iter().map(|load| log_file(logs, program, is_seen, *load)).collect();
    let (seen, unseen): (Vec<PathBuf>, Vec<PathBuf>) = (files(true, loads.0), files(false, loads.1));
    let files = PlanFiles { name: program.file_name(), seen: &seen, unseen: &unseen, plot };
    Ok(Prediction { program, validation: predict(strowger, files)? })
}
