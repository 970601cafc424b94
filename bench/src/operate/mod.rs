//! What callers notice while an operator works on a server: acts of the operator (reload), and scrapes of its metrics; and
//! what memory a peak of load leaves.

mod conditions;
mod cost;
pub mod memory;
mod periods;
pub mod scrape;
mod scraper;
mod table;

use std::fmt::Write as _;

use strowger_interop::operate::{Exercise, Outcome};

/// Returns the table of what callers and phones noticed of an operator's acts, such as `reloads`.
#[must_use]
pub fn acts_table(acts: &str, how: &Exercise, outcome: &Outcome) -> String {
    let mut text = format!(
        "{} {acts}, one every {} s, beside {} calls and {} REGISTERs a second. Lost: {}. The latest answer came after {:.1} ms.\n\n\
         | answer | number | the latest after, ms |\n|---|---:|---:|\n",
        how.rounds,
        how.interval.as_secs(),
        how.calls,
        how.registrations,
        outcome.lost(),
        outcome.longest().as_secs_f64() * 1e3,
    );
    for (answer, count, longest) in outcome.calls.answers.iter().chain(&outcome.registrations.answers) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {answer} | {count} | {:.1} |", longest.as_secs_f64() * 1e3);
    }
    text
}
