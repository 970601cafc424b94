//! The echo server with each connection lifetime, at the same rates.

use std::fmt::Write as _;
use std::io;

use super::phones::Task;
use super::role::Process;
use super::{ConnectionLifetime, address_for, server_address};
use crate::register::process::Usage;

/// Number of connections used in rotation if they are opened in advance.
const POOL: usize = 10_000;

/// Returns a table of all lifetimes at each rate.
///
/// # Errors
/// If a process does not start.
pub fn measure(rates: &[u32], seconds: u32) -> io::Result<String> {
    let mut text = String::from(
        "\n| requests/s | connections | p50 µs | p99 µs | of it the handshake, p50 µs | server CPU µs each | switches each | unanswered | \
         rate kept |\n|---:|---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for rate in rates {
        for (number, lifetime) in ConnectionLifetime::ALL.into_iter().enumerate() {
            let echo = Process::echo_server(true)?;
            let requests = (rate * seconds) as usize;
            // If each request leaves a connection open, as many as one process may hold.
            let requests = if lifetime == ConnectionLifetime::PersistentWithOpen {
                requests.min(super::CONNECTIONS_EACH)
            } else {
                requests
            };
            // The source address of a UDP response is chosen by the system.
            let server = if lifetime == ConnectionLifetime::Udp { server_address() } else { address_for(100 + number) };
            let task = Task { server, lifetime, rate: *rate, requests, connections: POOL };
            let mut phones = Process::phones(&task)?;
            let used = Usage::of(&[echo.pid()]);
            let outcome = phones.run()?;
            let used = Usage::of(&[echo.pid()]).since(&used);
            eprintln!("  {rate}/s, {lifetime}: {outcome}");
            let time = |part: &str, which: &str| outcome[part][which].as_f64().unwrap_or(f64::NAN);
            let handshake = match lifetime {
                ConnectionLifetime::Transaction | ConnectionLifetime::PersistentWithOpen => {
                    format!("{:.0}", time("handshake", "p50_us"))
                }
                ConnectionLifetime::Udp | ConnectionLifetime::Persistent => "–".to_owned(),
            };
            let _ = writeln!(
                text,
                "| {rate} | {lifetime} | {:.0} | {:.0} | {handshake} | {:.1} | {:.2} | {} | {:.0} |",
                time("total", "p50_us"),
                time("total", "p99_us"),
                used.processor.as_secs_f64() * 1e6 / requests as f64,
                used.switches as f64 / requests as f64,
                outcome["lost"],
                outcome["rate"].as_f64().unwrap_or(f64::NAN),
            );
        }
    }
    Ok(text)
}
