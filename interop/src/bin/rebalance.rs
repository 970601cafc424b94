//! Adds a cluster under load and removes it again. Prints what happens to calls and registrations as a document for
//! bench/REBALANCING.md.
//!
//! `cargo run --release -p strowger-interop --bin rebalance > bench/REBALANCING.md`

use std::process::{Command, ExitCode};
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use strowger_interop::stages::{Layout, Stages, loopback};
use strowger_interop::{Load, Report, poll_every};

const USAGE: &str = "rebalance [--users N] [--rate N] [--registering N] [--register-rate N]
    --users          who are called, and have registered before (100000)
    --rate           calls a second (1000)
    --registering    users who register again and again, and are counted where they move (20000)
    --register-rate  their registrations a second (500)";

/// Undisturbed time before the first change and after each step that waits for users to move.
const PEACE: Duration = Duration::from_secs(20);
/// Time allowed for the called users to register, and for a load to end.
const PATIENCE: Duration = Duration::from_secs(600);
const CLUSTERS: usize = 2;

/// Size of the experiment.
#[derive(Clone, Copy, Debug)]
struct Size {
    users: u64,
    rate: u64,
    registering: u64,
    register_rate: u64,
}

impl Size {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Size, String> {
        let mut size = Size { users: 100_000, rate: 1_000, registering: 20_000, register_rate: 500 };
        while let Some(word) = words.next() {
            let number = words.next().and_then(|text| text.parse::<u64>().ok()).filter(|number| *number > 0);
            let number = number.ok_or_else(|| format!("{word} needs a number above 0"))?;
            match word.as_str() {
                "--users" => size.users = number,
                "--rate" => size.rate = number,
                "--registering" => size.registering = number,
                "--register-rate" => size.register_rate = number,
                _ => return Err(format!("unknown option {word}")),
            }
        }
        Ok(size)
    }

    /// Returns the time in which every registering user refreshes once.
    fn turn(&self) -> Duration {
        Duration::from_secs(self.registering / self.register_rate + 3)
    }
}

fn main() -> ExitCode {
    match Size::read(std::env::args().skip(1)) {
        Ok(size) => {
            print!("{}", document(&size, &measure(&size)));
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Results of the experiment.
#[derive(Debug)]
struct Measurement {
    calls: Report,
    registrations: Report,
    /// Steps with their start times, in seconds since 1970.
    steps: Vec<(&'static str, f64)>,
    /// End of the last step.
    end: f64,
    /// Share of the users that moved to the new cluster.
    moved: f64,
}

fn measure(size: &Size) -> Measurement {
    let mut stages = Stages::start_here(Layout::default());
    let registered =
        |stages: &Stages| -> u64 { stages.weights().iter().map(|(name, _)| stages.registrations(name)).sum() };
    let calls = Load::start(&format!(
        "--to udp:{} --domain example.com --users {} --rate {} --time 1h --user-pattern u% --seed 1 --sockets 4",
        stages.address("s1"),
        size.users,
        size.rate
    ));
    wait_for(size.users, || registered(&stages));
    let registrations = Load::start(&format!(
        "--to udp:{} --domain example.com --workload registration --users {} --rate {} --time 1h --user-pattern r% --seed 1",
        stages.address("s2"),
        size.registering,
        size.register_rate
    ));
    wait_for(size.users + size.registering, || registered(&stages));
    let mut steps = vec![("before", now_s())];
    sleep(PEACE);

    steps.push(("a third cluster starts", now_s()));
    stages.add(("c", None), &loopback(2));
    stages.reload_all();
    steps.push(("users move to it: 100 of 300", now_s()));
    stages.weigh("c", 100);
    stages.reload_all();
    sleep(size.turn());
    let moved = stages.registrations("c");
    steps.push(("moved users have registered there", now_s()));
    sleep(PEACE);

    steps.push(("users move back", now_s()));
    stages.weigh("c", 0);
    stages.reload_all();
    sleep(size.turn());
    steps.push(("users have registered at their former clusters", now_s()));
    sleep(PEACE);
    let end = now_s();
    let registrations = registrations.end(PATIENCE);
    let calls = calls.end(PATIENCE);
    Measurement { calls, registrations, steps, end, moved: moved as f64 / size.registering as f64 }
}

fn wait_for(wanted: u64, count: impl Fn() -> u64) {
    let is_so = poll_every(Duration::from_millis(200), PATIENCE, || (count() >= wanted).then_some(()));
    assert!(is_so.is_some(), "{} of {wanted} have registered", count());
}

fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// Returns the date in the form 2026-11-26.
fn today() -> String {
    let told = Command::new("date").args(["-u", "+%F"]).output();
    told.map_or_else(|_| "-".to_owned(), |told| String::from_utf8_lossy(&told.stdout).trim().to_owned())
}

/// Outcome of the attempts that began in one second.
#[derive(Clone, Copy, Debug)]
struct Second {
    /// Start in seconds since 1970.
    at_s: f64,
    offered: u64,
    failed: u64,
    p50_us: f64,
    p99_us: f64,
}

fn seconds(report: &Report) -> Vec<Second> {
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let rows = report.at("/intervals/rows").as_array().into_iter().flatten();
    let began_s = number(report.at("/machine/ended_at_s")) - number(report.at("/elapsed_s"));
    let count = |row: &Value, name: &str| row[name].as_u64().unwrap_or_default();
    let second = |row: &Value| Second {
        at_s: began_s + number(&row["at_s"]),
        offered: count(row, "offered"),
        failed: count(row, "failed") + count(row, "lost"),
        p50_us: number(&row["p50_us"]),
        p99_us: number(&row["p99_us"]),
    };
    rows.map(second).collect()
}

/// Summarizes an interval: attempts, failures, and the medians of the per-second medians and 99th percentiles.
fn between(seconds: &[Second], from_s: f64, to_s: f64) -> String {
    let within: Vec<&Second> = seconds.iter().filter(|second| (from_s..to_s).contains(&second.at_s)).collect();
    let sum = |of: fn(&Second) -> u64| within.iter().map(|second| of(second)).sum::<u64>();
    let worst = |of: fn(&Second) -> f64| within.iter().map(|second| of(second)).fold(0.0, f64::max) / 1e3;
    let middle = |of: fn(&Second) -> f64| {
        let mut all: Vec<f64> = within.iter().map(|second| of(second)).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or_default() / 1e3
    };
    format!(
        "{} | {} | {:.2} | {:.1} | {:.1}",
        sum(|second| second.offered),
        sum(|second| second.failed),
        middle(|second| second.p50_us),
        middle(|second| second.p99_us),
        worst(|second| second.p99_us)
    )
}

fn document(size: &Size, measured: &Measurement) -> String {
    let Size { users, rate, registering, register_rate } = size;
    let Measurement { calls, registrations, steps, end, moved } = measured;
    let of = |pointer| calls.at(pointer).to_string().replace('"', "");
    let mut text = format!(
        "# Rebalancing under load\n\nThe effect on calls and registrations of adding a third cluster to two, \
         and of moving its users back. Two first-stage servers, clusters of two members that forward \
         registrations to each other, `store.mode = \"write-through\"`, one worker per server, all on one \
         machine with the load.\n\nMade by `cargo run --release -p strowger-interop --bin rebalance -- --users \
         {users} --rate {rate} --registering {registering} --register-rate {register_rate}`, {} processors \
         ({}), Linux {}, {}.\n\n{users} users are called through s1, {rate} calls a second (INVITE, 180, 200, \
         ACK, BYE, 200); {registering} others register repeatedly through s2, {register_rate} a second.\n\n",
        of("/machine/processors"),
        of("/machine/processor"),
        of("/machine/kernel"),
        today()
    );
    text.push_str(
        "| from | s | calls | failed | INVITE to 200: median, ms | p99, ms | worst second's p99, ms | REGISTERs | failed | median, ms | p99, ms | \
         worst second's p99, ms |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let (of_calls, of_registrations) = (seconds(calls), seconds(registrations));
    let ends = steps.iter().skip(1).map(|(_, at_s)| *at_s).chain([*end]);
    for ((name, from_s), to_s) in steps.iter().zip(ends) {
        let both = [&of_calls, &of_registrations].map(|seconds| between(seconds, *from_s, to_s));
        text.push_str(&format!("| {name} | {:.0} | {} |\n", to_s - from_s, both.join(" | ")));
    }
    let count = |report: &Report, name: &str| report.count(name);
    text.push_str(&format!(
        "\nIn all: {} calls, {} failed, {} lost; {} REGISTERs, {} failed, {} lost.\n\n\
         Users who moved to the third cluster: {:.2} % of those who register ({:.2} % is 1/(P+1)).\n",
        count(calls, "sent"),
        count(calls, "failed"),
        count(calls, "lost"),
        count(registrations, "sent"),
        count(registrations, "failed"),
        count(registrations, "lost"),
        100.0 * moved,
        100.0 / (CLUSTERS + 1) as f64,
    ));
    text
}
