//! Capacity of a server's socket in packets. It is measured, because the kernel memory of a packet depends on its
//! length.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::load::{Load, prepare};
use super::server::Server;
use crate::register::process::signal;

/// Time to fill the queue at the offered rates.
const FILLING: Duration = Duration::from_millis(800);
/// Time without a change of the kernel's counter after which everything counts as read.
const STILL: Duration = Duration::from_millis(200);
/// Maximum time of the measurement.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the number of packets in the full socket, for the packets of calls. Suspends the server under `load`,
/// which exceeds its capacity, so that its queue fills. Then the generator stops, the server resumes, and the kernel
/// counts the packets read.
///
/// # Errors
/// If the generator cannot run, or the kernel does not count.
pub fn room(server: &Server, load: &Load) -> Result<u64, String> {
    let run = prepare(load)?;
    let (stopper, processes) = (run.stopper(), server.processes());
    let all = |what: Signal| processes.iter().for_each(|pid| signal(*pid, what));
    let stop_at = load.warm_up + load.time / 2;
    let outcome = thread::scope(|scope| {
        let going = scope.spawn(move || run.go().map(|_| ()));
        thread::sleep(stop_at);
        all(Signal::STOP);
        thread::sleep(FILLING);
        stopper.stop();
        stopper.stop();
        going.join()
    });
    let before = received();
    all(Signal::CONT);
    outcome.map_err(|_| "the generator panicked")?.map_err(|error| error.to_string())?;
    let (mut last, begun, mut since) = (received()?, Instant::now(), Instant::now());
    while since.elapsed() < STILL {
        if begun.elapsed() > PATIENCE {
            return Err("the server still receives packets from another sender".to_owned());
        }
        thread::sleep(Duration::from_millis(10));
        let now = received()?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(last - before?)
}

/// Returns the number of datagrams read from sockets in this namespace so far.
fn received() -> Result<u64, String> {
    let text = fs::read_to_string("/proc/net/snmp").map_err(|error| format!("/proc/net/snmp: {error}"))?;
    counter(&text, "InDatagrams").ok_or_else(|| "/proc/net/snmp has no InDatagrams".to_owned())
}

/// Returns a UDP counter: names are in one line, values in the next.
fn counter(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|other| other == name)?;
    values.split_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counters_are_read_by_name() {
        let text = "Tcp: A B\nTcp: 1 2\nUdp: InDatagrams NoPorts\nUdp: 4711 3\nUdpLite: InDatagrams\nUdpLite: 9\n";
        assert_eq!(counter(text, "InDatagrams"), Some(4_711));
        assert_eq!(counter(text, "NoPorts"), Some(3));
        assert_eq!(counter(text, "Other"), None);
        assert!(received().is_ok());
    }
}
