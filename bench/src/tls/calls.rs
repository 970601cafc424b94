//! Handshakes and calls a second, and what other callers notice of handshakes.

use std::io;
use std::thread;
use std::time::Duration;

use super::contender::Running;
use super::generator::{Load, number, time};

/// Share of sessions that must be carried; otherwise the cost is that of failures.
const MIN_CARRIED: f64 = 0.999;

/// What one core carries.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Measured sessions per second, with the generator or the server as the limit.
    pub carried: f64,
    /// CPUs of the server in use meanwhile, at most 1.
    pub busy: f64,
    /// CPU time of the server for each session, in microseconds.
    pub cpu_us: f64,
    /// Share of handshakes that continued a session, in percent.
    pub resumed: f64,
    /// Sessions that were not carried.
    pub missed: f64,
}

impl Capacity {
    /// Returns the sessions per second that fill a core.
    #[must_use]
    pub fn per_core(&self) -> f64 {
        1e6 / self.cpu_us
    }
}

/// Measures a closed loop.
///
/// # Errors
/// If the generator fails.
pub fn capacity(load: &Load<'_>, server: &Running, seconds: u64, what: &str) -> io::Result<Capacity> {
    let report = load.run(server.tls, &format!("{what} --warm-up 2s --time {seconds}s"))?;
    let (sent, carried) = (number(&report, "sent"), number(&report, "carried"));
    if carried < MIN_CARRIED * sent {
        return Err(io::Error::other(format!(
            "only {carried} of {sent} sessions were carried: {}",
            report["failures"]
        )));
    }
    Ok(Capacity {
        carried: number(&report, "carried_per_s"),
        busy: number(&report, "server.processors"),
        cpu_us: number(&report, "server.cpu_us_per_call"),
        resumed: 100.0 * number(&report, "handshakes.resumed_share"),
        missed: sent - carried,
    })
}

/// Times of other callers, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct OtherCallers {
    /// Median from INVITE to 200.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Calls that were not carried.
    pub missed: f64,
    /// Handshakes per second meanwhile.
    pub handshakes: f64,
}

/// Measures calls over open connections beside full handshakes at this rate.
///
/// # Errors
/// If the generator fails.
pub fn beside_handshakes(load: &Load<'_>, server: &Running, seconds: u64, rate: u32) -> io::Result<OtherCallers> {
    let calls = format!("--workload proxy-200 --users 100 --connections 50 --rate 200 --warm-up 3s --time {seconds}s");
    let callers = load.start(server.tls, &calls)?;
    let handshakes = match rate {
        0 => None,
        rate => {
            // The callers register first.
            thread::sleep(Duration::from_secs(2));
            let seconds = seconds + 2;
            let what =
                format!("--workload handshake --resumption off --user-pattern h% --rate {rate} --time {seconds}s");
            Some(Load { is_nice: true, ..*load }.run(server.tls, &what)?)
        }
    };
    let report = callers.finish()?;
    Ok(OtherCallers {
        p50: time(&report, "INVITE", "p50") / 1e3,
        p99: time(&report, "INVITE", "p99") / 1e3,
        missed: number(&report, "sent") - number(&report, "carried"),
        handshakes: handshakes.map_or(0.0, |report| number(&report, "handshakes.per_s")),
    })
}
