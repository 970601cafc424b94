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
        strowger load run --rate 30000 --time 10s                      both ends here, no server\n  \
        strowger load run -sf uac.xml -inf users.csv -r 50 -m 1000 127.0.0.1:5060      SIPp's files and options\n  \
        strowger load run --to tcp:127.0.0.1:5060 --connect dialog --workload registration --users 5000\n  \
        strowger load run --to udp:127.0.0.1:5060 --workload users --users 10000 --speed 60\n  \
        strowger load run --to udp:127.0.0.1:5060 --workload 'proxy-200:70,registration:30' --set proxy-200.hold='exp(mean=3s)'\n\n\
        Workloads are listed, with their parameters, by: strowger load workloads\n\n\
        Callees of this process register at the target before the run. The domain must be one of the server's, and it must \
        know the users where it asks for passwords: user0 to user1999 for --users 1000, of which the first half calls.\n\n\
        Every call is accounted for: offered = sent + refused by limits, sent = carried + lost + failed + unfinished. A run in \
        which the generator was the bottleneck says so and exits 1. Ctrl-C ends it with the report of what was measured.")]
    Run(Box<RunArguments>),
    /// Answers calls
    #[command(
        after_help = "Examples:\n  strowger load answer --listen udp:192.0.2.7:5070           the address by which callers reach it\n  \
        strowger load answer --listen 127.0.0.1:5070 --service-time 'exp(mean=1ms)' --servers 2 --queue 100\n  \
        strowger load answer --listen 127.0.1.1:5070 --listen 127.0.1.2:5070 --service-time INVITE=2ms,BYE=1ms      a cluster\n\n\
        It runs until Ctrl-C, --time or --calls ends it, and then reports."
    )]
    Answer(Box<AnswerArguments>),
    /// Finds the highest rate, or the largest number of users, that satisfies rules
    #[command(after_help = "Examples:\n  \
        strowger load search --to udp:127.0.0.1:5060 --rule success=99.99% --rule p99=50ms\n  \
        strowger load search --to udp:127.0.0.1:5060 --rule drops=1% --start 5000 --time 30s --precision 0.5% --json found.json\n  \
        strowger load search --to udp:127.0.0.1:5060 --rfc7502 --calls 50000            the RFC's algorithm alone\n  \
        strowger load search --to udp:127.0.0.1:5060 --workload users --vary users --start 1000 --speed 60\n\n\
        Rules: success=99.99% and drops=1% (of calls), success(2s)=95% (carried, each 2xx within 2 s), transactions=99.99% (of \
        requests), p50=5ms, p99=50ms, p99.9=1s, max=2s, mean=10ms (from the workload's main request to its 2xx), p99(BYE)=50ms \
        (of another). = is at least for success and transactions, at most for the others; <, <=, > and >= say it. A request \
        that nobody answers takes longer than any limit. All rules must hold.\n\n\
        It climbs from --start as RFC 7502 (4.10) does until it has seen what holds and what does not, halves what lies between \
        to --precision, and lets the result hold --confirm times. What fails counts when it fails again (--retries). \
        Each probe that fails takes as long as its last calls may (--drain). A probe in which the generator was the bottleneck \
        says nothing of the server: nothing above it is tried, and where only that bounds the result it says so and exits 1. \
        Ctrl-C ends it with what is known.")]
    Search(Box<SearchArguments>),
    /// Measures the five SIPstone tests and computes the score
    #[command(after_help = "Examples:\n  \
        strowger load sipstone --to udp:127.0.0.1:5060 --set outbound.at=127.0.0.1:5070 --at redirect=udp:127.0.0.1:5062\n  \
        strowger load sipstone --to udp:127.0.0.1:5060 --only proxy-480 --rate-of registration=9000 --rate-of outbound=5100 \\\n    \
        --rate-of redirect=8000 --rate-of proxy-200=5000 --weight proxy-200=2 --json score.json\n\n\
        The tests are registration, outbound, proxy-480, redirect and proxy-200; each is a search for the highest rate at which \
        95 % of its requests succeed within 2 s, for a minute. SIPstone-A is the weighted mean of the five rates. The weights \
        are equal unless --weight says others.\n\n\
        The server must know the users, must relay outbound's calls to another domain, and must redirect for redirect: a second \
        one with such a configuration at another address (--at), or run each test alone (--only) and give the others' rates \
        (--rate-of). In proxy-480 no callee may be registered from before.")]
    Sipstone(Box<SipstoneArguments>),
    /// Plots throughput and response times against load
    #[command(after_help = "Examples:\n  \
        strowger load sweep --to udp:127.0.0.1:5060 --rate 100..2400/100 --html sweep.html\n  \
        strowger load sweep --to udp:127.0.0.1:5060 --rate 100..2400/100 --time 60s --no-retransmissions \\\n    \
        --restart 'systemctl restart strowger' --json sweep.json            as Singh and Schulzrinne measured\n  \
        strowger load sweep --to udp:127.0.0.1:5060 --rate 500,1000,2000 --until 'p99>1s' --repeat 5 --csv sweep.csv\n\n\
        A call is a success when it is carried and each of its requests has its 2xx --within 2 s. --until takes the rules of load \
        search with < or >. Confidence intervals (95 %) are by Student's t over the repeats; of a single run, by batch means of \
        its seconds. The command of --restart is run by sh and must end; the run begins when the server answers OPTIONS. \
        Ctrl-C ends it with the report of what was measured.")]
    Sweep(Box<SweepArguments>),
    /// Lists the workloads and their parameters
    #[command(after_help = "Examples:\n  strowger load workloads\n  strowger load workloads users\n\n\
        A parameter is set by --set NAME=VALUE; in a mix, that of one workload by --set WORKLOAD.NAME=VALUE. Reports declare all \
        parameters that were set, and those whose defaults are ours and not the paper's.")]
    Workloads(WorkloadsArguments),
    /// Replays recorded traffic
    #[command(after_help = "Examples:\n  \
        strowger load replay monday.pcap --to udp:127.0.0.1:5060\n  \
        strowger load replay monday.pcap --to udp:127.0.0.1:5060 --speed 10 --domain example.com --user-pattern user%6\n  \
        strowger load replay monday.pcapng --to tcp:127.0.0.1:5060 --side both --users-file passwords.csv\n  \
        strowger load replay trace.json --side both                    both ends here, no server\n  \
        strowger load run --to udp:127.0.0.1:5060 --arrivals 'trace(monday.pcap,method=INVITE,speed=2)'      its instants alone\n\n\
        Each call of the capture begins at its recorded instant. Its requests follow what they followed in the record, after the \
        same time: a response, a request of the other end, or the request before. Via, Call-ID, tags, Contact and routes are the \
        run's own; bodies, users and all other fields are the record's; addresses of the recorded ends and server become those \
        of this run. Challenges are answered anew, retransmissions made anew.\n\n\
        The report has a table of the answers that differ from the record, and says what of the capture was skipped, and why.")]
    Replay(Box<ReplayArguments>),
    /// Compares two reports
    #[command(after_help = "Examples:\n  strowger load compare before.json after.json\n  \
        strowger load compare kamailio.json strowger.json --html beside.html\n\n\
        Ratios are of the second to the first. Times are exact to one percent: less than two percent between them is no difference. A \
        difference within the confidence intervals of both is said to be; the others have none, and one run alone does not show \
        how much they scatter.")]
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
