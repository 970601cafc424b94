//! `strowger load`: traffic generator.

mod arguments;
mod compare;
mod execute;
mod monitor;
mod output;
mod replay;
mod run;
mod search;
mod series;
mod sipstone;
mod sweep;
mod workloads;

use std::ffi::OsString;

use clap::{Args, Subcommand};
use strowger_traffic::engine::PlanError;

pub(crate) use compare::CompareArguments;
pub(crate) use replay::ReplayArguments;
pub(crate) use run::{AnswerArguments, RunArguments};
pub(crate) use search::SearchArguments;
pub(crate) use sipstone::SipstoneArguments;
pub(crate) use sweep::SweepArguments;
pub(crate) use workloads::WorkloadsArguments;

use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct LoadArguments {
    #[command(subcommand)]
    pub(crate) command: LoadCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LoadCommand {
    /// Generates calls
    #[command(after_help = "Examples:\n  \
        strowger load run --to udp:127.0.0.1:5060 --workload proxy-200 --rate 1000 --calls 10000 --seed 1 --json out.json --html out.html\n  \
        strowger load run --to udp:192.0.2.7:5070 --callee remote --rate 200 --time 60s --warm-up 5s\n  \
        strowger load run --rate 30000 --time 10s                      both ends in this process, no server\n  \
        strowger load run -sf uac.xml -inf users.csv -r 50 -m 1000 127.0.0.1:5060      SIPp's files and options\n  \
        strowger load run --to tcp:127.0.0.1:5060 --connect dialog --workload registration --users 5000\n  \
        strowger load run --to udp:127.0.0.1:5060 --workload users --users 10000 --speed 60\n  \
        strowger load run --to udp:127.0.0.1:5060 --workload 'proxy-200:70,registration:30' --set proxy-200.hold='exp(mean=3s)'\n\n\
        Workloads are listed, with their parameters, by: strowger load workloads\n\n\
        Callees of this process register at the target before the run. The server must serve the domain and must \
        know the users if it requires passwords: user0 to user1999 for --users 1000, of which the first half calls.\n\n\
        Every call is accounted for: offered = sent + refused by limits, sent = carried + lost + failed + unfinished. If the \
        generator was the bottleneck, the report says so and the exit code is 1. Ctrl-C ends the run and prints the report.")]
    Run(Box<RunArguments>),
    /// Answers calls
    #[command(
        after_help = "Examples:\n  strowger load answer --listen udp:192.0.2.7:5070           the address at which callers reach it\n  \
        strowger load answer --listen 127.0.0.1:5070 --service-time 'exp(mean=1ms)' --servers 2 --queue 100\n  \
        strowger load answer --listen 127.0.1.1:5070 --listen 127.0.1.2:5070 --service-time INVITE=2ms,BYE=1ms      a cluster\n\n\
        It runs until Ctrl-C, --time or --calls ends it, and then prints a report."
    )]
    Answer(Box<AnswerArguments>),
    /// Finds the highest rate, or the largest number of users, that satisfies rules
    #[command(after_help = "Examples:\n  \
        strowger load search --to udp:127.0.0.1:5060 --rule success=99.99% --rule p99=50ms\n  \
        strowger load search --to udp:127.0.0.1:5060 --rule drops=1% --start 5000 --time 30s --precision 0.5% --json found.json\n  \
        strowger load search --to udp:127.0.0.1:5060 --rfc7502 --calls 50000            only the algorithm of the RFC\n  \
        strowger load search --to udp:127.0.0.1:5060 --workload users --vary users --start 1000 --speed 60\n\n\
        Rules: success=99.99% and drops=1% (of calls), success(2s)=95% (carried, each 2xx within 2 s), transactions=99.99% (of \
        requests), p50=5ms, p99=50ms, p99.9=1s, max=2s, mean=10ms (from the workload's main request to its 2xx), p99(BYE)=50ms \
        (of another method). = means at least for success and transactions, and at most for the others; <, <=, > and >= are explicit. \
        An unanswered request exceeds any limit. All rules must hold.\n\n\
        The search climbs from --start as in RFC 7502 (4.10) until it has a passing and a failing value, bisects between them \
        to --precision, and confirms the result --confirm times. A failure counts if it repeats (--retries). \
        A failing probe lasts until its last calls end, at most --drain. A probe in which the generator was the bottleneck \
        says nothing about the server: no higher value is tried, and if only this bounds the result, the report says so and the exit code is 1. \
        Ctrl-C ends the search and prints the result so far.")]
    Search(Box<SearchArguments>),
    /// Measures the five SIPstone tests and computes the score
    #[command(after_help = "Examples:\n  \
        strowger load sipstone --to udp:127.0.0.1:5060 --set outbound.at=127.0.0.1:5070 --at redirect=udp:127.0.0.1:5062\n  \
        strowger load sipstone --to udp:127.0.0.1:5060 --only proxy-480 --rate-of registration=9000 --rate-of outbound=5100 \\\n    \
        --rate-of redirect=8000 --rate-of proxy-200=5000 --weight proxy-200=2 --json score.json\n\n\
        The tests are registration, outbound, proxy-480, redirect and proxy-200; each is a search for the highest rate at which \
        95 % of its requests succeed within 2 s, for one minute. SIPstone-A is the weighted mean of the five rates. The weights \
        are equal by default (--weight).\n\n\
        The server must know the users, relay the calls of outbound to another domain, and redirect those of redirect. For these, use a second \
        server with such a configuration at another address (--at), or run each test alone (--only) and give the other rates \
        (--rate-of). In proxy-480, no callee may be registered beforehand.")]
    Sipstone(Box<SipstoneArguments>),
    /// Plots throughput and response times against load
    #[command(after_help = "Examples:\n  \
        strowger load sweep --to udp:127.0.0.1:5060 --rate 100..2400/100 --html sweep.html\n  \
        strowger load sweep --to udp:127.0.0.1:5060 --rate 100..2400/100 --time 60s --no-retransmissions \\\n    \
        --restart 'systemctl restart strowger' --json sweep.json            as Singh and Schulzrinne measured\n  \
        strowger load sweep --to udp:127.0.0.1:5060 --rate 500,1000,2000 --until 'p99>1s' --repeat 5 --csv sweep.csv\n\n\
        A call succeeds if it is carried and each of its requests gets its 2xx within --within (2 s). --until takes the rules of load \
        search with < or >. Confidence intervals (95 %) use Student's t over the repeats or, for a single run, batch means of \
        its seconds. sh runs the command of --restart, which must exit; the run begins when the server answers OPTIONS. \
        Ctrl-C ends the sweep and prints the report.")]
    Sweep(Box<SweepArguments>),
    /// Lists the workloads and their parameters
    #[command(after_help = "Examples:\n  strowger load workloads\n  strowger load workloads users\n\n\
        --set NAME=VALUE sets a parameter; in a mix, --set WORKLOAD.NAME=VALUE sets it for one workload. Reports list all \
        parameters that were set, and those whose defaults are not from the paper.")]
    Workloads(WorkloadsArguments),
    /// Replays recorded traffic
    #[command(after_help = "Examples:\n  \
        strowger load replay monday.pcap --to udp:127.0.0.1:5060\n  \
        strowger load replay monday.pcap --to udp:127.0.0.1:5060 --speed 10 --domain example.com --user-pattern user%6\n  \
        strowger load replay monday.pcapng --to tcp:127.0.0.1:5060 --side both --users-file passwords.csv\n  \
        strowger load replay trace.json --side both                    both ends in this process, no server\n  \
        strowger load run --to udp:127.0.0.1:5060 --arrivals 'trace(monday.pcap,method=INVITE,speed=2)'      only its arrival times\n\n\
        Each call of the capture begins at its recorded time. Each request follows the same event as in the recording, after the \
        same delay: a response, a request of the other end, or the previous request. Via, Call-ID, tags, Contact and routes are \
        generated; bodies, users and all other fields are as recorded; addresses of the recorded ends and server become those \
        of this run. Answers to challenges and retransmissions are generated too.\n\n\
        The report lists the responses that differ from the recording, and which parts of the capture were skipped and why.")]
    Replay(Box<ReplayArguments>),
    /// Compares two reports
    #[command(after_help = "Examples:\n  strowger load compare before.json after.json\n  \
        strowger load compare kamailio.json strowger.json --html beside.html\n\n\
        Ratios are second to first. Times are accurate to 1 %, so a difference of less than 2 % is not significant. A \
        difference within both confidence intervals is marked; without intervals, a single run does not show \
        the variance.")]
    Compare(CompareArguments),
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        Self::Usage(error.to_string())
    }
}

/// Adds the second dash to SIPp's multi-letter options.
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
        LoadCommand::Search(search) => search.run(),
        LoadCommand::Sipstone(sipstone) => sipstone.run(),
        LoadCommand::Sweep(sweep) => sweep.run(),
        LoadCommand::Replay(replay) => replay.run(),
        LoadCommand::Workloads(workloads) => workloads.run(),
        LoadCommand::Compare(compare) => compare.run(),
    }
}
