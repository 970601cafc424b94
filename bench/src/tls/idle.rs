//! Memory of idle connections.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::contender::Running;
use super::generator::{Load, number};
use crate::tcp::kernel::Kernel;

/// Connections that a server has before, so that its first allocations are not counted.
const BEFORE: usize = 200;
/// Time for the last registrations and their transactions to end.
const SETTLE: Duration = Duration::from_secs(5);
/// Maximum time to open the connections.
const PATIENCE: Duration = Duration::from_secs(40);

/// Memory of a connection, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// Number of connections.
    pub connections: usize,
    /// Of the server's processes.
    pub user: f64,
    /// Of the kernel, for the server's end.
    pub kernel: f64,
    /// Of all handshakes, the share that continued a session.
    pub resumed: f64,
}

/// Opens connections, registers over each, and compares memory with before.
///
/// # Errors
/// If the generator fails.
pub fn measure(load: &Load<'_>, server: &Running, connections: usize) -> io::Result<Idle> {
    load.run(server.tls, &arguments(BEFORE, Duration::from_secs(2)))?;
    thread::sleep(SETTLE);
    let (memory, kernel) = (server.memory(), Kernel::read());
    let opening = Duration::from_secs(1) + Duration::from_millis(connections as u64);
    // It keeps its connections until the last session ends, which this one never does before.
    let running = load.start(server.tls, &arguments(connections, opening))?;
    let deadline = Instant::now() + PATIENCE;
    while Kernel::read().sockets < kernel.sockets + 2 * connections as u64 {
        if Instant::now() > deadline {
            return Err(io::Error::other("the connections were not opened in time"));
        }
        thread::sleep(Duration::from_millis(200));
    }
    thread::sleep(opening);
    let (with, after) = (server.memory(), Kernel::read());
    let report = running.finish()?;
    let each = |more: u64, less: u64| (more as f64 - less as f64) / connections as f64;
    Ok(Idle {
        connections,
        user: each(with, memory),
        // Both ends are on this machine.
        kernel: (each(after.slab, kernel.slab) + each(after.buffers, kernel.buffers)) / 2.0,
        resumed: number(&report, "handshakes.resumed_share"),
    })
}

/// Each connection carries about two registrations of a thousand users, then a slow rest during which they are idle.
fn arguments(connections: usize, opening: Duration) -> String {
    format!(
        "--workload registration --users 1000 --connections {connections} --arrivals ramp(from={},to=1,over={}s,poisson) --time {}s",
        2_000,
        opening.as_secs().max(2),
        2 * opening.as_secs() + 8
    )
}
