//! What memory a server gives back after a peak of load.
//!
//! Each load has a server of its own with huge pages as the machine has them, and another one without. They get their
//! load one after the other, and rest at the same time: a server at rest needs no processor.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::connection_load::memory;
use crate::mutate::Mutator;
use crate::server::Server;

/// Times after the end of the load at which memory is read.
const RESTS: [Duration; 4] =
    [Duration::ZERO, Duration::from_secs(10), Duration::from_secs(60), Duration::from_secs(160)];
/// Number of odd messages.
const ODD: u32 = 9_000;
/// Time between two odd messages.
const ODD_EVERY: Duration = Duration::from_micros(200);
/// Odd messages after which another connection is opened: the server closes one with a message that it cannot delimit.
const ODD_A_CONNECTION: u32 = 10;
/// Calls, and registrations, that are in progress at any time at saturation.
const AT_ONCE: &str = "64";
/// Number of phones that register at saturation.
const PHONES: &str = "20000";
/// Time between two readings during a load.
const READ_EVERY: Duration = Duration::from_millis(100);
/// Port of the first server; each has another one.
const PORT: u16 = 5_070;
/// Threads of each server that process messages.
const WORKERS: u64 = 2;
/// Bytes that may stay after a peak for each worker: pages of which a few bytes are in use, and queues that were used. With
/// huge pages, such pages and the receive buffers are larger.
const LEFT_A_WORKER: u64 = 10 << 20;
const LEFT_A_WORKER_HUGE: u64 = 20 << 20;
/// Bytes of a registered contact, at most.
const A_CONTACT: u64 = 400;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Seconds of saturation.
    seconds: u64,
    /// Number of [`RESTS`].
    rests: usize,
}

impl Extent {
    /// Everything.
    pub const FULL: Self = Self { seconds: 20, rests: RESTS.len() };
    /// A smoke test.
    pub const QUICK: Self = Self { seconds: 2, rests: 2 };
}

/// A peak of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peak {
    /// Damaged messages, every other one over TCP.
    Odd,
    /// As many calls and registrations as are carried.
    Saturation,
}

/// A server under a load, and its private bytes.
#[derive(Debug)]
struct Subject {
    peak: Peak,
    has_huge_pages: bool,
    server: Server,
    address: SocketAddr,
    start: u64,
    most: u64,
}

/// Private bytes of a server before its load, at most during it, and after each rest.
#[derive(Clone, Debug)]
struct Readings {
    peak: Peak,
    has_huge_pages: bool,
    start: u64,
    most: u64,
    rests: Vec<u64>,
    /// Number of contacts that are registered in the end.
    contacts: u64,
}

impl Readings {
    /// Bytes that the server may have after the last rest.
    const fn bound(&self) -> u64 {
        let left = if self.has_huge_pages { LEFT_A_WORKER_HUGE } else { LEFT_A_WORKER };
        self.start + WORKERS * left + self.contacts * A_CONTACT
    }
}

/// Measures memory. Returns the text of the report.
///
/// # Errors
/// If a load fails.
pub fn measure(extent: Extent) -> io::Result<String> {
    let mut resting = Vec::new();
    for peak in [Peak::Odd, Peak::Saturation] {
        for has_huge_pages in [true, false] {
            let number = u16::try_from(resting.len()).expect("few");
            let mut subject = Subject::start(peak, has_huge_pages, PORT + number);
            subject.load(extent)?;
            let ended = Instant::now();
            resting.push(thread::spawn(move || subject.rest(ended, extent.rests)));
        }
    }
    let readings: Vec<_> = resting.into_iter().map(|thread| thread.join().expect("it only reads")).collect();
    Ok(report(extent, &readings))
}

impl Subject {
    fn start(peak: Peak, has_huge_pages: bool, port: u16) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let config = format!(
            "[server]\nlisten = [\"udp:{address}\", \"tcp:{address}\"]\ndomains = [\"{}\"]\nworkers = {WORKERS}\n\
             [store]\nurl = \"memory:\"\n[auth]\nrequire = []\n[admin]\nlisten = \"off\"\n[log]\nlevel = \"error\"\n",
            address.ip()
        );
        let variables: &[_] = if has_huge_pages { &[] } else { &[("MIMALLOC_ALLOW_THP", "0")] };
        let server = Server::start_with(&format!("memory-{port}"), &config, address, variables);
        let start = memory(server.pid());
        Self { peak, has_huge_pages, server, address, start, most: start }
    }

    fn load(&mut self, extent: Extent) -> io::Result<()> {
        match self.peak {
            Peak::Odd => self.send_odd_messages(),
            Peak::Saturation => {
                let time = format!("{}s", extent.seconds);
                let calls = self.generator(&["--users", "1000", "--time", &time])?;
                let phones = self.generator(&["--workload", "registration", "--users", PHONES, "--time", &time])?;
                self.watch([calls, phones])
            }
        }
    }

    fn read(&mut self) -> u64 {
        let now = memory(self.server.pid());
        self.most = self.most.max(now);
        now
    }

    fn send_odd_messages(&mut self) -> io::Result<()> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(self.address)?;
        socket.set_nonblocking(true)?;
        let mut connection = TcpStream::connect(self.address)?;
        let (mut mutator, mut bytes, began) = (Mutator::new(1), Vec::new(), Instant::now());
        for number in 0..ODD {
            mutator.next_message(&mut bytes);
            if number.is_multiple_of(2) {
                // A full or refused one is an odd message less.
                let _ = socket.send(&bytes);
            } else {
                if number % (2 * ODD_A_CONNECTION) == 1 {
                    connection = TcpStream::connect(self.address)?;
                }
                // The server may have closed it.
                let _ = connection.write_all(&bytes);
            }
            while socket.recv(&mut [0; 2048]).is_ok() {}
            let due = began + ODD_EVERY * number;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if number.is_multiple_of(500) {
                self.read();
            }
        }
        self.read();
        Ok(())
    }

    fn generator(&self, arguments: &[&str]) -> io::Result<Child> {
        let mut command = Command::new(self.server.binary());
        command.args(["load", "run", "--to", &format!("udp:{}", self.address), "--quiet", "--no-watch"]);
        command.args(["--outstanding", AT_ONCE]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    }

    /// Reads memory until the load has ended.
    fn watch(&mut self, mut generators: [Child; 2]) -> io::Result<()> {
        for generator in &mut generators {
            // Its exit code only says whether it was the bottleneck, which it may be.
            while generator.try_wait()?.is_none() {
                self.read();
                thread::sleep(READ_EVERY);
            }
        }
        Ok(())
    }

    /// Reads memory after each rest. The server ends then.
    fn rest(mut self, ended: Instant, rests: usize) -> Readings {
        let after = |rest: Duration| {
            thread::sleep((ended + rest).saturating_duration_since(Instant::now()));
            self.read()
        };
        let rests = RESTS.into_iter().take(rests).map(after).collect();
        let status = self.server.status();
        let contacts = status.lines().find_map(|line| line.strip_prefix("registrations"));
        let contacts = contacts.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0);
        let Self { peak, has_huge_pages, start, most, .. } = self;
        let readings = Readings { peak, has_huge_pages, start, most, rests, contacts };
        eprintln!("{readings:?}");
        readings
    }
}

fn report(extent: Extent, readings: &[Readings]) -> String {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let rests = &RESTS[..extent.rests];
    let columns: String = rests.iter().map(|rest| format!(" after {} s |", rest.as_secs())).collect();
    let mut text = format!(
        "Private memory (`RssAnon`) in MiB of a server with {WORKERS} workers. *Odd messages*: {ODD} damaged messages in {:.1} s, every other one \
         over TCP. *Saturation*: calls and REGISTERs of {PHONES} phones, {AT_ONCE} of each at any time, for {} s; the registrations stay. Huge \
         pages: as the machine has them, or off (`MIMALLOC_ALLOW_THP=0`). The bound is for the last column: what there was before, {} MiB \
         for each worker ({} MiB with huge pages) and {A_CONTACT} bytes for each registered contact.\n\n\
         | load | huge pages | before | at most |{columns} contacts | bound |\n|---|---|{}\n",
        (ODD_EVERY * ODD).as_secs_f64(),
        extent.seconds,
        LEFT_A_WORKER >> 20,
        LEFT_A_WORKER_HUGE >> 20,
        "---:|".repeat(4 + rests.len()),
    );
    for subject in readings {
        let load = match subject.peak {
            Peak::Odd => "odd messages",
            Peak::Saturation => "saturation",
        };
        let pages = if subject.has_huge_pages { "as they are" } else { "off" };
        let all = [subject.start, subject.most].into_iter().chain(subject.rests.iter().copied());
        let memory: String = all.map(|bytes| format!(" {:.1} |", mib(bytes))).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {load} | {pages} |{memory} {} | {:.1} |", subject.contacts, mib(subject.bound()));
    }
    text
}
