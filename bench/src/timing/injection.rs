//! Known delays of the echo program, and what the probe finds of them.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use strowger_timing::{Part, TimingReport};

use super::SERVER_CORE;
use super::echo::{EchoArguments, EchoProcess, Stage};
use super::figures::{mean_us, row};
use super::link::{APART, Link};
use super::packets::{LENGTH, Returned, Sender};
use super::probe::{ATTACH, Place, ProbeRequest, RunningProbe};
use super::program::ECHO;

/// Delays, µs; the first is the smallest at which the other parts of the way do not matter.
pub const DELAYS_US: [u64; 3] = [50, 200, 1_000];
/// Time between two packets: more than the longest delay.
const EVERY: Duration = Duration::from_millis(2);
/// Longest time of a run.
const AT_MOST: Duration = Duration::from_secs(60);
/// Beginnings of the two packets of a pair, of which the second waits for the device. The probe tells them apart.
const FIRST: &[u8] = b"OPTIONS sip:echo SIP/2.0\r\n";
const SECOND: &[u8] = b"INFO sip:echo SIP/2.0\r\n";
const SECOND_ROW: &str = "INFO";

/// A delay, and what was found of it. All times are means over the same packets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Injection {
    /// Where the delay is.
    pub stage: Stage,
    /// The delay, µs.
    pub injected_us: f64,
    /// The time by the stamps of the echo program and of the kernel, µs. It has the delay and the rest of the part.
    pub stamped_us: f64,
    /// The time by the probe, µs.
    pub probed_us: f64,
    /// Number of packets by the stamps and by the probe.
    pub packets: (u64, u64),
}

impl Injection {
    /// Returns the error of the probe, µs.
    #[must_use]
    pub fn error_us(&self) -> f64 {
        self.probed_us - self.stamped_us
    }

    /// Returns the error of the probe, percent of the stamped time.
    #[must_use]
    pub fn error_percent(&self) -> f64 {
        100.0 * self.error_us() / self.stamped_us
    }
}

/// Measures a delay with this many packets.
///
/// # Errors
/// If a program fails, or a part was not measured.
pub fn measure(strowger: &Path, stage: Stage, delay_us: u64, packets: u64) -> Result<Injection, String> {
    let core = SERVER_CORE.to_string();
    let pinned = ["taskset", "-c", &core];
    let arguments = EchoArguments { address: ECHO, stage: Some(stage), micros: delay_us };
    if stage == Stage::Send {
        let echo = EchoProcess::start(&[&APART[..], &pinned].concat(), everywhere(arguments))?;
        let _link = Link::to(echo.pid(), LENGTH, delay_us)?;
        let sender = Sender::open(Link::near(), Link::far(ECHO.port()));
        let run = Run { strowger, echo, sender: sender.map_err(|error| error.to_string())?, stage, delay_us };
        return run.pairs(packets);
    }
    let echo = EchoProcess::start(&pinned, arguments)?;
    let sender = Sender::open(ECHO, ECHO).map_err(|error| error.to_string())?;
    Run { strowger, echo, sender, stage, delay_us }.singles(packets)
}

/// Returns the arguments of a program whose address does not exist yet.
fn everywhere(arguments: EchoArguments) -> EchoArguments {
    let any = std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
    EchoArguments { address: std::net::SocketAddr::new(any, arguments.address.port()), ..arguments }
}

struct Run<'a> {
    strowger: &'a Path,
    echo: EchoProcess,
    sender: Sender,
    stage: Stage,
    delay_us: u64,
}

impl Run<'_> {
    fn probe(&self) -> Result<RunningProbe, String> {
        let request = ProbeRequest {
            strowger: self.strowger,
            pid: self.echo.pid(),
            time: AT_MOST,
            place: Place::WithGenerator,
            log: None,
        };
        let probe = RunningProbe::start(request)?;
        thread::sleep(ATTACH);
        Ok(probe)
    }

    /// Sends packets one by one.
    #[expect(clippy::cast_precision_loss, reason = "times of seconds")]
    fn singles(mut self, packets: u64) -> Result<Injection, String> {
        let probe = self.probe()?;
        self.paced(packets, |sender| {
            sender.send(b"echo", LENGTH);
            sender.wait_for(1, b"")
        })?;
        let report = probe.stop()?.report;
        self.sender.end();
        let stamps = self.echo.stamps()?;
        let each = |sum: u64| sum as f64 / stamps.packets.max(1) as f64 / 1e3;
        let mean = |part: Part| mean_us(&report.all, part).ok_or_else(|| missing(part, &report));
        let (stamped_us, probed_us) = match self.stage {
            // The kernel's stamp is of the arrival at the device.
            Stage::Receive => (each(stamps.queued_ns), mean(Part::Stack)? + mean(Part::SocketQueue)?),
            Stage::Application | Stage::Send => (each(stamps.application_ns), mean(Part::Application)?),
        };
        Ok(self.result(stamped_us, probed_us, (stamps.packets, report.all.packets)))
    }

    /// Sends pairs of packets, of which the second waits until the device may send it.
    #[expect(clippy::cast_precision_loss, reason = "times of seconds")]
    fn pairs(mut self, packets: u64) -> Result<Injection, String> {
        // The devices learn each other's addresses.
        self.paced(10, pair)?;
        let probe = self.probe()?;
        let returned = self.paced(packets, pair)?;
        let report = probe.stop()?.report;
        let second = row(&report, SECOND_ROW).ok_or("the probe has not seen the second packets")?;
        let probed_us = mean_us(second, Part::Send).ok_or_else(|| missing(Part::Send, &report))?;
        let stamped_us = returned.sent_ns as f64 / returned.packets.max(1) as f64 / 1e3;
        Ok(self.result(stamped_us, probed_us, (returned.packets, second.packets)))
    }

    fn paced(
        &mut self,
        packets: u64,
        mut send: impl FnMut(&mut Sender) -> std::io::Result<Returned>,
    ) -> Result<Returned, String> {
        let (mut all, mut due) = (Returned::default(), Instant::now());
        for _ in 0..packets {
            while Instant::now() < due {}
            due += EVERY;
            let returned = send(&mut self.sender).map_err(|error| error.to_string())?;
            all.packets += returned.packets;
            all.sent_ns += returned.sent_ns;
        }
        Ok(all)
    }

    #[expect(clippy::cast_precision_loss, reason = "a time of milliseconds")]
    fn result(&self, stamped_us: f64, probed_us: f64, packets: (u64, u64)) -> Injection {
        Injection { stage: self.stage, injected_us: self.delay_us as f64, stamped_us, probed_us, packets }
    }
}

fn pair(sender: &mut Sender) -> std::io::Result<Returned> {
    sender.send(FIRST, LENGTH);
    sender.send(SECOND, LENGTH);
    sender.wait_for(2, SECOND)
}

fn missing(part: Part, report: &TimingReport) -> String {
    format!("the probe has not measured {}: {}", part.name(), report.notes.join("; "))
}
