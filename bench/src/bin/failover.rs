//! What callers notice when a server, its machine or its engine fails, for each failover method, beside the formulas
//! of the failover paper. Writes `bench/FAILOVER.md`.

use std::fmt::Write as _;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Parser;
use strowger_bench::failover::results::{Results, Row};
use strowger_bench::failover::table;
use strowger_bench::namespace::enter;
use strowger_bench::programs;
use strowger_bench::register::report::replace;
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

fn main() {
    let arguments = Arguments::parse();
    if !arguments.describe {
        let _ = enter(false);
    }
    let outcome = Bench::new(arguments).and_then(|mut bench| {
        bench.run();
        bench.show()
    });
    if let Err(error) = outcome {
        eprintln!("failover: {error}");
        std::process::exit(1);
    }
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

    /// Runs one measurement and saves its results. A failed start panics, as in a test; the other measurements still
    /// run.
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
             Every server, database and engine has a machine of its own: a network namespace at a switch; clients and phones have one more. All \
             share the cores of this machine, so the figures are about time-outs, not about speed. {calls} calls a second go to {} phones that \
             answer at once, and {registrations} new users a second register, for {before} s before something dies and {after} s after it. It stays \
             dead. *Server*: its process is killed (SIGKILL); its machine says that nobody listens (ICMP), which clients, and an edge proxy, take \
             for a reason to ask the next server at once. *Machine*: it is cut off, and nobody is told; that is what silence costs. A client asks the next server after {} ms \
             without any answer, or on 503, and remembers for 30 s who was silent. It gives up after {patience} s.\n\n\
             *Outage*: from the beginning of the last good one before the first that failed or was late to that of the first good one after the last \
             of these. *Failed* counts what a client gave up or was refused; a call that had heard 100 Trying from a machine that is cut off waits for that \
             machine alone (RFC 3261 §17.1.1.2), so one or two of these may fail. *Away*: acknowledged with 200, and not at the server that is \
             left within 5 s, while what died is dead; *lost*: not there either once it is back.\n\n{}\n",
            circumstances(command),
            20,
            RETRY.as_millis(),
            table::ways(),
        );
        text + "## Beside the formulas\n\n\
            Section 3.7 of Singh and Schulzrinne's failover paper, with its servers that are 99 % available (R) and repaired within an hour (T_M), so that one \
            fails every 99 hours (T_F). T_R is how long one who asks waits for a server that is silent before another is asked, T_D for how long clients go on to ask \
            the one that died: the paper's TTL of a DNS record, here the time until a client, an edge or keepalived knows. What was measured is one \
            failure, of which there is one in T_F + T_M. T_d is how long a registration takes to the other server; the last two columns say how many \
            are expected to be on their way at the moment of the failure, and how probable that is for one phone's first registration. Rows without them are about \
            engines, which calls do not ask.\n\n"
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
