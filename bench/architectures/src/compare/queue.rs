//! A thread pool with a queue of limited capacity under increasing load. Measures the dropped packets, for comparison
//! with an M/M/c/K model.

use std::io;
use std::path::Path;
use std::sync::PoisonError;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use strowger_bench::namespace::enter;
use strowger_bench::register::report::replace;
use strowger_bench::server::{circumstances, command_line};

use super::load::{self, Load, RunSize};
use super::scenario::Scenario;
use super::server::{Server, Start, Subject};
use super::tables::number;
use super::{ONE_CORE, PACKAGE, Places};
use crate::shells::Architecture;

/// Number of users. Small, so that their registration adds no load.
const USERS: u32 = 50;
/// Default rates, as shares of the rate at saturation.
const SHARES: [f64; 5] = [0.7, 0.85, 1.0, 1.15, 1.4];

#[derive(Clone, Debug, Args)]
pub(crate) struct QueueArguments {
    /// Numbers of pool threads: the c of M/M/c/K
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4])]
    threads: Vec<usize>,
    /// Capacity of the receive buffer in packets: the K of M/M/c/K
    #[arg(long, value_name = "N", default_value_t = 200)]
    receive_buffer: usize,
    /// Calls per second [default: shares of the rate at saturation, 0.7 to 1.4]
    #[arg(long, value_delimiter = ',')]
    rates: Vec<f64>,
    /// Forward statelessly
    #[arg(long)]
    stateless: bool,
    /// Seconds of each run
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// T1 of the server in milliseconds; long, so that the server does not retransmit either
    #[arg(long, default_value_t = 4_000)]
    t1_ms: u64,
    /// Smoke test: one thread, one rate, a short run, written to standard output only
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    places: Places,
}

/// Packet statistics of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Packets {
    /// Packets per second, including dropped ones.
    offered: f64,
    /// Share of the packets that was dropped.
    dropped: f64,
}

/// Runs the measurement and writes the results.
///
/// # Errors
/// As [`compare`](super::run).
pub(crate) fn run(arguments: &QueueArguments) -> Result<(), String> {
    let _ = enter(false);
    let around = circumstances(&command_line(PACKAGE));
    let binary = arguments.places.binary()?;
    let threads = if arguments.quick { &arguments.threads[..1] } else { &arguments.threads };
    let mut text = format!(
        "## The queue of a thread pool\n\n{around}\nOne core, shared by the c threads. λ is the rate of packets that \
         arrive at the socket, whose receive buffer has room for {} packets of 600 bytes. Lost packets are not retransmitted. \
         The CPU time of a received packet includes sending the packets it causes; ρ is λ times that CPU time.\n\n\
         | c | calls/s | λ, packets/s | CPU µs a packet | ρ | dropped % | calls not carried % |\n|---:|---:|---:|---:|---:|---:|---:|\n",
        arguments.receive_buffer
    );
    for &count in threads {
        for line in of_pool(arguments, &binary, count)? {
            eprintln!("{line}");
            text.push_str(&line);
            text.push('\n');
        }
    }
    println!("{text}");
    if arguments.quick {
        return Ok(());
    }
    let file = arguments.places.output();
    let written = replace(&file, "queue", &text);
    written.map_err(|error: io::Error| format!("{}: {error}", file.display()))
}

/// Returns the table rows of a pool of `count` threads.
fn of_pool(arguments: &QueueArguments, binary: &Path, count: usize) -> Result<Vec<String>, String> {
    let mut rates = arguments.rates.clone();
    if rates.is_empty() {
        let (full, _) = measure(arguments, binary, count, Load::Saturation(64))?;
        rates = SHARES.iter().map(|share| (share * full.rate).round()).collect();
    }
    if arguments.quick {
        rates.truncate(1);
    }
    let mut lines = Vec::new();
    for rate in rates {
        let (figures, packets) = measure(arguments, binary, count, Load::Once(rate))?;
        let each = figures.cores * 1e6 / (packets.offered * (1.0 - packets.dropped));
        lines.push(format!(
            "| {count} | {} | {} | {} | {} | {} | {} |",
            number(rate, 0),
            number(packets.offered, 0),
            number(each, 2),
            number(packets.offered * each / 1e6, 3),
            number(100.0 * packets.dropped, 3),
            number(figures.lost, 2),
        ));
    }
    Ok(lines)
}

fn measure(
    arguments: &QueueArguments,
    binary: &Path,
    count: usize,
    load: Load,
) -> Result<(load::Figures, Packets), String> {
    let scenario = if arguments.stateless { Scenario::Stateless } else { Scenario::Stateful };
    let server = Server::start(&Start {
        subject: Subject::Shell(Architecture::ThreadPool),
        scenario,
        cores: ONE_CORE,
        t1: Duration::from_millis(arguments.t1_ms),
        threads: Some(count),
        room: Some(arguments.receive_buffer),
        binary,
    })?;
    let seconds = if arguments.quick { 3 } else { arguments.seconds };
    let extent = RunSize { users: USERS, warm_up: Duration::from_secs(1), time: Duration::from_secs(seconds) };
    let figures = load::run(binary, &server, scenario, load, extent)?;
    let lines = server.lines.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((figures, packets(&lines)))
}

/// Computes the packet statistics of the seconds under full load from the server's per-second reports.
fn packets(lines: &[String]) -> Packets {
    let read = |line: &String| {
        let said: Value = serde_json::from_str(line).ok()?;
        Some((said["received"].as_f64()?, said["drops"].as_f64()?))
    };
    let totals: Vec<(f64, f64)> = lines.iter().filter_map(read).collect();
    let mut seconds: Vec<(f64, f64)> = Vec::new();
    for pair in totals.windows(2) {
        let [before, after] = pair else { continue };
        seconds.push((after.0 - before.0 + after.1 - before.1, after.1 - before.1));
    }
    let mut busy: Vec<f64> = seconds.iter().map(|(offered, _)| *offered).filter(|offered| *offered > 0.0).collect();
    busy.sort_by(f64::total_cmp);
    let usual = busy.get(busy.len() / 2).copied().unwrap_or(f64::NAN);
    // The first and the last second are incomplete.
    seconds.retain(|(offered, _)| *offered > 0.85 * usual);
    let offered: f64 = seconds.iter().map(|(offered, _)| offered).sum();
    let dropped: f64 = seconds.iter().map(|(_, dropped)| dropped).sum();
    Packets { offered: offered / seconds.len() as f64, dropped: dropped / offered }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_seconds_do_not_count() {
        let totals = [(0, 0), (400, 0), (1_300, 100), (2_200, 200), (3_100, 300), (3_300, 300), (3_300, 300)];
        let lines = totals.map(|(received, drops)| format!("{{\"received\":{received},\"sent\":9,\"drops\":{drops}}}"));
        assert_eq!(packets(&lines), Packets { offered: 1_000.0, dropped: 0.1 });
    }
}
