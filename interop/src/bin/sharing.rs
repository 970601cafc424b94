//! Tries each way to share load over servers, and writes what it keeps and breaks.

use std::process::ExitCode;
use strowger_interop::sharing::{Kind, Row, line};

fn main() -> ExitCode {
    let kinds: Vec<Kind> = std::env::args().skip(1).filter_map(|name| name.parse().ok()).collect();
    for kind in kinds.into_iter().filter(|kind| kind.available()) {
        println!("{}", line(&Row::of(kind)));
    }
    ExitCode::SUCCESS
}
