//! Tries each way to share load over several servers and prints what it preserves and what it breaks. It needs root
//! to create networks.
//!
//! `cargo build --bin strowger && cargo run -p strowger-interop --bin sharing -- --output bench/LOAD_SHARING.md`

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use strowger_interop::sharing::{Kind, Row, document};

const USAGE: &str = "sharing [--output FILE] [WAY]…
    --output  file to write the page to; default: standard output
    WAY       one of the names below; default: all";

fn main() -> ExitCode {
    let (kinds, output) = match read(std::env::args().skip(1)) {
        Ok(read) => read,
        Err(why) => {
            eprintln!("{why}\n{USAGE}\n{}", Kind::ALL.map(Kind::name).join("\n"));
            return ExitCode::from(2);
        }
    };
    if !kinds.iter().all(|kind| kind.available()) {
        return ExitCode::FAILURE;
    }
    // They run concurrently, since most of the time is spent waiting for answers that do not arrive.
    let rows: Vec<Row> = thread::scope(|scope| {
        let threads: Vec<_> = kinds.into_iter().map(|kind| scope.spawn(move || Row::of(kind))).collect();
        threads.into_iter().map(|thread| thread.join().expect("the trials come to their end")).collect()
    });
    let text = document(&rows);
    match output {
        None => print!("{text}"),
        Some(file) => {
            if let Err(error) = std::fs::write(&file, text) {
                eprintln!("{}: {error}", file.display());
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn read(mut words: impl Iterator<Item = String>) -> Result<(Vec<Kind>, Option<PathBuf>), String> {
    let (mut kinds, mut output) = (Vec::new(), None);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--output" => output = Some(words.next().ok_or("--output needs a file name")?.into()),
            name => kinds.push(name.parse()?),
        }
    }
    if kinds.is_empty() {
        kinds = Kind::ALL.to_vec();
    }
    Ok((kinds, output))
}
