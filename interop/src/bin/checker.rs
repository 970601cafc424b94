//! Kills, stops and isolates members and engines of one or all arrangements, and prints what was lost.
//!
//! `cargo run -p strowger-interop --bin checker -- --arrangement redis-sentinel`

use std::process::ExitCode;

use strowger_interop::Arrangement;
use strowger_interop::checker::{Outcome, Size, check, stages};

const USAGE: &str = "checker [--small] [--store MODE] [--arrangement NAME]…
checker --stages [--small] [--engine]
    --arrangement  one of the names below; default: all
    --stages       check two stages: a first stage, and clusters whose shares of the users change
    --engine       with --stages: members share registrations through Redis
    --small        short run, as in the ordinary tests
    --store        store.mode of the members: write-through (default), write-behind or memory
STROWGER_CHECKER_ACKNOWLEDGED, _MEMBER_KILLS, _ENGINE_KILLS, _PARTITIONS, _STOPS, _USERS and _RATE set the size of the run, with
----stages also _FIRST_KILLS, _REBALANCINGS and _EXPIRES.";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--stages") {
        return of_stages(&words);
    }
    let (arrangements, size) = match read(std::env::args().skip(1)) {
        Ok(read) => read,
        Err(why) => {
            let names: Vec<String> = Arrangement::ALL.iter().map(ToString::to_string).collect();
            eprintln!("{why}\n{USAGE}\n{}", names.join("\n"));
            return ExitCode::from(2);
        }
    };
    println!("{}", Outcome::HEAD);
    let mut is_right = true;
    for arrangement in arrangements.into_iter().filter(|arrangement| arrangement.available()) {
        let outcome = check(arrangement, &size);
        println!("{outcome}");
        outcome.told.iter().for_each(|line| eprintln!("    {line}"));
        is_right &= outcome.told.is_empty();
    }
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn of_stages(words: &[String]) -> ExitCode {
    if let Some(other) = words.iter().find(|word| !["--stages", "--small", "--engine"].contains(&word.as_str())) {
        eprintln!("unknown option {other}\n{USAGE}");
        return ExitCode::from(2);
    }
    let has = |word: &str| words.iter().any(|known| known == word);
    let size = if has("--small") { stages::Size::SMALL } else { stages::Size::FULL };
    let size = stages::Size { has_engine: has("--engine"), ..size }.or_as_the_environment_says();
    println!("{}", stages::Outcome::HEAD);
    let outcome = stages::check(&size);
    println!("{outcome}");
    outcome.told.iter().for_each(|line| eprintln!("    {line}"));
    if outcome.told.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn read(mut words: impl Iterator<Item = String>) -> Result<(Vec<Arrangement>, Size), String> {
    let (mut arrangements, mut size, mut store) = (Vec::new(), Size::FULL, Size::FULL.store);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--small" => size = Size::SMALL,
            "--arrangement" => arrangements.push(words.next().unwrap_or_default().parse()?),
            "--store" => {
                let mode = words.next().unwrap_or_default();
                let known = ["write-through", "write-behind", "memory"].into_iter().find(|known| *known == mode);
                store = known.ok_or_else(|| format!("unknown store.mode {mode}"))?;
            }
            _ => return Err(format!("unknown option {word}")),
        }
    }
    if arrangements.is_empty() {
        arrangements = Arrangement::ALL.to_vec();
    }
    Ok((arrangements, Size { store, ..size.or_as_the_environment_says() }))
}
