//! An increasing number of connections to the echo server: whether opening a connection and sending a request takes
//! longer the more connections there are.

use std::fmt::Write as _;
use std::io;

use serde_json::Value;

use super::kernel::Kernel;
use super::phones::Task;
use super::role::Process;
use super::{CONNECTIONS_EACH, ConnectionLifetime, address_for};
use crate::register::process::Usage;

/// Results after a number of further connections.
#[derive(Debug)]
struct Step {
    connections: usize,
    outcome: Value,
    processor_us: f64,
    server_memory: u64,
    kernel: Kernel,
}

/// Results of one rate.
#[derive(Debug)]
pub struct Growth {
    rate: u32,
    before: Kernel,
    steps: Vec<Step>,
    /// Reason for an early end before all connections were open.
    end: Option<String>,
}

impl Growth {
    /// Opens `connections` at `rate` per second, sends one request over each and leaves them open.
    ///
    /// # Errors
    /// If the servers do not start.
    pub fn measure(rate: u32, connections: usize) -> io::Result<Self> {
        let servers = connections.div_ceil(CONNECTIONS_EACH);
        let servers: io::Result<Vec<Process>> = (0..servers).map(|_| Process::echo_server(false)).collect();
        let servers = servers?;
        let pids: Vec<u32> = servers.iter().map(Process::pid).collect();
        let mut growth = Self { rate, before: Kernel::read(), steps: Vec::new(), end: None };
        let memory_before = Usage::of(&pids).memory;
        let mut clients = Vec::new();
        let mut open = 0;
        while open < connections {
            let requests = CONNECTIONS_EACH.min(connections - open);
            let (server, lifetime) = (address_for(clients.len()), ConnectionLifetime::PersistentWithOpen);
            let task = Task { server, lifetime, rate, requests, connections: requests };
            let used = Usage::of(&pids);
            let outcome = Process::phones(&task).and_then(|mut phones| {
                let outcome = phones.run()?;
                clients.push(phones);
                Ok(outcome)
            });
            let outcome = match outcome {
                Ok(outcome) => outcome,
                Err(error) => {
                    growth.end = Some(error.to_string());
                    break;
                }
            };
            open += requests;
            eprintln!("  {rate}/s, {open} connections: {outcome}");
            let used = Usage::of(&pids).since(&used);
            growth.steps.push(Step {
                connections: open,
                outcome,
                processor_us: used.processor.as_secs_f64() * 1e6 / requests as f64,
                server_memory: used.memory.saturating_sub(memory_before),
                kernel: Kernel::read(),
            });
        }
        Ok(growth)
    }

    /// Returns the results as a table.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut text = format!(
            "\n### {} a second\n\n| connections | handshake p50 µs | p99 µs | send to answer p50 µs | p99 µs | server CPU µs each | \
             unanswered | rate kept | slabs a connection, bytes | of these TCP sockets | TCP buffers, MiB | the server's own bytes |\n\
             |---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
            self.rate
        );
        for step in &self.steps {
            let time = |part: &str, which: &str| step.outcome[part][which].as_f64().unwrap_or(f64::NAN);
            let (slab, tcp) = step.kernel.each_since(&self.before, step.connections);
            let _ = writeln!(
                text,
                "| {} | {:.0} | {:.0} | {:.0} | {:.0} | {:.1} | {} | {:.0} | {slab} | {tcp} | {:.1} | {} |",
                step.connections,
                time("handshake", "p50_us"),
                time("handshake", "p99_us"),
                time("answer", "p50_us"),
                time("answer", "p99_us"),
                step.processor_us,
                step.outcome["lost"],
                step.outcome["rate"].as_f64().unwrap_or(f64::NAN),
                step.kernel.buffers as f64 / f64::from(1 << 20),
                step.server_memory / step.connections.max(1) as u64,
            );
        }
        if let Some(end) = &self.end {
            let _ = writeln!(text, "\nIt ended there: {end}.");
        }
        text
    }
}
