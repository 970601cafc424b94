//! The echo server under each lifetime of connections, at one rate.

use std::fmt::Write as _;
use std::io;

use super::phones::Task;
use super::role::Process;
use super::{ConnectionLifetime, address_for, server_address};
use crate::register::process::Usage;

/// Connections that take turns where they are opened before.
const POOL: usize = 10_000;

/// A table of all lifetimes at each of the rates.
///
/// # Errors
/// When a process does not start.
pub fn measure(rates: &[u32], seconds: u32) -> io::Result<String> {
    let mut text = String::from(
        "\n| requests/s | connections | p50 µs | p99 µs | of it the handshake, p50 µs | server CPU µs each | switches each | unanswered | \
         rate kept |\n|---:|---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for rate in rates {
        for (number, lifetime) in ConnectionLifetime::ALL.into_iter().enumerate() {
            let echo = Process::echo_server(true)?;
            let requests = (rate * seconds) as usize;
            // As many as one process may hold where each request leaves one open.
            let requests = if lifetime == ConnectionLifetime::PersistentWithOpen {
                requests.min(super::CONNECTIONS_EACH)
            } else {
                requests
            };
            // An answer to a datagram comes from the address that the system thinks best.
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
