//! The report on scrapes.

use std::fmt::Write as _;
use std::time::Duration;

use super::conditions::{Callees, Load, Scraping, TARGETS, USERS};
use super::cost::Cost;
use super::periods::Period;

/// The most by which scrapes may raise the 99th percentile, in milliseconds.
const GOAL_MS: f64 = 1.0;

/// Returns a line about a period, for the terminal.
pub(crate) fn line((callees, load): (Callees, Load), scraping: Scraping, period: &Period) -> String {
    format!(
        "{callees:?}, {load:?}, scrapes {}: p99 {:.2} ms, {:.0} calls/s, {} not carried, server {:.2} CPUs, {} scrapes{}",
        scraping.name(),
        percentile(&[period], 0.99),
        period.carried,
        period.missed,
        period.busy,
        period.scrapes.count,
        if period.was_generator { ", the generator was the limit" } else { "" }
    )
}

/// Returns the rows of a load.
pub(crate) fn rows((callees, load): (Callees, Load), periods: &[(Scraping, Vec<Period>)]) -> String {
    let mut text = String::new();
    let load = match load {
        Load::Rate(rate) => format!("{rate:.0} calls/s to {}", name(callees)),
        Load::Closed(calls) => format!("{calls} calls at once to {}", name(callees)),
    };
    let mut without = None;
    for (scraping, periods) in periods {
        let all: Vec<&Period> = periods.iter().collect();
        let mean = |of: fn(&Period) -> f64| all.iter().map(|one| of(one)).sum::<f64>() / all.len() as f64;
        let each: Vec<String> = all.iter().map(|one| format!("{:.2}", percentile(&[one], 0.99))).collect();
        let p99 = percentile(&all, 0.99);
        let base = *without.get_or_insert(p99);
        let change = match scraping {
            Scraping::Never => String::new(),
            _ => format!("{:+.2}", p99 - base),
        };
        let ratio = if change.is_empty() { String::new() } else { format!("{:.2} ×", p99 / base) };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {load} | {} | {:.2} | {p99:.2} | {} | {change} | {ratio} | {:.2} | {:.0} | {:.2} | {} |",
            scraping.name(),
            percentile(&all, 0.5),
            each.join(", "),
            percentile(&all, 0.999),
            mean(|one| one.carried),
            mean(|one| one.busy),
            all.iter().map(|one| one.missed).sum::<u64>(),
        );
    }
    text
}

const fn name(callees: Callees) -> &'static str {
    match callees {
        Callees::Phones => "phones",
        Callees::Targets => "targets",
    }
}

/// Returns the whole text.
pub(crate) fn report(rows: &str, costs: &[(Callees, Cost)], quiet: &str) -> String {
    let mut text = format!(
        "{USERS} registered phones, and a balancer with {TARGETS} targets. The server has one core and one worker; generator and scraper \
         have the other. A call is INVITE, 180, 200, ACK, BYE, 200. Times are from INVITE to 180, of all periods of a row; periods \
         alternate. Wanted: scrapes raise p99 by at most {GOAL_MS:.0} ms. *Each second*: a new scrape every 1.05 s. *Back to back*: one \
         connection asks again as soon as it is answered; the server repeats a scrape's text for a second. {quiet}\n\n\
         | load | scrapes | p50 ms | p99 ms | of each period | change of p99, ms | ratio | p99.9 ms | calls/s | server's CPUs | not carried |\n\
         |---|---|---:|---:|---|---:|---:|---:|---:|---:|---:|\n{rows}\n\
         Cost of a scrape without calls. Destinations have histograms once calls were sent to them.\n\n\
         | after | CPU µs of workers | of other threads | text, bytes | answered in, ms | at most | CPU µs if the text is repeated |\n\
         |---|---:|---:|---:|---:|---:|---:|\n"
    );
    for (callees, Cost { processor, repeated, scrapes }) in costs {
        let _ = writeln!(
            text,
            "| calls to {} | {:.0} | {:.0} | {} | {:.2} | {:.2} | {:.0} |",
            name(*callees),
            micros(processor.workers),
            micros(processor.others),
            scrapes.bytes,
            scrapes.time.as_secs_f64() * 1e3 / scrapes.count.max(1) as f64,
            scrapes.longest.as_secs_f64() * 1e3,
            micros(repeated.workers + repeated.others),
        );
    }
    text
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Returns a percentile of all times of the periods, in milliseconds.
fn percentile(periods: &[&Period], share: f64) -> f64 {
    let mut times: Vec<(f64, u64)> = periods.iter().flat_map(|period| period.times.iter().copied()).collect();
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all: u64 = times.iter().map(|(_, count)| count).sum();
    let rank = (share * all as f64).ceil() as u64;
    let mut seen = 0;
    let found = times.iter().find(|(_, count)| {
        seen += count;
        seen >= rank
    });
    found.map_or(f64::NAN, |(us, _)| us / 1e3)
}
