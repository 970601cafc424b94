//! `strowger load sweep`: measures throughput and response times against load.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process_group};
use strowger_traffic::options::{Options, Target};
use strowger_traffic::output::sweep_page;
use strowger_traffic::search::{Rule, RuleError, comes_at};
use strowger_traffic::sweep::{Measurement, PointReport, Rates, Settings, Sweep, SweepReport, Task, await_answer};

use super::arguments::{TrafficArguments, time};
use super::monitor::MonitorArguments;
use super::series::Series;
use crate::failure::Failure;
use crate::files::{both, write_all};

/// Interval at which the restart command is checked for its end.
const BEAT: Duration = Duration::from_millis(10);

#[derive(Debug, Args)]
pub(crate) struct SweepArguments {
    #[command(flatten)]
    traffic: TrafficArguments,
    /// Calls per second: FROM..TO/STEP, such as 100..2400/100, or single rates, such as 100,200,400
    #[arg(short, long, value_name = "RATES", value_parser = rates)]
    rate: Rates,
    /// Condition that ends the sweep before the last rate, over all runs of a rate; may be repeated
    #[arg(long, value_name = "CONDITION", default_value = "success<50%", value_parser = condition)]
    until: Vec<Rule>,
    /// Number of runs per rate
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Command that restarts the server before each run
    #[arg(long, value_name = "CMD")]
    restart: Option<String>,
    /// Maximum time for the command and the server's first answer after it
    #[arg(long, default_value = "30s", value_parser = time, value_name = "TIME")]
    restart_wait: Duration,
    /// Maximum time to each 2xx of a call for the call to be a success
    #[arg(long, default_value = "2s", value_parser = time, value_name = "TIME")]
    within: Duration,
    /// Length of each run
    #[arg(long, default_value = "30s", value_parser = time)]
    time: Duration,
    /// Initial period of each run that is not measured
    #[arg(long, default_value = "0s", value_parser = time, value_name = "TIME")]
    warm_up: Duration,
    /// Pause between runs
    #[arg(long, default_value = "2s", value_parser = time, value_name = "TIME")]
    settle: Duration,
    /// Writes all runs as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes a table with one line per rate
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Writes a self-contained page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    onlook: MonitorArguments,
}

fn condition(text: &str) -> Result<Rule, RuleError> {
    Rule::parse_condition(text)
}

fn rates(text: &str) -> Result<Rates, RuleError> {
    Rates::parse(text)
}

impl SweepArguments {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let base = self.traffic.options()?;
        let target = &base.to;
        if self.restart.is_some() && target.is_none() {
            return Err(Failure::Usage("--restart needs the server's address; give --to".to_owned()));
        }
        let files = [self.json.as_deref(), self.csv.as_deref(), self.html.as_deref()];
        let mut series = Series::begin(&self.onlook, self.settle, &files)?;
        let settings =
            Settings { rates: self.rate.clone(), repeats: self.repeat, within: self.within, until: self.until.clone() };
        let mut report = SweepReport {
            workload: base.workload.name.clone(),
            to: String::new(),
            arrivals: base.arrivals.clone(),
            seed: base.seed,
            restart: self.restart.clone(),
            length: format!("{:?}", self.time),
            was_stopped: false,
            sweep: Sweep::new(settings),
        };
        let ended = self.sweep(&base, &mut series, &mut report);
        if report.sweep.next_task().is_some() {
            report.was_stopped = true;
            report.sweep.stop();
        }
        let written = self.write(&report);
        if ended.is_err() {
            return both(written, ended);
        }
        let said = series.line(&report.ending());
        let judged = match report.bottleneck() {
            None => Ok(()),
            Some((rate, why)) => Err(Failure::No(format!("the generator was the bottleneck at {rate}/s: {why}"))),
        };
        both(written, said.and(judged))
    }

    /// Runs until a condition, the last rate or a signal ends the sweep.
    fn sweep(&self, base: &Options, series: &mut Series<'_>, report: &mut SweepReport) -> Result<(), Failure> {
        while let Some(task) = report.sweep.next_task() {
            let Task { rate, repeat, number } = task;
            series.status(&format!("{rate:>10}/s  {repeat} of {}  …", self.repeat));
            if let (Some(command), Some(target)) = (&self.restart, &base.to) {
                self.restart(command, target, series)?;
            }
            let seed = base.seed.wrapping_add(u64::from(number));
            let mut options = Options { rate, seed, time: Some(self.time), warm_up: self.warm_up, ..base.clone() };
            options.calls = None;
            let Some((ran, about)) = series.run(&options, &|plan| comes_at(plan, rate))? else { return Ok(()) };
            if ran.was_stopped {
                return Ok(());
            }
            if number == 1 {
                (report.workload, report.to) = (about.workload, about.to);
                series.line(&format!("{} to {}, seed {}", report.workload, report.to, base.seed))?;
                series.line(&PointReport::head())?;
            }
            if let Some(point) = report.sweep.handle_measurement(Measurement::of(&ran, self.within)) {
                series.line(&PointReport(point).to_string())?;
            }
        }
        Ok(())
    }

    /// Runs the command that starts the server, and waits until the server answers.
    fn restart(&self, command: &str, target: &Target, series: &Series<'_>) -> Result<(), Failure> {
        if series.is_stopped() {
            return Ok(());
        }
        let wrong = |what: String| Failure::No(format!("the command of --restart {what}"));
        let mut child = Command::new("sh")
            .args(["-c", command])
            .stdin(Stdio::null())
            .stdout(Stdio::from(std::io::stderr()))
            // Ctrl-C ends the sweep, but not the server that it started.
            .process_group(0)
            .spawn()
            .map_err(|error| wrong(format!("cannot be run: {error}")))?;
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().map_err(|error| wrong(format!("is lost: {error}")))? {
                break status;
            }
            if begun.elapsed() > self.restart_wait {
                // The process may end at this moment; its children are killed with it.
                if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                let _ = child.wait();
                return Err(wrong(format!(
                    "has not exited within {:?}; it must start the server in the background (for example with &)",
                    self.restart_wait
                )));
            }
            std::thread::sleep(BEAT);
        };
        if series.is_stopped() {
            return Ok(());
        }
        if !status.success() {
            return Err(wrong(format!("failed: {status}")));
        }
        await_answer(target, self.restart_wait, &|| series.is_stopped())
            .or_else(|why| if series.is_stopped() { Ok(()) } else { Err(Failure::No(why)) })
    }

    fn write(&self, report: &SweepReport) -> Result<(), Failure> {
        let json = self.json.iter().map(|file| (file.clone(), format!("{:#}\n", report.to_json())));
        let csv = self.csv.iter().map(|file| (file.clone(), report.to_csv()));
        let html = self.html.iter().map(|file| (file.clone(), sweep_page(report)));
        write_all(&json.chain(csv).chain(html).collect::<Vec<_>>())
    }
}
