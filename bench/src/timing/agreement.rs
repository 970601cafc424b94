//! The probe's figures of the server beside the server's own, of the same packets.

use std::path::Path;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strowger_timing::{Part, TimingReport};

use super::figures::{part, without_histograms};
use super::probe::{Place, ProbeRequest, Probed, RunningProbe, own_report};
use super::program::start_server;
use crate::models::load::{Load, Pace, Spacing, prepare};
use crate::models::server::{Kind, Server};

/// Time of a run that is left for starting both measurements.
const MARGIN: Duration = Duration::from_millis(1_800);
/// Usual time in which the probe attaches.
const ATTACHED: Duration = Duration::from_millis(400);
/// Parts that both measure.
pub const PARTS: [Part; 6] =
    [Part::Receive, Part::ReceiveBatch, Part::Application, Part::SendBatch, Part::Send, Part::SendCall];

/// Both reports of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// Load as a share of the saturation rate.
    pub load: f64,
    /// Calls per second.
    pub calls_per_s: f64,
    /// The server's own report.
    pub own: TimingReport,
    /// The probe's report.
    pub probed: TimingReport,
}

/// A part as measured by both, µs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// The part.
    pub part: Part,
    /// Mean and median by the server.
    pub own: (f64, f64),
    /// Mean and median by the probe.
    pub probed: (f64, f64),
}

impl Compared {
    /// Returns the error of the probe's mean, µs.
    #[must_use]
    pub fn error_us(&self) -> f64 {
        self.probed.0 - self.own.0
    }

    /// Returns the error of the probe's mean, percent.
    #[must_use]
    pub fn error_percent(&self) -> f64 {
        100.0 * self.error_us() / self.own.0
    }

    /// Returns whether the probe is within 5 % or 1 µs.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.error_us().abs() <= 1.0 || self.error_percent().abs() <= 5.0
    }
}

impl Agreement {
    /// Returns the parts that both measured, over all message types.
    #[must_use]
    pub fn compared(&self) -> Vec<Compared> {
        let both = PARTS.into_iter().filter_map(|of| {
            let (own, probed) = (part(&self.own.all, of)?, part(&self.probed.all, of)?);
            let pair = |times: &strowger_timing::Distribution| (times.mean_us, times.p50_us);
            Some(Compared { part: of, own: pair(own), probed: pair(probed) })
        });
        both.collect()
    }
}

/// Measures the server at a load.
///
/// # Errors
/// If the server, the generator or the probe fails.
pub fn measure(strowger: &Path, (share, rate): (f64, f64), time: Duration, seed: u64) -> Result<Agreement, String> {
    let server = start_server(Kind::Strowger, strowger)?;
    let warm_up = Duration::from_secs(1);
    let load = Load { pace: Pace::Rate(rate.round()), course: Spacing::Spread, warm_up, time, seed };
    let run = prepare(&load)?;
    let (outcome, both) = thread::scope(|scope| {
        let server = &server;
        let measured = scope.spawn(move || {
            thread::sleep(warm_up);
            both_reports(strowger, server, time.saturating_sub(MARGIN))
        });
        (run.go().map_err(|error| error.to_string()), measured.join())
    });
    outcome?;
    let (own, probed) = both.map_err(|_| "the measuring thread panicked")??;
    Ok(Agreement {
        load: share,
        calls_per_s: rate,
        own: without_histograms(own),
        probed: without_histograms(probed.report),
    })
}

fn both_reports(strowger: &Path, server: &Server, time: Duration) -> Result<(TimingReport, Probed), String> {
    let folder = server.folder().ok_or("the server has no configuration")?;
    let request = ProbeRequest { strowger, pid: server.pid(), time, place: Place::WhenIdle, log: None };
    let probe = RunningProbe::start(request)?;
    thread::sleep(ATTACHED);
    let own = own_report(strowger, folder, time)?;
    Ok((own, probe.finish(time)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_percent_or_a_microsecond() {
        let compared = |own, probed| Compared { part: Part::Send, own: (own, own), probed: (probed, probed) };
        assert!(compared(2.0, 2.9).holds() && compared(100.0, 104.9).holds());
        assert!(!compared(2.0, 3.1).holds() && !compared(100.0, 94.9).holds());
    }
}
