//! Runs of the generator, each with scrapes or without, and what callers noticed.

use std::io;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use strowger_traffic::output::RunReport;
use tempfile::NamedTempFile;

use super::conditions::{Callees, Load, Scraping, USERS};
use super::scraper::{BackgroundScraper, Scrapes};
use crate::server::Server;

/// Core of the generator and of the scraper; the server has the other one.
pub(crate) const GENERATOR_CORE: &str = "1";
/// Time for calls to begin before they are measured.
const WARM_UP: Duration = Duration::from_secs(2);

/// Domain whose calls go to the targets of a balancer.
pub(crate) const POOL: &str = "pool.invalid";

/// A measured period.
#[derive(Clone, Debug)]
pub(crate) struct Period {
    /// Times from INVITE to the first provisional response but 100: upper ends in microseconds, and numbers.
    pub(crate) times: Vec<(f64, u64)>,
    /// Calls carried per second.
    pub(crate) carried: f64,
    /// Calls that were begun, and not carried.
    pub(crate) missed: u64,
    /// CPUs that the server used.
    pub(crate) busy: f64,
    /// Whether the generator was the limit.
    pub(crate) was_generator: bool,
    /// Scrapes since the phones began to register.
    pub(crate) scrapes: Scrapes,
}

/// Where the server is reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    /// By phones.
    pub(crate) sip: SocketAddr,
    /// By scrapers.
    pub(crate) http: SocketAddr,
}

impl Period {
    /// Measures calls for `seconds`, after all phones that are called have registered. Scrapes go on all the time.
    ///
    /// # Errors
    /// If the generator or a scrape fails.
    pub(crate) fn measure(
        server: &Server,
        at: Addresses,
        (callees, load): (Callees, Load),
        scraping: Scraping,
        seconds: u64,
    ) -> io::Result<Self> {
        let report = NamedTempFile::new()?;
        let scraper = scraping.every().map(|every| BackgroundScraper::start(at.http, every)).transpose()?;
        // Its exit code only says whether it was the bottleneck, as the report does.
        let output = start(server, at, (callees, load), seconds, &report)?.wait_with_output();
        let scrapes = scraper.map_or(Ok(Scrapes::default()), BackgroundScraper::stop)?;
        let output = output?;
        let text = std::fs::read_to_string(report.path())?;
        let report = serde_json::from_str(&text)
            .map_err(|error| io::Error::other(format!("{error}: {}", String::from_utf8_lossy(&output.stderr))))?;
        let report = RunReport::from_json(&report).map_err(|error| io::Error::other(error.to_string()))?;
        Self::of(&report, scrapes)
    }

    fn of(report: &RunReport, scrapes: Scrapes) -> io::Result<Self> {
        let mut rows = report.distributions.iter();
        let times = rows.find(|row| row.method == "INVITE" && row.answer == "1xx").map(|row| row.us.clone());
        let times = times.ok_or_else(|| io::Error::other("no INVITE was answered by a provisional response"))?;
        let server = report.server.as_ref().ok_or_else(|| io::Error::other("the server's processes were not found"))?;
        Ok(Self {
            times,
            carried: report.carried_per_s,
            missed: report.sent - report.carried,
            busy: server.processors,
            was_generator: report.generator.was_bottleneck,
            scrapes,
        })
    }
}

fn start(
    server: &Server,
    at: Addresses,
    (callees, load): (Callees, Load),
    seconds: u64,
    report: &NamedTempFile,
) -> io::Result<Child> {
    let mut command = Command::new("taskset");
    command.args(["-c", GENERATOR_CORE]).arg(server.binary()).args(["load", "run", "--quiet", "--seed", "1"]);
    command.args(["--to", &format!("udp:{}", at.sip), "--pid", &server.pid().to_string()]);
    match callees {
        Callees::Phones => command.args(["--users", &USERS.to_string()]),
        Callees::Targets => command.args(["--users", "1000", "--callee", "remote", "--domain", POOL]),
    };
    command.args(["--warm-up", &format!("{}s", WARM_UP.as_secs())]);
    command.args(["--time", &format!("{seconds}s"), "--drain", "10s"]);
    match load {
        Load::Rate(rate) => command.args(["--rate", &format!("{rate:.0}")]),
        Load::Closed(calls) => command.args(["--outstanding", &calls.to_string()]),
    };
    command.arg("--json").arg(report.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()
}
