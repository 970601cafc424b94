//! `strowger load run` and `strowger load answer`: a single run and its report.

use std::time::Duration;

use clap::Args;
use strowger_traffic::engine::{Plan, PlanError};
use strowger_traffic::options::{AnswerOptions, Options, Target, WARNING};
use strowger_traffic::report::RunDescription;

use super::arguments::{EndArguments, TrafficArguments, at_least_one, target, time};
use super::execute::execute;
use super::monitor::MonitorArguments;
use super::output::{OutputArguments, write_report};
use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    traffic: TrafficArguments,
    /// Calls per second
    #[arg(short, long, default_value_t = 10.0, value_name = "N", value_parser = number)]
    rate: f64,
    /// Period of --rate in ms, like SIPp's -rp
    #[arg(long, value_name = "MS", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    rp: u32,
    /// Closed loop with this many concurrent calls, instead of a rate
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    outstanding: Option<usize>,
    /// Number of calls [default: 10000 without --time]
    #[arg(short = 'm', long)]
    calls: Option<u64>,
    /// Duration, such as 60s or 5m; for a model, in model time [default for users: 2h]
    #[arg(long, value_parser = time)]
    time: Option<Duration>,
    /// Initial period that is not measured; for a model, in model time [default: 0s; for users: 10m]
    #[arg(long, alias = "warmup", value_parser = time, value_name = "TIME")]
    warm_up: Option<Duration>,
    /// Time after --time in which calls still begin but are not measured, so that the last measured calls find the
    /// same load as the first
    #[arg(long, value_parser = time, value_name = "TIME", requires = "time")]
    cool_down: Option<Duration>,
    #[command(flatten)]
    output: OutputArguments,
    #[command(flatten)]
    onlook: MonitorArguments,
}

#[derive(Debug, Args)]
pub(crate) struct AnswerArguments {
    /// Listening address: udp:ADDRESS:PORT, or the same with tcp, tls, ws or wss; may be repeated over UDP, each a
    /// server of its own
    #[arg(long, value_name = "TARGET", value_parser = target, required = true)]
    listen: Vec<Target>,
    /// Workload whose callee to play
    #[arg(long, default_value = "proxy-200")]
    workload: String,
    /// Ends after this number of calls
    #[arg(short = 'm', long)]
    calls: Option<u64>,
    /// Ends after this time, such as 60s or 5m
    #[arg(long, value_parser = time)]
    time: Option<Duration>,
    #[command(flatten)]
    end: EndArguments,
    #[command(flatten)]
    output: OutputArguments,
    #[command(flatten)]
    onlook: MonitorArguments,
}

/// Parses a rate. An arrival process may have its own rate, so 0 is allowed here.
fn number(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| format!("'{text}' is not a number of calls per second"))
}

impl RunArguments {
    fn options(&self) -> Result<Options, PlanError> {
        let mut options = self.traffic.options()?;
        options.rate = self.rate * 1_000.0 / f64::from(self.rp);
        (options.outstanding, options.calls, options.time) = (self.outstanding, self.calls, self.time);
        options.warm_up = self.warm_up.unwrap_or(options.warm_up);
        options.cool_down = self.cool_down.unwrap_or_default();
        Ok(options)
    }

    pub(super) fn run(&self) -> Result<(), Failure> {
        let (plan, about) = self.options()?.plan()?;
        measure(plan, &about, &self.output, &self.onlook)
    }
}

impl AnswerArguments {
    fn options(&self) -> Result<AnswerOptions, PlanError> {
        Ok(AnswerOptions {
            listen: self.listen.clone(),
            workload: self.end.workload(&self.workload)?,
            scenario: self.end.scenario(),
            calls: self.calls,
            time: self.time,
            threads: self.end.threads,
            is_busy_polling: self.end.busy_poll,
            has_segmentation: self.end.segmentation,
            secure: self.end.secure(),
            retransmits: self.end.repeats(),
            service: self.end.service(),
            seed: self.end.seed(),
        })
    }

    pub(super) fn run(&self) -> Result<(), Failure> {
        let (plan, about) = self.options()?.plan()?;
        measure(plan, &about, &self.output, &self.onlook)
    }
}

/// Runs a plan and shows the result.
pub(super) fn measure(
    plan: Plan,
    about: &RunDescription,
    output: &OutputArguments,
    onlook: &MonitorArguments,
) -> Result<(), Failure> {
    for (_, text) in about.declared.iter().filter(|(name, _)| name == WARNING) {
        eprintln!("strowger: warning: {text}");
    }
    output.ready()?;
    let report = execute(plan, about, onlook)?;
    write_report(&report, about, output)
}
