//! Sends structure-aware mutations of valid messages, in process or over a loopback socket. Requires that nothing
//! panics and no message takes more than 10 ms.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use strowger_bench::message_target::{MessageTarget, Reader, WholeShard};
use strowger_bench::mutate::Mutator;

/// Maximum processing time of a message.
const LIMIT: Duration = Duration::from_millis(10);
/// Over a socket, the number of mutations between two OPTIONS that must be answered.
const PROBE_EVERY: u64 = 500;

#[derive(Debug, Parser)]
#[command(about = "Tortures the parser, or a server on this machine, with damaged messages")]
struct Arguments {
    /// Number of messages.
    #[arg(long, default_value_t = 1_000_000)]
    messages: u64,
    /// Seed of the sequence.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Sends the messages to a whole shard instead of the parser alone.
    #[arg(long, conflicts_with = "udp")]
    shard: bool,
    /// Sends the messages to a server at this loopback address instead.
    #[arg(long)]
    udp: Option<SocketAddr>,
    /// Messages per second over a socket.
    #[arg(long, default_value_t = 5_000)]
    rate: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let good = match arguments.udp {
        None if arguments.shard => in_process(&arguments, &mut WholeShard::default()),
        None => in_process(&arguments, &mut Reader::default()),
        Some(server) if server.ip().is_loopback() => over_udp(&arguments, server).unwrap_or_else(|error| {
            eprintln!("{server}: {error}");
            false
        }),
        Some(server) => {
            eprintln!("{server} is not a loopback address: only a server on this machine may be tortured");
            return ExitCode::from(2);
        }
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Results so far.
#[derive(Debug, Default)]
struct Outcome {
    read: u64,
    faults: BTreeMap<String, u64>,
    slowest: Duration,
    panics: u64,
}

fn in_process(arguments: &Arguments, subject: &mut dyn MessageTarget) -> bool {
    let mut outcome = Outcome::default();
    let (mut mutator, mut bytes) = (Mutator::new(arguments.seed), Vec::new());
    for number in 0..arguments.messages {
        mutator.next_message(&mut bytes);
        if !one(&bytes, subject, &mut outcome) {
            eprintln!("message {number} of seed {} panics:\n{}", arguments.seed, bytes.escape_ascii());
            outcome.panics += 1;
        }
    }
    println!("messages {}: read {}, panics {}", arguments.messages, outcome.read, outcome.panics);
    for (fault, count) in &outcome.faults {
        println!("{count:>10}  {fault}");
    }
    println!("slowest {:.3} ms", outcome.slowest.as_secs_f64() * 1e3);
    outcome.panics == 0 && outcome.slowest < LIMIT
}

/// Passes one message to the target. Returns `false` if that panics.
fn one(bytes: &[u8], subject: &mut dyn MessageTarget, outcome: &mut Outcome) -> bool {
    let start = Instant::now();
    let Ok(fault) = catch_unwind(AssertUnwindSafe(|| subject.take(bytes))) else { return false };
    let mut took = start.elapsed();
    // The thread may have been preempted: a message counts as slow only if it is slow every time.
    for _ in 0..3 {
        if took < LIMIT / 10 {
            break;
        }
        let start = Instant::now();
        let _ = catch_unwind(AssertUnwindSafe(|| subject.take(bytes)));
        took = took.min(start.elapsed());
    }
    outcome.slowest = outcome.slowest.max(took);
    match fault {
        None => outcome.read += 1,
        Some(fault) => *outcome.faults.entry(fault).or_default() += 1,
    }
    true
}

fn over_udp(arguments: &Arguments, server: SocketAddr) -> std::io::Result<bool> {
    let any = if server.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    let (torturer, prober) = (UdpSocket::bind(any)?, UdpSocket::bind(any)?);
    torturer.connect(server)?;
    torturer.set_nonblocking(true)?;
    prober.connect(server)?;
    prober.set_read_timeout(Some(Duration::from_millis(500)))?;
    let (mut mutator, mut bytes, mut answers) = (Mutator::new(arguments.seed), Vec::new(), 0u64);
    let (start, mut slowest) = (Instant::now(), Duration::ZERO);
    for number in 0..arguments.messages {
        if number % PROBE_EVERY == 0 {
            let Some(took) = probe(&prober, number)? else {
                eprintln!("no answer to OPTIONS after {number} messages of seed {}", arguments.seed);
                return Ok(false);
            };
            slowest = slowest.max(took);
        }
        mutator.next_message(&mut bytes);
        // The next probe detects a refused or full socket.
        let _ = torturer.send(&bytes);
        while torturer.recv(&mut [0; 2048]).is_ok() {
            answers += 1;
        }
        let due = start + Duration::from_secs_f64(number as f64 / arguments.rate.max(1) as f64);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    let alive = probe(&prober, arguments.messages)?.is_some();
    println!(
        "messages {}: answers {answers}, slowest OPTIONS {:.3} ms",
        arguments.messages,
        slowest.as_secs_f64() * 1e3
    );
    Ok(alive)
}

/// Checks by OPTIONS that the server is alive and returns the time of the first answer. Sends up to five times,
/// because UDP may lose packets.
fn probe(socket: &UdpSocket, number: u64) -> std::io::Result<Option<Duration>> {
    let (local, server) = (socket.local_addr()?, socket.peer_addr()?);
    let options = format!(
        "OPTIONS sip:{server} SIP/2.0\r\nVia: SIP/2.0/UDP {local};branch=z9hG4bKprobe{number};rport\r\nMax-Forwards: 70\r\n\
         From: <sip:probe@{local}>;tag=p{number}\r\nTo: <sip:{server}>\r\nCall-ID: probe-{number}@{local}\r\n\
         CSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
    );
    let start = Instant::now();
    for _ in 0..5 {
        let _ = socket.send(options.as_bytes());
        let mut answer = [0; 2048];
        while let Ok(length) = socket.recv(&mut answer) {
            let wanted = format!("z9hG4bKprobe{number};");
            if answer[..length].starts_with(b"SIP/2.0 ")
                && answer[..length].windows(wanted.len()).any(|w| w == wanted.as_bytes())
            {
                return Ok(Some(start.elapsed()));
            }
        }
    }
    Ok(None)
}
