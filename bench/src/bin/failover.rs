//! What callers notice when a server, its machine or its engine fails, for each failover method, beside the formulas
//! of the failover paper. Writes `bench/FAILOVER.md`.

use std::fmt::Write as _;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use strowger_bench::failover::results::{Results, Row};
use strowger_bench::failover::table;
use strowger_bench::namespace::enter;
use strowger_bench::programs;
use strowger_bench::register::report::replace;
use strowger_bench::runner::exit_code;
use strowger_bench::saved_results::{self, Conditions};
use strowger_bench::server::{circumstances, command_line};
use strowger_interop::failover::{Fault, Load, METHODS, Method, Outcome, RETRY, run};

/// Title of a new page.
const TITLE: &str = "# Failing over\n";

#[derive(Debug, Parser)]
#[command(about = "What callers notice when a component fails, for each failover method; a report, not a test")]
struct Arguments {
    /// Failover methods to measure; earlier results of the others are kept [default: all]
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Calls per second
    #[arg(long, default_value_t = 100.0)]
    calls: f64,
    /// Registrations of new users per second
    #[arg(long, default_value_t = 100.0)]
    registrations: f64,
    /// Seconds before the failure
    #[arg(long, default_value_t = 3)]
    before: u64,
    /// Seconds after the failure
    #[arg(long, default_value_t = 8)]
    after: u64,
    /// Starts from the results of an earlier run and measures only what is missing
    #[arg(long)]
    resume: bool,
    /// Measures nothing; writes the page of the saved results
    #[arg(long)]
    describe: bool,
    /// File in which results are saved for another run [default: failover.json beside this program]
    #[arg(long)]
    results: Option<PathBuf>,
    /// The file of the page [default: bench/FAILOVER.md]
    #[arg(long)]
    output: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if !arguments.describe {
        let _ = enter(false);
    }
    let outcome = Bench::new(arguments).and_then(|mut bench| {
        bench.run();
        bench.show()
    });
    exit_code("failover", outcome)
}

struct Bench {
    arguments: Arguments,
    file: PathBuf,
    conditions: Conditions,
    results: Results,
    begun: Instant,
}

impl Bench {
    fn new(arguments: Arguments) -> Result<Self, String> {
        let binary = programs::existing_strowger(None)?;
        let names = METHODS.map(Method::name);
        if let Some(unknown) = arguments.only.iter().find(|only| !names.contains(&only.as_str())) {
            return Err(format!("no such failover method: {unknown}; choose one of {}", names.join(", ")));
        }
        let file = arguments.results.clone().unwrap_or_else(|| programs::beside("failover.json"));
        let rates = format!("{} calls and {} registrations a second", arguments.calls, arguments.registrations);
        let conditions = Conditions::of(&binary)?.with("the load", rates);
        let goes_on = arguments.resume || arguments.describe || !arguments.only.is_empty();
        let mut results: Results = match saved_results::read(&file, &conditions) {
            Ok(results) if goes_on => results,
            Err(why) if arguments.resume || arguments.describe => return Err(why),
            _ => Results::default(),
        };
        if !arguments.resume && !arguments.describe {
            asked_for(&arguments.only).for_each(|method| results.forget(method));
        }
        Ok(Self { arguments, file, conditions, results, begun: Instant::now() })
    }

    fn run(&mut self) {
        if self.arguments.describe {
            return;
        }
        for method in asked_for(&self.arguments.only.clone()).filter(|method| method.is_available()) {
            for fault in method.faults() {
                if self.results.row(method, *fault).is_none() {
                    self.measure(method, *fault);
                }
            }
        }
    }

    /// Runs one measurement and saves its results. If a server cannot start, it reports the panic and returns, so that
    /// the other measurements still run.
    fn measure(&mut self, method: &'static dyn Method, fault: Fault) {
        let Arguments { calls, registrations, before, after, .. } = self.arguments;
        let load = Load {
            calls,
            registrations,
            before: Duration::from_secs(before),
            after: Duration::from_secs(after),
            ..Load::SHORT
        };
        eprintln!("[{:.1} min] {}: {fault}", self.begun.elapsed().as_secs_f64() / 60.0, method.name());
        let measured = catch_unwind(AssertUnwindSafe(|| run(method, fault, &load)));
        let Ok(outcome) = measured else {
            eprintln!("  FAILED; --resume repeats it");
            return;
        };
        say(&outcome);
        self.results.put(Row::new(method, fault, (calls, registrations), &outcome));
        if let Err(why) = saved_results::write(&self.file, &self.conditions, &self.results) {
            eprintln!("  NOT SAVED: {why}");
        }
    }

    fn show(&self) -> Result<(), String> {
        let text = self.describe();
        println!("{text}");
        let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("FAILOVER.md");
        let output = self.arguments.output.clone().unwrap_or_else(usual);
        if !output.exists() {
            fs::write(&output, TITLE).map_err(|error| format!("{}: {error}", output.display()))?;
        }
        replace(&output, "failover", &text).map_err(|error| format!("{}: {error}", output.display()))
    }

    fn describe(&self) -> String {
        let Arguments { calls, registrations, before, after, .. } = self.arguments;
        let command = command_line("strowger-bench --bin failover").replace(" --describe", "");
        let command = command.trim_end_matches(" --");
        let patience = Load::SHORT.patience.as_secs();
        let mut text = table::noticed(&self.results);
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n{}\n## How it is measured\n\n\
             Every server, database and engine has its own machine: a network namespace at a switch. Clients and phones share one more. All \
             share the cores of this machine, so the figures show time-outs, not speed. {calls} calls a second go to {} phones that answer \
             immediately, and {registrations} new users a second register, from {before} s before the failure until {after} s after it; the \
             failed part does not return. *Server*: its process is killed (SIGKILL), and its machine sends ICMP port unreachable, on which \
             clients and edge proxies try the next server at once. *Machine*: it is cut off without notice, so a time-out has to expire. A \
             client tries the next server after {} ms without any response, or on 503, and avoids the silent one for 30 s. It gives up after \
             {patience} s.\n\n*Outage*: from the start of the last good transaction before the first failed or late one to the start of the \
             first good one after the last such. *Failed*: the client gave up or was refused. A call that has received 100 Trying from a \
             machine that is then cut off cannot be retried elsewhere (RFC 3261 §17.1.1.2), so one or two calls may fail. *Away*: acknowledged \
             with 200, but not found at the surviving server within 5 s. *Lost*: not found after the failed part has returned either.\n\n{}\n",
            circumstances(command),
            20,
            RETRY.as_millis(),
            table::ways(),
        );
        text + "## Beside the formulas\n\n\
            The formulas of section 3.7 of Singh and Schulzrinne's failover paper, with its servers: available for 99 % of the time (R), \
            repaired within an hour (T_M), so one failure every 99 hours (T_F). T_R is the wait for a silent server before the next is tried. \
            T_D is how long clients keep trying the failed server: in the paper the TTL of a DNS record, here the time until a client, an \
            edge proxy or keepalived notices. The measurement is one failure, of which there is one in T_F + T_M. T_d is the time for a \
            registration to reach the other server. The last two columns are the expected number of registrations under way at the failure and \
            the probability of that for one phone's first registration. Engine failures have no row, because calls do not query engines.\n\n"
            + &table::beside_formulas(&self.results)
    }
}

fn asked_for(only: &[String]) -> impl Iterator<Item = &'static dyn Method> + use<'_> {
    METHODS.into_iter().filter(|method| only.is_empty() || only.iter().any(|name| name == method.name()))
}

fn say(outcome: &Outcome) {
    let Outcome { calls, registrations, acknowledged, away, lost, refused } = outcome;
    eprintln!(
        "  calls: {} failed, {} late of {}, outage {:.2?}; registrations: {} failed, {} late of {}, outage {:.2?}; {away} away, {lost} lost \
         of {acknowledged}; refused {refused:?}",
        calls.failed,
        calls.late,
        calls.offered,
        calls.outage,
        registrations.failed,
        registrations.late,
        registrations.offered,
        registrations.outage,
    );
}
