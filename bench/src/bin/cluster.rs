//! Servers that share registrations through Redis, PostgreSQL or MariaDB, beside a single server and Kamailio:
//! REGISTERs per second and their cost, time until the other server knows a binding, start of a new member, and a
//! frozen engine. Writes `bench/CLUSTER.md`, tables into `bench/cluster` and plots into `bench/plots`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use strowger_bench::cluster::contender::Contender;
use strowger_bench::cluster::deployment::{Environment, T1, WAITING_CHILDREN, configuration, has_kamailio_tables};
use strowger_bench::cluster::engine::{self, Kind};
use strowger_bench::cluster::results::Results;
use strowger_bench::cluster::{OTHER_CORE, frozen, joining, plot, propagation, rates, table};
use strowger_bench::namespace::enter;
use strowger_bench::programs::{self, BinaryArgument};
use strowger_bench::register::process::{adopt, stay_on};
use strowger_bench::register::report::{replace, surroundings};
use strowger_bench::runner::{Run, RunArguments, Runner, exit_code};
use strowger_bench::saved_results::Conditions;
use strowger_bench::server::{circumstances, command_line};

/// Notice at the top of a trial's page.
const TRIAL: &str = "**A trial: nobody waited for a calm machine, and others worked on it. The figures below show the form of this page, \
    and no more.**\n\n";
/// Title of a new page.
const TITLE: &str = "# Members that share registrations\n";
/// Number of sockets of the phones.
const SOCKETS: u32 = 64;
/// Rate at which all contenders are measured.
const LOW_RATE: u32 = 1_000;
/// Contenders whose propagation time is measured.
const PROPAGATING: [Contender; 7] = [
    Contender::RedisDisk,
    Contender::Redis,
    Contender::RedisReplica,
    Contender::Postgres,
    Contender::Mariadb,
    Contender::Kamailio3,
    Contender::KamailioDmq,
];
/// Contenders that a new member joins, and the single server for comparison.
const JOINING: [Contender; 4] = [Contender::Alone, Contender::Redis, Contender::Postgres, Contender::Mariadb];
/// Contenders whose engine is frozen.
const FROZEN: [Contender; 3] = [Contender::Redis, Contender::Postgres, Contender::Mariadb];

#[derive(Debug, Parser)]
#[command(about = "Members that share registrations, beside one server and Kamailio; a report, not a test")]
struct Arguments {
    /// Parts to measure; earlier results of the others are kept [default: all]
    #[arg(long, value_delimiter = ',', value_enum)]
    only: Vec<Part>,
    /// Contenders to measure [default: all available]
    #[arg(long, value_delimiter = ',', value_enum)]
    contenders: Vec<Contender>,
    /// Measured seconds of each rate
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Seconds before that are not counted; transactions live for 3.2 s
    #[arg(long, default_value_t = 4)]
    warm_up: u64,
    /// Number of users in the rate measurements
    #[arg(long, default_value_t = 50_000)]
    users: u32,
    /// REGISTERs in flight at saturation
    #[arg(long, default_value_t = 512)]
    window: usize,
    /// Registrations that a new member finds
    #[arg(long, default_value_t = 1_000_000)]
    bindings: u32,
    /// Calls per second while the engine is frozen
    #[arg(long, default_value_t = 2_000.0)]
    calls: f64,
    /// Seconds for which the engine is frozen
    #[arg(long, default_value_t = 60)]
    frozen: u64,
    /// Maximum total time of all waits for a quiet machine, in seconds
    #[arg(long, default_value_t = 90)]
    patience: u64,
    #[command(flatten)]
    run: RunArguments,
    /// Folder for files of servers and engines, on a disk [default: the system's folder for temporary files]
    #[arg(long)]
    folder: Option<PathBuf>,
    #[command(flatten)]
    binary: BinaryArgument,
    /// File of the page; tables and plots go beside it [default: bench/CLUSTER.md]
    #[arg(long)]
    output: Option<PathBuf>,
}

/// A part that can be measured separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// REGISTERs per second, their cost and response times
    Rates,
    /// Time from a 200 until the other server finds the phone
    Propagation,
    /// Start of a new member, and memory per registration
    Joining,
    /// A frozen engine under call load
    Frozen,
}

impl Part {
    const ALL: [Self; 4] = [Self::Rates, Self::Propagation, Self::Joining, Self::Frozen];
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if !arguments.run.mode.describe {
        let _ = enter(true);
        adopt().expect("processes can be adopted");
    }
    let outcome = Bench::new(arguments).and_then(|mut bench| {
        bench.run()?;
        bench.show()
    });
    exit_code("cluster", outcome)
}

struct Bench {
    arguments: Arguments,
    place: Environment,
    parts: Vec<Part>,
    around: String,
    runner: Runner<Results>,
}

impl Bench {
    fn new(mut arguments: Arguments) -> Result<Self, String> {
        let binary = arguments.binary.existing_path()?;
        if arguments.run.mode.quick {
            (arguments.seconds, arguments.warm_up, arguments.users) = (1, 1, 5_000);
            (arguments.bindings, arguments.frozen, arguments.patience) = (20_000, 10, 0);
        }
        let folder = arguments.folder.clone().unwrap_or_else(std::env::temp_dir);
        let engines = Kind::ALL.map(Kind::version).join("; ");
        let conditions = Conditions::of(&binary)?.with("the engines", engines);
        let run = Run {
            name: "cluster",
            arguments: &arguments.run,
            only: &arguments.only,
            all: &Part::ALL,
            conditions,
            cores: &[0, OTHER_CORE],
            patience: Duration::from_secs(arguments.patience),
        };
        let (runner, parts) = Runner::start(run, |results, part| forget(results, part, &arguments.contenders))?;
        let around = circumstances(&command_line("strowger-bench --bin cluster").replace(" --describe", ""));
        let around = around + &disk(&folder);
        let place = Environment { binary, folder };
        Ok(Self { arguments, place, parts, around, runner })
    }

    fn run(&mut self) -> Result<(), String> {
        if self.arguments.run.mode.describe {
            return Ok(());
        }
        stay_on(OTHER_CORE).map_err(|error| format!("there is no second core: {error}"))?;
        for part in self.parts.clone() {
            let begun = Instant::now();
            match part {
                Part::Rates => self.rates(),
                Part::Propagation => self.propagation(),
                Part::Joining => self.joining(),
                Part::Frozen => self.frozen(),
            }
            self.runner.finish_part(part, begun);
        }
        self.runner.finish();
        Ok(())
    }

    /// Returns the contenders of `all` that are requested and whose programs are installed.
    fn contenders(&self, all: &[Contender]) -> Vec<Contender> {
        let is_asked_for =
            |one: &&Contender| self.arguments.contenders.is_empty() || self.arguments.contenders.contains(one);
        let has_kamailio = programs::has_kamailio();
        let is_there = |one: &&Contender| {
            let missing = one.engine().filter(|kind| kind.program().is_none()).map(|kind| kind.to_string());
            let missing =
                missing.or_else(|| (one.kamailio().is_some() && !has_kamailio).then(|| "Kamailio".to_owned()));
            let has_tables = one.kamailio().is_none() || one.engine().is_none() || has_kamailio_tables();
            let missing = missing.or_else(|| (!has_tables).then(|| "kamailio-mysql-modules".to_owned()));
            if let Some(missing) = &missing {
                eprintln!("SKIPPED: {one}, for {missing} is not installed");
            }
            missing.is_none()
        };
        all.iter().filter(is_asked_for).filter(is_there).copied().collect()
    }

    fn rates(&mut self) {
        let Arguments { seconds, warm_up, users, window, .. } = self.arguments;
        let plan = rates::Plan {
            users,
            sockets: SOCKETS,
            window,
            fill: Duration::from_secs(10),
            warm_up: Duration::from_secs(warm_up),
            time: Duration::from_secs(seconds),
            rates: vec![table::GOAL_RATE, LOW_RATE],
        };
        for contender in self.contenders(&Contender::ALL) {
            if self.runner.results.rated(contender).is_some() {
                continue;
            }
            self.runner.measure(
                &format!("rates: {contender}"),
                || rates::run(&plan, contender, &self.place),
                |results, one| {
                    for pace in &one.paces {
                        let asked = pace.asked.map_or_else(|| "saturation".to_owned(), |rate| format!("{rate}/s"));
                        eprintln!(
                            "  {asked}: {:.0}/s, p50 {:.2} p99 {:.2} ms, cores {:.2} and {:.2}, {:?}, 503 {} other {} lost {}",
                            pace.rate,
                            pace.p50_ms,
                            pace.p99_ms,
                            pace.server_core,
                            pace.other_core,
                            pace.cost,
                            pace.unavailable,
                            pace.others,
                            pace.lost
                        );
                    }
                    results.rates.push(one);
                },
            );
        }
    }

    fn propagation(&mut self) {
        let time = Duration::from_secs(self.arguments.seconds);
        for contender in self.contenders(&PROPAGATING) {
            let also_low = contender.kamailio().is_some().then_some(LOW_RATE);
            for rate in [Some(table::GOAL_RATE), also_low].into_iter().flatten() {
                if self.runner.results.propagated(contender, rate).is_some() {
                    continue;
                }
                self.runner.measure(
                    &format!("propagation at {rate}/s: {contender}"),
                    || propagation::run(contender, rate, time, &self.place),
                    |results, one| {
                        let (middle, most) = (one.at(0.5), one.at(0.99));
                        eprintln!(
                            "  {:.0}/s, p50 {middle:.2?} p99 {most:.2?} ms, {} of {} missing",
                            one.rate, one.missing, one.sample
                        );
                        results.propagation.push(one);
                    },
                );
            }
        }
    }

    fn joining(&mut self) {
        let Arguments { bindings, window, .. } = self.arguments;
        for contender in self.contenders(&JOINING) {
            if self.runner.results.joined(contender).is_some() {
                continue;
            }
            self.runner.measure(
                &format!("joining {bindings}: {contender}"),
                || joining::run(contender, bindings, SOCKETS, window, &self.place),
                |results, one| {
                    eprintln!("  {one:.2?}");
                    results.joining.push(one);
                },
            );
        }
    }

    fn frozen(&mut self) {
        let frozen = Duration::from_secs(self.arguments.frozen);
        let course = frozen::Schedule { rate: self.arguments.calls, before: frozen / 4, frozen };
        for contender in self.contenders(&FROZEN) {
            if self.runner.results.frozen(contender).is_some() {
                continue;
            }
            self.runner.measure(
                &format!("frozen for {} s: {contender}", frozen.as_secs()),
                || frozen::run(contender, course, &self.place),
                |results, one| {
                    eprintln!("  {one:.2?}");
                    results.frozen.push(one);
                },
            );
        }
    }

    /// Writes the page, the tables and the plots.
    fn show(&mut self) -> Result<(), String> {
        self.runner.results.sort();
        let mut text = table::summary(&self.runner.results);
        if self.arguments.patience == 0 {
            text.insert_str(0, TRIAL);
        }
        text.push_str("\n![REGISTERs a second](plots/cluster-rates.svg)\n\n");
        self.describe(&mut text);
        text.push_str(&table::all(&self.runner.results));
        println!("{text}");
        if self.arguments.run.mode.quick && self.arguments.output.is_none() {
            return Ok(());
        }
        let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("CLUSTER.md");
        let output = self.arguments.output.clone().unwrap_or_else(usual);
        plot::draw(&self.runner.results, &output.with_file_name("plots")).map_err(|error| error.to_string())?;
        self.runner.results.write_csv(&output.with_file_name("cluster")).map_err(|error| error.to_string())?;
        if !output.exists() {
            fs::write(&output, TITLE).map_err(|error| format!("{}: {error}", output.display()))?;
        }
        replace(&output, "cluster", &text).map_err(|error| format!("{}: {error}", output.display()))
    }

    fn describe(&self, text: &mut String) {
        let Arguments { seconds, warm_up, users, window, .. } = self.arguments;
        let address = ([127, 0, 0, 1], 5060).into();
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "{}- {}\n- Kamailio: {}\n\n## How it is measured\n\nMeasured in a network namespace, where the system allows it. \
             **The first core runs the server at which phones register and all processes of the engine. The second core stands \
             for other machines: the phones, the second server (a member that follows), and Redis's replica.** A rate with an \
             engine is therefore that of one core doing both jobs; the table has the engine's part of the CPU time. Servers have \
             one worker, or one receiving process of Kamailio; {WAITING_CHILDREN} where each waits for MariaDB (1 and 3). No \
             passwords.\n\nEngines have production settings, and their files are on the disk named above. {} They are restarted \
             for each row.\n\nThe suffix says what a 200 guarantees: *engine and disk* is `durability = \"engine\"` with `store.mode \
             = \"write-through\"` (the default), *engine* the same with `memory`, *disk* `durability = \"disk\"`. *Replica* adds \
             `replicas = 1` and a Redis replica.\n\nRates: {users} users on {SOCKETS} sockets, one contact each (address 24 B, \
             URI 40 B), send refreshes with the same Call-ID and a rising CSeq: {window} outstanding at saturation, {warm_up} s \
             of warm-up, {seconds} s measured, one run. Runs on a shared machine vary by several percent. At saturation, times \
             are those of the queue. A REGISTER is retransmitted after 0.5, 1.5 and 3.5 s and counts as lost after 4 s. At fixed \
             rates, times count from when a REGISTER was due; it may be sent up to 0.05 ms late. `timers.t1` is {T1}, so that \
             transactions end as fast as they begin.\n\nKamailio: [kamailio/cluster.cfg](kamailio/cluster.cfg), Debian's packages, \
             usrloc's `db_mode` in brackets; mode 2 has `timer_interval = 5`. In modes 1 and 3 a 200 means that MariaDB has the \
             registration; in modes 0 and 2 and with DMQ, that Kamailio's memory has it. DMQ sends each change immediately, as a \
             SIP message.\n\nStrowger alone (members also have a `[cluster]`); omitted keys have their defaults:\n\n```toml\n{}```\n",
            self.around,
            Kind::ALL.map(Kind::version).join("\n- "),
            programs::kamailio_version(),
            engine::settings(),
            configuration(Contender::Alone, 1, address, None),
        );
    }
}

/// Returns the disk as a line of Markdown.
fn disk(folder: &Path) -> String {
    let all = surroundings(folder);
    all.lines().filter(|line| line.starts_with("- Disk")).map(|line| format!("{line}\n")).collect()
}

/// Removes results that will be measured again.
fn forget(results: &mut Results, part: Part, contenders: &[Contender]) {
    let stays = |contender| !contenders.is_empty() && !contenders.contains(&contender);
    match part {
        Part::Rates => results.rates.retain(|one| stays(one.contender)),
        Part::Propagation => results.propagation.retain(|one| stays(one.contender)),
        Part::Joining => results.joining.retain(|one| stays(one.contender)),
        Part::Frozen => results.frozen.retain(|one| stays(one.contender)),
    }
}
