//! Repeats the multicore paper's study: tables of fixed and of dynamic size, credentials in a database and in memory,
//! expiry by a sweep and by a data structure ordered by time. Writes the tables of `bench/TABLES.md` and its plots.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use strowger_bench::namespace::enter;
use strowger_bench::plot::{COLOURS, Line, Lines, draw_lines};
use strowger_bench::programs::BinaryArgument;
use strowger_bench::register::process::adopt;
use strowger_bench::register::report::replace;
use strowger_bench::server::{circumstances, command_line};
use strowger_bench::tables::contention::LockContention;
use strowger_bench::tables::credentials::{Source, UserStores};
use strowger_bench::tables::growth::{self, Growth};
use strowger_bench::tables::kind::Kind;
use strowger_bench::tables::measure::{Population, measure, message_time, sweep_time};
use strowger_bench::tables::model::{Curve, Expiry, Server};
use strowger_bench::tables::phones::World;
use strowger_bench::tables::plot::{Group, draw_bars, short};
use strowger_bench::tables::report::{self, LadderStep, Measurement, RungResult, user_seconds};
use strowger_bench::tables::serve::{self, Setup};
use strowger_bench::tables::table::{EXPIRES, REFRESH};
use strowger_bench::tables::timeline::{BIN, Timeline};
use strowger_bench::tables::verify;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Registrations until the number of transactions reaches its steady state.
const WARM_UP: u64 = 20_000;
/// Share of a core that the generator's users should consume.
const VERIFIED_AT: f64 = 0.5;
const DATABASE_USERS: u32 = 1_000_000;
/// Repetitions of each measurement; the median counts.
const TURNS: usize = 3;
/// The tables, and a null table for comparison.
const KINDS: [Kind; 4] = [Kind::ALL[0], Kind::ALL[1], Kind::ALL[2], Kind::Nothing];

#[derive(Debug, Parser)]
#[command(about = "The multicore paper's study of a registrar's tables; a report, not a test")]
struct Arguments {
    #[command(subcommand)]
    part: Option<Part>,
    /// Smoke test: a little of everything; writes nothing
    #[arg(long)]
    quick: bool,
    /// Contacts of the growing table
    #[arg(long, default_value_t = 10_000_000)]
    contacts: u32,
    #[command(flatten)]
    binary: BinaryArgument,
    /// File for the tables [default: bench/TABLES.md]
    #[arg(long)]
    output: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Grows and shrinks a table; internal
    Grow { kind: growth::Kind },
    /// Serves until standard input ends; internal
    Serve {
        address: SocketAddr,
        #[arg(long, value_parser = Kind::parse)]
        table: Kind,
        #[arg(long)]
        source: Source,
        #[arg(long)]
        expiry: Expiry,
        #[arg(long)]
        users: u32,
        #[arg(long)]
        speed: f64,
    },
}

fn main() {
    let arguments = Arguments::parse();
    match arguments.part {
        Some(Part::Grow { kind }) => {
            let growth = growth::run(kind, arguments.contacts);
            println!("{}", serde_json::to_string(&growth).expect("it can be written"));
        }
        Some(Part::Serve { address, table: kind, source, expiry, users, speed }) => {
            let outcome = serve::run(&Setup { address, kind, source, expiry, users, speed });
            outcome.unwrap_or_else(|error| panic!("{error}"));
        }
        None => study(&arguments),
    }
}

fn study(arguments: &Arguments) {
    let _ = enter(true);
    adopt().expect("processes can be adopted");
    let binary = arguments.binary.path();
    assert!(binary.is_file(), "{} is missing: cargo build --release -p strowger", binary.display());
    let study = Study {
        populations: if arguments.quick { &[10_000, 100_000] } else { &[10_000, 100_000, 1_000_000, 4_000_000] },
        time: Duration::from_millis(if arguments.quick { 100 } else { 400 }),
        is_quick: arguments.quick,
        contacts: if arguments.quick { 200_000 } else { arguments.contacts },
        binary,
        began: Instant::now(),
    };
    let results = study.run().unwrap_or_else(|error| panic!("{error}"));
    let text = format!("{}\n{}", circumstances(&command_line("strowger-bench --bin tables")), results.show());
    println!("{text}");
    if arguments.quick {
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = arguments.output.clone().unwrap_or_else(|| here.join("TABLES.md"));
    let plots = file.parent().unwrap_or(here).join("plots");
    std::fs::create_dir_all(&plots).expect("there is a folder for pictures");
    results.draw(&plots).expect("the pictures can be drawn");
    replace(&file, "tables", &text).expect("the tables can be written");
}

/// Extent of the study.
struct Study {
    populations: &'static [u32],
    /// Processor time of a server per measured value.
    time: Duration,
    is_quick: bool,
    contacts: u32,
    binary: PathBuf,
    began: Instant,
}

/// A table, its number of users, and the duration of a full sweep.
type SweepResults = (Kind, u32, Duration);

/// Results of the study.
struct Results {
    populations: &'static [u32],
    pair: Duration,
    measured: Vec<Measurement>,
    sweeps: Vec<SweepResults>,
    climbed: Vec<RungResult>,
    verified: Vec<(LadderStep, u32, Result<verify::Outcome, String>)>,
    timelines: Vec<Timeline>,
    contentions: Vec<LockContention>,
    growths: Vec<Growth>,
}

impl Study {
    fn say(&self, what: &str) {
        eprintln!("{:4} s: {what}", self.began.elapsed().as_secs());
    }

    fn run(&self) -> Result<Results, String> {
        let growths = self.grow()?;
        self.say("users and databases");
        let stock = UserStores::make(DATABASE_USERS.min(*self.populations.last().unwrap_or(&1)), &Source::ALL)?;
        let database =
            if stock.sources().any(|source| source == Source::Postgres) { Source::Postgres } else { Source::Sqlite };
        let rungs = LadderStep::all(database);
        let pair = message_time()?;
        let (measured, sweeps) = self.measure(&stock, &rungs)?;
        drop(stock);
        let climbed = climb(&rungs, &measured, &sweeps, pair);
        let timelines = self.watch(&measured, pair);
        let contentions = self.contend();
        let verified = self.verify(&climbed);
        let populations = self.populations;
        Ok(Results { populations, pair, measured, sweeps, climbed, verified, timelines, contentions, growths })
    }

    fn grow(&self) -> Result<Vec<Growth>, String> {
        let grow = |kind| {
            self.say(&format!("a table grows: {}", report::growth_name(kind)));
            growth::apart(kind, self.contacts)
        };
        [growth::Kind::Ours, growth::Kind::Std].map(grow).into_iter().collect()
    }

    /// Measures the cost of users and of sweeps.
    fn measure(
        &self,
        stock: &UserStores,
        rungs: &[LadderStep],
    ) -> Result<(Vec<Measurement>, Vec<SweepResults>), String> {
        self.say("phones");
        let mut worlds: Vec<World> = (1..=2).map(World::new).collect();
        std::thread::scope(|scope| {
            let warm_up = if self.is_quick { WARM_UP / 10 } else { WARM_UP };
            worlds.iter_mut().for_each(|world| drop(scope.spawn(move || world.run(warm_up, |_| ()))));
        });
        let is_compared = |kind, source| match kind {
            Kind::Nothing => source == Source::Memory,
            kind => rungs.iter().any(|rung| (rung.kind, rung.source) == (kind, source)),
        };
        let (mut measured, mut sweeps) = (Vec::new(), Vec::new());
        for users in self.populations {
            self.say(&format!("{users} users"));
            let mut populations = KINDS.map(|kind| Population::new(kind, *users, 2));
            let mut turns = Vec::new();
            // Alternating the servers makes disturbances of the machine affect all of them alike.
            for _ in 0..TURNS {
                for population in &mut populations {
                    let kind = population.kind;
                    for (source, cores) in Source::ALL.into_iter().flat_map(|source| [(source, 1), (source, 2)]) {
                        if is_compared(kind, source) {
                            let cost = measure(&mut worlds[..cores], population, (stock, source), self.time)?;
                            turns.push(Measurement { kind, source, users: *users, cores, cost });
                        }
                    }
                }
            }
            let middle = report::middle(&turns);
            for one in &middle {
                let Measurement { kind, source, cores, cost, .. } = one;
                eprintln!("        {kind}, {source}, {cores} cores: {:.1?} a registration", cost.registration);
            }
            measured.extend(middle);
            let swept = populations.iter().filter(|population| matches!(population.kind, Kind::Buckets(_)));
            sweeps.extend(swept.map(|population| (population.kind, *users, sweep_time(population))));
        }
        for world in &worlds {
            let (all, good) = world.transactions();
            if (good as f64) < all as f64 * strowger_traffic::workload::CONFORMING {
                return Err(format!("only {good} of {all} transactions succeeded"));
            }
        }
        Ok((measured, sweeps))
    }

    fn watch(&self, measured: &[Measurement], pair: Duration) -> Vec<Timeline> {
        let users = if self.is_quick { 100_000 } else { 1_000_000 };
        let time = Duration::from_secs(180);
        let is_it = |one: &&Measurement| (one.kind, one.cores, one.users) == (Kind::Nothing, 1, users);
        let without = measured.iter().find(is_it);
        let rest = without.map_or(Duration::ZERO, |one| one.cost.registration + pair.mul_f64(one.cost.messages / 2.0));
        let run = |(kind, expiry)| {
            self.say(&format!("three minutes of {kind}"));
            // Earlier, no binding of a user who stopped refreshing has expired.
            let before = EXPIRES - REFRESH;
            Timeline::run(kind, expiry, users, (before, time), rest)
        };
        let wide = Kind::Buckets(1 << 17);
        [(wide, Expiry::Sweep), (wide, Expiry::Parts), (Kind::Ours, Expiry::Own)].map(run).into()
    }

    fn contend(&self) -> Vec<LockContention> {
        let (users, time) = if self.is_quick { (100_000, 200) } else { (400_000, 3_000) };
        let run = |(kind, sweeps)| {
            self.say(&format!("locks of {kind}"));
            LockContention::run(kind, sweeps, users, Duration::from_millis(time))
        };
        let (narrow, wide) = (Kind::Buckets(512), Kind::Buckets(1 << 17));
        [(narrow, false), (narrow, true), (wide, false), (wide, true), (Kind::Ours, false)].map(run).into()
    }

    /// Runs the load generator's users against each server.
    fn verify(&self, climbed: &[RungResult]) -> Vec<(LadderStep, u32, Result<verify::Outcome, String>)> {
        let (users, seconds) = if self.is_quick { (10_000, 3) } else { (100_000, 6) };
        let one_core = climbed.iter().filter_map(|climbed| Some((climbed.rung, climbed.servers.first()?)));
        let run = |(number, (rung, server)): (u16, (LadderStep, &Server))| {
            self.say(&format!("the generator: {}", rung.name()));
            // Another load on the machine may disturb a smoke test.
            let share = if self.is_quick { VERIFIED_AT / 10.0 } else { VERIFIED_AT };
            let speed = share / server.load(f64::from(users));
            let LadderStep { kind, source, expiry, .. } = rung;
            let address = SocketAddr::from(([127, 0, 0, 1], 5_060 + number * 10));
            let setup = Setup { address, kind, source, expiry, users, speed };
            let outcome = verify::run(&self.binary, &setup, share, Duration::from_secs(seconds));
            eprintln!("        {outcome:.2?}");
            (rung, users, outcome)
        };
        (1..).zip(one_core).map(run).collect()
    }
}

/// Converts measurements to results per server.
fn climb(rungs: &[LadderStep], measured: &[Measurement], sweeps: &[SweepResults], pair: Duration) -> Vec<RungResult> {
    let server = |rung: &LadderStep, cores: usize| {
        let is_its = |one: &&Measurement| (one.kind, one.source, one.cores) == (rung.kind, rung.source, cores);
        let user = measured.iter().filter(is_its).map(|one| (f64::from(one.users), user_seconds(&one.cost, pair)));
        let sweep = sweeps.iter().filter(|(kind, ..)| *kind == rung.kind);
        let sweep = sweep.map(|(_, users, time)| (f64::from(*users), time.as_secs_f64() / f64::from(*users)));
        Server {
            user: Curve::new(user.collect()),
            sweep: Curve::new(sweep.collect()),
            expiry: rung.expiry,
            cores: cores as f64,
        }
    };
    rungs.iter().map(|rung| RungResult { rung: *rung, servers: vec![server(rung, 1), server(rung, 2)] }).collect()
}

impl Results {
    fn show(&self) -> String {
        let messages = self.measured.first().map_or(0.0, |one| one.cost.messages);
        format!(
            "### Conforming users\n\n{}\n× is the ratio to the row named in *against*. ~ \
             marks extrapolations beyond the largest number of users measured, at the cost \
             per user measured there.\n\n![Conforming users](plots/tables-users.svg)\n\n### \
             What they cost\n\n{}\n{messages:.1} messages are received or sent per registration. \
             The kernel's part, {:.2} µs per message, is not in this table.\n\n{}\n\
             ### The generator's users\n\n{}\n\
             ### Three minutes of a core\n\n{}\n![Three minutes of a core](plots/tables-timeline.svg)\n\n\
             ### Locks\n\n{}\n\
             ### Growing and shrinking\n\n{}\n![The longest change](plots/tables-growth.svg)\n",
            report::users(&self.climbed),
            report::costs(&self.measured, self.populations),
            self.pair.as_secs_f64() * 1e6 / 2.0,
            report::sweeps(&self.sweeps),
            report::verified(&self.verified),
            report::timelines(&self.timelines),
            report::locks(&self.contentions),
            report::growths(&self.growths),
        )
    }

    fn draw(&self, folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
        let groups: Vec<Group> = self
            .climbed
            .iter()
            .map(|climbed| Group {
                name: climbed.rung.name().replace(" buckets", "").replace("sweep in parts", "parts"),
                bars: climbed.servers.iter().map(Server::users_at_peak).collect(),
            })
            .collect();
        let caption = "Users whom one core and two carry in their busiest second";
        draw_bars(&folder.join("tables-users.svg"), caption, &["one core", "two cores"], &groups)?;
        let course = |(one, colour): (&Timeline, _)| Line {
            colour,
            name: report::line_name(one),
            points: (1..)
                .zip(one.served())
                .map(|(bin, used)| (f64::from(bin) * BIN.as_secs_f64(), used * 100.0))
                .collect(),
        };
        let lines: Vec<Line> = self.timelines.iter().zip(COLOURS).map(course).collect();
        let caption = "What a registrar takes of a core in each tenth of a second, %";
        let across = |value: f64| format!("{} s", short(value));
        let of = Lines { caption, across: &across, up: &short, is_log: false, lines: &lines };
        draw_lines(&folder.join("tables-timeline.svg"), &of)?;
        let course = |(one, colour): (&Growth, _)| Line {
            colour,
            name: report::growth_name(one.kind).to_owned(),
            points: (0..).zip(&one.longest_us).map(|(step, longest)| (f64::from(step), *longest)).collect(),
        };
        let lines: Vec<Line> = self.growths.iter().rev().zip(COLOURS).map(course).collect();
        let caption = "The longest insertion (to 100 %) and removal (from there), µs";
        let across = |value: f64| format!("{} %", short(value));
        let of = Lines { caption, across: &across, up: &short, is_log: true, lines: &lines };
        draw_lines(&folder.join("tables-growth.svg"), &of)
    }
}
