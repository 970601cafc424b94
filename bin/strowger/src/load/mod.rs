//! `strowger load`: traffic.

mod arguments;
mod carry;
mod output;
mod run;

use std::ffi::OsString;

use clap::{Args, Subcommand};
use strowger_traffic::engine::PlanError;

pub(crate) use run::{AnswerArguments, RunArguments};

use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct LoadArguments {
    #[command(subcommand)]
    pub(crate) command: LoadCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LoadCommand {
    /// Makes calls
    #[command(after_help = "Examples:\n  \
        strowger load run --to udp:127.0.0.1:5060 --workload proxy-200 --rate 1000 --calls 10000 --seed 1 --json out.json\n  \
        strowger load run --to udp:192.0.2.7:5070 --callee there --rate 200 --time 60s --warm-up 5s\n  \
        strowger load run --rate 30000 --time 10s                      both ends here, no server\n  \
        strowger load run -sf uac.xml -inf users.csv -r 50 -m 1000 127.0.0.1:5060      SIPp's files and options\n  \
        strowger load run --to tcp:127.0.0.1:5060 --connect dialog --workload registration --users 5000\n\n\
        Workloads: proxy-200 (INVITE, 180, 200, ACK, BYE, 200), baseline (the same with 250 ms of ringing and of talk), \
        registration.\n\n\
        Callees of this process register at the target before the run. The domain must be one of the server's, and it must \
        know the users where it asks for passwords: user0 to user1999 for --users 1000, of which the first half calls.\n\n\
        Every call is accounted for: offered = sent + refused by limits, sent = carried + lost + failed + unfinished. A run in \
        which the generator was the bottleneck says so and exits 1. Ctrl-C ends it with the report of what was measured.")]
    Run(Box<RunArguments>),
    /// Answers calls
    #[command(after_help = "Examples:\n  strowger load answer --listen udp:0.0.0.0:5070\n  \
        strowger load answer --listen 127.0.0.1:5070 --service-time 'exp(mean=1ms)' --servers 2 --queue 100\n\n\
        It runs until Ctrl-C, --time or --calls ends it, and then reports.")]
    Answer(Box<AnswerArguments>),
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        Self::Usage(error.to_string())
    }
}

/// SIPp's options of several letters have one dash; here they get the second.
pub(crate) fn with_sipp_options(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<_> = arguments.collect();
    if arguments.get(1).is_some_and(|command| command == "load") {
        for argument in &mut arguments {
            if let Some(name) = ["-sf", "-inf", "-rp", "-ap"].into_iter().find(|name| argument == *name) {
                *argument = format!("-{name}").into();
            }
        }
    }
    arguments
}

pub(crate) fn run(arguments: &LoadArguments) -> Result<(), Failure> {
    match &arguments.command {
        LoadCommand::Run(run) => run.run(),
        LoadCommand::Answer(answer) => answer.run(),
    }
}
