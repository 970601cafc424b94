//! What scrapes of the metrics cost, and what calls notice of them.
//!
//! The server has one core with one worker, so that a scrape takes its time from calls: with cores to spare it would not.
//! `strowger load` and the scraper have the other core.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::conditions::{Callees, EACH_SECOND, Load, Scraping, TARGETS};
use super::cost::{Cost, ProcessorTime};
use super::periods::{Addresses, GENERATOR_CORE, POOL, Period};
use super::scraper::Scraper;
use super::table;
use crate::quiet::QuietWaiter;
use crate::server::Server;

/// Port of all targets, each of which has an address of its own.
const TARGET_PORT: u16 = 5_070;
/// Core of the server.
const SERVER_CORE: &str = "0";
/// Calls in progress at saturation.
const AT_ONCE: u32 = 64;
/// The share of the highest rate that the server has near saturation. Above it, the generator's core is full: it calls and answers.
const NEAR: f64 = 0.7;
/// Number of scrapes whose cost is measured without calls.
const COSTED: u32 = 10;
/// Maximum time to wait for a quiet machine, in all.
const PATIENCE: Duration = Duration::from_secs(60);

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Periods of each kind.
    pub rounds: u32,
    /// Seconds of each.
    pub seconds: u64,
}

/// Measures scrapes. Returns the text of the report.
///
/// # Errors
/// If the server, the generator or a scrape fails.
pub fn measure(extent: Extent) -> io::Result<String> {
    let ports = [5_060, 8_060].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let at = Addresses { sip: ports[0], http: ports[1] };
    let server = Server::start("scrape", &configuration(at), at.sip);
    pin(&server)?;
    let mut quiet = QuietWaiter::new(&[0, 1], PATIENCE);
    let _targets = Targets::start(&server)?;
    let mut text = String::new();
    let mut costs = Vec::new();
    for callees in [Callees::Phones, Callees::Targets] {
        let mut period = |load, scraping| {
            quiet.wait();
            let period = Period::measure(&server, at, (callees, load), scraping, extent.seconds)?;
            eprintln!("{}", table::line((callees, load), scraping, &period));
            io::Result::Ok(period)
        };
        let highest = period(Load::Closed(AT_ONCE), Scraping::Never)?.carried;
        for load in [Load::Rate(NEAR * highest), Load::Closed(AT_ONCE)] {
            let mut periods = Scraping::ALL.map(|scraping| (scraping, Vec::new()));
            for _ in 0..extent.rounds {
                for (scraping, found) in &mut periods {
                    found.push(period(load, *scraping)?);
                }
            }
            text.push_str(&table::rows((callees, load), &periods));
        }
        costs.push((callees, cost(&server, at.http)?));
    }
    Ok(table::report(&text, &costs, &quiet.told()))
}

/// `strowger load answer` at the address of each target.
#[derive(Debug)]
struct Targets(Child);

impl Targets {
    fn start(server: &Server) -> io::Result<Self> {
        let mut command = Command::new("taskset");
        command.args(["-c", GENERATOR_CORE]).arg(server.binary()).args(["load", "answer", "--quiet", "--no-watch"]);
        Targets::addresses().for_each(|address| {
            command.args(["--listen", &format!("udp:{address}")]);
        });
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(Self)
    }

    /// Returns their addresses, all of this machine.
    fn addresses() -> impl Iterator<Item = SocketAddr> {
        (0..TARGETS).map(|number| {
            let [high, low] = number.to_be_bytes();
            (Ipv4Addr::new(127, 1, high, low), TARGET_PORT).into()
        })
    }
}

impl Drop for Targets {
    fn drop(&mut self) {
        // These fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn configuration(at: Addresses) -> String {
    let targets: Vec<String> = Targets::addresses().map(|address| format!("sip:{address}")).collect();
    format!(
        "[server]\nlisten = [\"udp:{}\"]\ndomains = [\"{}\"]\nworkers = 1\n[store]\nurl = \"memory:\"\n[auth]\nrequire = []\n\
         [admin]\nlisten = \"{}\"\n[log]\nlevel = \"error\"\n[[balancer]]\nname = \"pool\"\npolicy = \"round-robin\"\n\
         targets = {targets:?}\n[[route]]\nmatch = {{ domain = \"{POOL}\" }}\naction = \"proxy\"\nbalance = \"pool\"\n",
        at.sip,
        at.sip.ip(),
        at.http
    )
}

/// Leaves one core to all threads of the server.
fn pin(server: &Server) -> io::Result<()> {
    let mut command = Command::new("taskset");
    command.args(["--all-tasks", "--cpu-list", "--pid", SERVER_CORE, &server.pid().to_string()]);
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr))))
}

/// Measures the cost of scrapes of a server without calls. What the server does between scrapes does not count.
fn cost(server: &Server, http: SocketAddr) -> io::Result<Cost> {
    let mut scraper = Scraper::new(http)?;
    let processor = cost_of_each(server, &mut scraper, EACH_SECOND)?;
    let scrapes = scraper.scrapes();
    // The text that the others repeat.
    scraper.scrape()?;
    let repeated = cost_of_each(server, &mut scraper, Duration::ZERO)?;
    Ok(Cost { processor, repeated, scrapes })
}

/// Returns the processor time of the server while it answers a scrape.
fn cost_of_each(server: &Server, scraper: &mut Scraper, pause: Duration) -> io::Result<ProcessorTime> {
    let mut all = ProcessorTime::default();
    for _ in 0..COSTED {
        thread::sleep(pause);
        let before = ProcessorTime::of(server.pid());
        scraper.scrape()?;
        all = all + (ProcessorTime::of(server.pid()) - before);
    }
    Ok(all.share(COSTED))
}
