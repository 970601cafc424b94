//! REGISTERs per second, their response times and cost in every mode, beside Debian's Kamailio; and the time to load
//! a million bindings at start. Writes its tables into `bench/RESULTS.md`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use strowger_bench::programs::BinaryArgument;
use strowger_bench::register::contender::Contender;
use strowger_bench::register::process::{adopt, stay_on};
use strowger_bench::register::{report, rounds, scale as scaling, start};
use strowger_bench::server::{circumstances, command_line};

#[derive(Debug, Parser)]
#[command(about = "REGISTERs a second in every mode, and a start with many bindings; a report, not a test")]
struct Arguments {
    /// Measures the start with many bindings instead of the rate
    #[arg(long)]
    start: bool,
    /// Compares a table of --users bindings with one of --few: memory, and cost of a REGISTER
    #[arg(long, conflicts_with = "start")]
    scale: bool,
    /// Number of users of the small table of --scale
    #[arg(long, default_value_t = 10_000)]
    few: u32,
    /// Smoke test: a little of everything; writes nothing
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    binary: BinaryArgument,
    /// Contenders, in this order: memory, write-behind, write-through, kamailio-0 to kamailio-3, kamailio-1-wal …
    #[arg(long, value_delimiter = ',')]
    contenders: Vec<String>,
    /// Runs of each contender [default: 3]
    #[arg(long)]
    rounds: Option<usize>,
    /// Number of users [default: 100000; with --start 1000000; with --scale 10000000]
    #[arg(long)]
    users: Option<u32>,
    /// Number of sockets of the users
    #[arg(long, default_value_t = 64)]
    sockets: u32,
    /// REGISTERs in flight at saturation
    #[arg(long, default_value_t = 256)]
    window: usize,
    /// REGISTERs per second for the second table; 0 skips it
    #[arg(long, default_value_t = 5_000)]
    rate: u32,
    /// Measured seconds [default: 10]
    #[arg(long)]
    seconds: Option<u64>,
    /// timers.t1 of Strowger; its transactions live 64 times as long, so the warm-up of 4 s reaches the steady state
    #[arg(long, default_value = "50ms")]
    t1: String,
    /// Folder for files of the servers [default: the system's folder for temporary files]
    #[arg(long)]
    folder: Option<PathBuf>,
    /// File for the table, in addition to standard output [default: bench/RESULTS.md]
    #[arg(long)]
    output: Option<PathBuf>,
}

impl Arguments {
    fn contenders(&self) -> Vec<Contender> {
        let binary = self.binary.path();
        let usual: &[&str] = if self.scale {
            &["memory"]
        } else if self.start {
            &["memory", "write-behind", "write-through", "kamailio-0", "kamailio-1"]
        } else {
            &[
                "memory",
                "write-behind",
                "write-through",
                "kamailio-0",
                "kamailio-2-wal",
                "kamailio-1",
                "kamailio-1-wal",
                "kamailio-3",
            ]
        };
        let names: Vec<&str> = match self.contenders.as_slice() {
            [] => usual.to_vec(),
            some => some.iter().map(String::as_str).collect(),
        };
        let all: Result<_, _> = names.iter().map(|name| Contender::parse(name, &binary)).collect();
        all.unwrap_or_else(|error| {
            eprintln!("{error}");
            std::process::exit(2);
        })
    }

    fn folder(&self) -> PathBuf {
        self.folder.clone().unwrap_or_else(std::env::temp_dir)
    }

    fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 1 } else { 3 })
    }

    fn users(&self) -> u32 {
        let usual = match (self.quick, self.start, self.scale) {
            (true, ..) => 5_000,
            (false, true, _) => 1_000_000,
            (false, false, true) => 10_000_000,
            (false, false, false) => 100_000,
        };
        self.users.unwrap_or(usual).max(self.sockets)
    }
}

fn main() {
    let arguments = Arguments::parse();
    let around = circumstances(&command_line("strowger-bench --bin register"));
    adopt().expect("processes can be adopted");
    stay_on(1).unwrap_or_else(|error| eprintln!("no second core for the phones: {error}"));
    let (name, title, table) = if arguments.start {
        ("start", "Starting with many bindings", starts(&arguments))
    } else if arguments.scale {
        ("scale", "Many bindings beside few", scale(&arguments))
    } else {
        ("register", "REGISTER, side by side", compare(&arguments))
    };
    let head = format!("## {title}\n\n{around}{}", report::surroundings(&arguments.folder()));
    let text = format!("{head}{table}");
    println!("{text}");
    if !arguments.quick {
        let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("RESULTS.md");
        let file = arguments.output.unwrap_or(usual);
        report::replace(&file, name, &text).expect("the table can be written");
    }
}

fn compare(arguments: &Arguments) -> String {
    let seconds = |usual| Duration::from_secs(arguments.seconds.unwrap_or(usual));
    let plan = rounds::Plan {
        users: arguments.users(),
        sockets: arguments.sockets,
        window: arguments.window,
        rate: arguments.rate,
        fill: Duration::from_secs(if arguments.quick { 2 } else { 10 }),
        warm: Duration::from_secs(if arguments.quick { 1 } else { 4 }),
        seconds: seconds(if arguments.quick { 1 } else { 10 }),
        t1: arguments.t1.clone(),
        folder: arguments.folder(),
    };
    let mut all: Vec<_> = arguments.contenders().into_iter().map(|contender| (contender, Ok(Vec::new()))).collect();
    for round in 1..=arguments.rounds() {
        for (contender, runs) in &mut all {
            let Ok(done) = runs else { continue };
            match rounds::run(&plan, contender) {
                Ok(run) => {
                    let full = &run.full;
                    let cost = full.each(full.usage.processor.as_secs_f64() * 1e6);
                    let tally = &full.tally;
                    eprintln!(
                        "{round} {contender}: fdatasync {:.2} ms; {:.0}/s, p50 {:.2} p99 {:.2} ms, {cost:.1} µs, phones {:.2}, 503 {} other {} lost {} again {}",
                        run.sync,
                        tally.rate(),
                        tally.milliseconds(0.5),
                        tally.milliseconds(0.99),
                        full.phones,
                        tally.unavailable,
                        tally.others,
                        tally.lost,
                        tally.again
                    );
                    done.push(run);
                }
                Err(error) => {
                    eprintln!("{round} {contender}: {error}");
                    *runs = Err(error);
                }
            }
        }
    }
    let (users, window, count) = (plan.users, plan.window, arguments.rounds());
    let said = format!(
        "\n{users} users on {} sockets, one contact each (address 24 B, URI 40 B), no passwords. The server runs on the first core with one receiving \
         thread or process, the phones on the second. Refreshes have the same Call-ID and a rising CSeq: {} s of warm-up, {} s measured, {window} \
         outstanding at saturation. {count} rounds, with alternating contenders; medians, except that errors are summed. A REGISTER is retransmitted \
         after 0.5, 1.5 and 3.5 s and counts as lost after 4 s. Flushes are those of the whole disk; the last column is the time of one fdatasync \
         just before the run and shows whether other programs were writing. At saturation, times are those of the queue: {window} divided by the \
         rate. Where the phones' core is near 1, the phones are the limit. `timers.t1` is {}, so that transactions end as fast as they begin.\n",
        plan.sockets,
        plan.warm.as_secs(),
        plan.seconds.as_secs(),
        plan.t1
    );
    format!("{said}{}", report::comparison(&all, plan.rate))
}

fn scale(arguments: &Arguments) -> String {
    let seconds = |usual: u64, quick: u64| Duration::from_secs(if arguments.quick { quick } else { usual });
    let plan = scaling::Plan {
        users: [if arguments.quick { 1_000 } else { arguments.few }.max(arguments.sockets), arguments.users()],
        sockets: arguments.sockets,
        window: arguments.window,
        rounds: arguments.rounds(),
        warm: seconds(4, 1),
        seconds: arguments.seconds.map_or(seconds(10, 1), Duration::from_secs),
        t1: arguments.t1.clone(),
        folder: arguments.folder(),
    };
    let mut text = format!(
        "\nTwo servers on the first core, one of them idle at a time: {} and {} users on {} sockets each, \
         one contact each (address 24 B, URI 40 B), registered through the server, without passwords. Then \
         all are refreshed in scattered order: {} s of warm-up, {} s measured, {} rounds; medians. Memory is \
         the private memory of the process after the transactions of the first registrations have ended.\n",
        plan.users[0],
        plan.users[1],
        plan.sockets,
        plan.warm.as_secs(),
        plan.seconds.as_secs(),
        plan.rounds
    );
    for contender in arguments.contenders() {
        let table = scaling::run(&plan, &contender).unwrap_or_else(|error| format!("did not run: {error}\n"));
        text += &format!("\n{contender}:\n{table}");
    }
    text
}

fn starts(arguments: &Arguments) -> String {
    let plan = start::Plan {
        users: arguments.users(),
        sockets: arguments.sockets,
        window: arguments.window,
        t1: arguments.t1.clone(),
        folder: arguments.folder(),
    };
    let mut all: Vec<report::Starts> = Vec::new();
    for contender in arguments.contenders() {
        let ends: &[start::StopSignal] = match contender.is_ours() {
            true => &[start::StopSignal::Stop, start::StopSignal::Kill],
            false => &[start::StopSignal::Kill],
        };
        all.extend(ends.iter().map(|end| (contender.clone(), *end, Ok(Vec::new()))));
    }
    for round in 1..=arguments.rounds() {
        for (contender, end, runs) in &mut all {
            let Ok(done) = runs else { continue };
            match start::run(&plan, contender, *end) {
                Ok(started) => {
                    eprintln!("{round} {contender} {end:?}: {started:?}");
                    done.push(started);
                }
                Err(error) => {
                    eprintln!("{round} {contender} {end:?}: {error}");
                    *runs = Err(error);
                }
            }
        }
    }
    let said = format!(
        "\n{} bindings, registered through the server (Kamailio's are inserted by SQL). The server \
         then ends and is started again on the first core. Times count from the start of the program; \
         an OPTIONS and a REGISTER of some user are sent every 10 ms. *Ready* is the first 200 to \
         a REGISTER. *All there* is when `ctl status`, which may lag by a second, counts all stored \
         registrations. The sample is 2000 users whose contacts are queried. {} rounds, medians.\n",
        plan.users,
        arguments.rounds()
    );
    format!("{said}{}", report::starts(&all))
}
