//! Cost of TLS beside Kamailio. Writes `bench/TLS.md`.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};
use strowger_bench::namespace::enter;
use strowger_bench::programs::{self, has_kamailio, kamailio_version};
use strowger_bench::register::report::replace;
use strowger_bench::server::circumstances;
use strowger_bench::tls::Certificate;
use strowger_bench::tls::calls::{beside_handshakes, capacity};
use strowger_bench::tls::contender::{Contender, Running};
use strowger_bench::tls::generator::Load;
use strowger_bench::tls::idle;
use tempfile::TempDir;

#[derive(Debug, Parser)]
#[command(about = "What TLS costs, beside Kamailio; a report, not a test")]
struct Arguments {
    /// Number of idle connections.
    #[arg(long, default_value_t = 10_000)]
    connections: usize,
    /// Measures only this part; the others stay in the report.
    #[arg(long, value_enum)]
    part: Option<Part>,
    /// Duration of each measurement in seconds.
    #[arg(long, default_value_t = 12)]
    seconds: u64,
    /// Smoke test: a little of everything; writes nothing.
    #[arg(long)]
    quick: bool,
    /// File for the report, in addition to standard output [default: bench/TLS.md]
    #[arg(long)]
    output: Option<PathBuf>,
}

/// A measurement of capacity: its name and the arguments of the generator.
const CAPACITIES: [(&str, &str); 3] = [
    ("full handshakes", "--workload handshake --resumption off --outstanding 8"),
    ("resumed handshakes", "--workload handshake --outstanding 8"),
    ("calls over open connections", "--workload proxy-200 --users 500 --connections 100 --outstanding 64"),
];
/// Handshakes per second beside other callers.
const BESIDE: u32 = 500;

/// What may be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Idle,
    Capacity,
    Others,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    let _ = enter(false);
    let folder = tempfile::tempdir()?;
    let bench = Benchmark {
        certificate: Certificate::make(),
        binary: programs::existing_strowger(None).map_err(io::Error::other)?,
        folder,
        seconds: if arguments.quick { 3 } else { arguments.seconds },
        connections: if arguments.quick { 500 } else { arguments.connections },
    };
    let about = circumstances("cargo build --release -p strowger && cargo run --release -p strowger-bench --bin tls");
    let about = format!("{about}- {}; OpenSSL {}; TLS 1.3, a P-256 certificate", kamailio_version(), openssl());
    let mut sections = vec![("tls", about)];
    for part in [Part::Idle, Part::Capacity, Part::Others] {
        if arguments.part.is_none_or(|only| only == part) {
            sections.push(match part {
                Part::Idle => ("tls-idle", bench.idle()?),
                Part::Capacity => ("tls-capacity", bench.capacity()?),
                Part::Others => ("tls-others", bench.others()?),
            });
        }
    }
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("TLS.md");
    for (name, text) in sections {
        println!("{text}");
        if !arguments.quick {
            replace(arguments.output.as_ref().unwrap_or(&usual), name, &text)?;
        }
    }
    Ok(())
}

/// What all parts need.
struct Benchmark {
    certificate: Certificate,
    binary: PathBuf,
    folder: TempDir,
    seconds: u64,
    connections: usize,
}

impl Benchmark {
    /// Measures a newly started server.
    fn with<T>(
        &self,
        contender: Contender,
        measure: impl FnOnce(&Load<'_>, &Running) -> io::Result<T>,
    ) -> io::Result<T> {
        let Self { certificate, binary, folder, .. } = self;
        let server = contender.start(binary, folder.path(), certificate)?;
        measure(&Load { binary, certificate, pid: server.pid(), is_nice: false }, &server)
    }

    fn idle(&self) -> io::Result<String> {
        let mut text = String::from(IDLE);
        for contender in contenders() {
            let idle = self.with(contender, |load, server| idle::measure(load, server, self.connections))?;
            eprintln!("{contender}: {idle:?}");
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "| {contender} | {} | {:.1} | {:.1} | {:.1} | {:.0} % |",
                idle.connections,
                idle.user / 1e3,
                idle.kernel / 1e3,
                (idle.user + idle.kernel) / 1e3,
                100.0 * idle.resumed
            );
        }
        Ok(text)
    }

    fn capacity(&self) -> io::Result<String> {
        let mut text = String::from(CAPACITY);
        for (name, what) in CAPACITIES {
            let mut ours = None;
            for contender in contenders() {
                let found = self.with(contender, |load, server| capacity(load, server, self.seconds, what))?;
                eprintln!("{name}, {contender}: {found:?}");
                let ratio = *ours.get_or_insert(found.per_core()) / found.per_core();
                let _ = writeln!(
                    text,
                    "| {name} | {contender} | {:.0} | {:.2} | {:.1} | {:.0} | {} | {:.0} % | {:.0} |",
                    found.carried,
                    found.busy,
                    found.cpu_us,
                    found.per_core(),
                    if contender == Contender::Strowger { String::new() } else { format!("{ratio:.2} ×") },
                    found.resumed,
                    found.missed
                );
            }
        }
        Ok(text)
    }

    fn others(&self) -> io::Result<String> {
        let mut text = String::from(OTHERS);
        for contender in contenders() {
            for rate in [0, BESIDE] {
                let found = self.with(contender, |load, server| beside_handshakes(load, server, self.seconds, rate))?;
                eprintln!("beside {rate} handshakes/s, {contender}: {found:?}");
                let _ = writeln!(
                    text,
                    "| {contender} | {:.0} | {:.2} | {:.2} | {:.0} |",
                    found.handshakes, found.p50, found.p99, found.missed
                );
            }
        }
        Ok(text)
    }
}

fn contenders() -> impl Iterator<Item = Contender> {
    let is_there = |one: &Contender| *one == Contender::Strowger || has_kamailio();
    Contender::ALL.into_iter().filter(is_there)
}

fn openssl() -> String {
    let output = std::process::Command::new("openssl").arg("version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.split_whitespace().nth(1).unwrap_or_default().to_owned()
}

const IDLE: &str = "## Idle connections\n\nEach connection has carried registrations and is idle. Processes: memory of all processes of the server, \
    without files (`Pss_Anon`, `Pss_Shmem`). Kernel: half of the growth of slabs and TCP buffers, since both ends are on this machine.\n\n\
    | server | connections | processes, kB each | kernel, kB each | in all, kB each | resumed |\n|---|---:|---:|---:|---:|---:|\n";

const CAPACITY: &str = "## Handshakes and calls\n\nA closed loop. A handshake is a connection with one OPTIONS over it. The generator does as much \
    cryptography as the server, so it may be the limit: *a core* is computed from the server's CPU time. The ratio is Strowger's \
    rate a core to the other's.\n\n\
    | what | server | measured/s | its CPUs | CPU µs each | a core/s | Strowger's ratio | resumed | not carried |\n\
    |---|---|---:|---:|---:|---:|---:|---:|---:|\n";

const OTHERS: &str = "## Other callers during handshakes\n\n200 calls a second over open connections, alone and beside full handshakes of \
    others. Both generators share a core, that of the handshakes with a lower priority, so the times include what they do to each other.\n\n\
    | server | handshakes/s | INVITE to 200: p50 ms | p99 ms | not carried |\n|---|---:|---:|---:|---:|\n";
