//! One shard driven by seven shells. Repeats the first paper's question, which software architecture serves SIP best,
//! on today's kernel.
//!
//! ```text
//! cargo run --release -p strowger-architectures -- --architecture thread-pool --threads 4     serves
//! cargo run --release -p strowger-architectures -- compare                                    measures all of them
//! cargo run --release -p strowger-architectures -- queue --threads 1,2,4 --receive-buffer 200 fills a pool's queue
//! ```
//!
//! Each shell has a file in `shells`. Their shared code is in `shard_group` (the shard), `socket`, `locked_shards`
//! (shards behind locks) and `processes`.

#![forbid(unsafe_code)]

mod compare;
mod locked_shards;
mod member;
mod processes;
mod shard_group;
mod shells;
mod socket;
mod timing;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use member::Member;
use rustix::thread::{CpuSet, sched_setaffinity};

use processes::inherit;
use shard_group::Setup;
use shells::Architecture;
use socket::Socket;

// The same allocator as the server's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Interval between reports of socket counts.
const STATUS_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Parser)]
#[command(about = "One SIP server in seven architectures; a comparison, not a product")]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeArguments,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs all architectures against `strowger load` and writes bench/ARCHITECTURES.md
    Compare(compare::CompareArguments),
    /// Offers a thread pool increasing load and reports what its queue drops
    Queue(compare::queue::QueueArguments),
    /// A process of a server, started by another process
    #[command(hide = true)]
    Member(MemberArguments),
}

/// Arguments common to all processes of a server.
#[derive(Clone, Debug, Args)]
struct Common {
    /// Forward statelessly
    #[arg(long)]
    stateless: bool,
    /// T1 in milliseconds; transactions live 64 times as long
    #[arg(long, default_value_t = 500)]
    t1_ms: u64,
    /// Seed of hashes and keys [default: random]
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(Debug, Args)]
struct ServeArguments {
    /// Server architecture
    #[arg(long, value_enum)]
    architecture: Option<Architecture>,
    #[command(flatten)]
    common: Common,
    /// Listening address
    #[arg(long, default_value = "127.0.0.1:5060")]
    listen: SocketAddr,
    /// Number of threads or processes in the pool or the second stage; for thread-per-message, the maximum at once
    #[arg(long)]
    threads: Option<usize>,
    /// Capacity of the receive buffer, in packets of 600 bytes [default: some thousands]
    #[arg(long, value_name = "N")]
    receive_buffer: Option<usize>,
    /// Prints received and dropped packets of the socket every second
    #[arg(long)]
    report: bool,
    /// Prints waiting and service times of messages twenty times a second; event-based only
    #[arg(long, conflicts_with_all = ["report", "threads", "receive_buffer"])]
    timing: bool,
    /// Polls for messages continuously, so that no wake-up is needed
    #[arg(long, requires = "timing")]
    awake: bool,
    /// Cores that the server may use, as 0 or 0,1
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
}

#[derive(Debug, Args)]
struct MemberArguments {
    #[arg(long, value_enum)]
    architecture: Architecture,
    #[command(flatten)]
    common: Common,
    /// Number of shard groups in all processes
    #[arg(long)]
    brains: u16,
    #[command(flatten)]
    member: Member,
}

fn main() -> ExitCode {
    let Cli { command, serve } = Cli::parse();
    let outcome = match (command, serve.architecture) {
        (Some(Command::Compare(arguments)), _) => compare::run(&arguments),
        (Some(Command::Queue(arguments)), _) => compare::queue::run(&arguments),
        (Some(Command::Member(arguments)), _) => join(&arguments).map_err(|error| error.to_string()),
        (None, Some(architecture)) => self::serve(architecture, &serve).map_err(|error| error.to_string()),
        (None, None) => Err("--architecture is missing; see --help".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("architectures: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(architecture: Architecture, arguments: &ServeArguments) -> io::Result<()> {
    if !arguments.cores.is_empty() {
        let mut cores = CpuSet::new();
        arguments.cores.iter().for_each(|core| cores.set(*core));
        sched_setaffinity(None, &cores)?;
    }
    if arguments.timing {
        return serve_timed(architecture, arguments);
    }
    let count = arguments.threads.unwrap_or(architecture.usual_count()).max(1);
    let socket = Socket::bind(arguments.listen, arguments.receive_buffer)?;
    let setup = setup(&arguments.common, socket.address()?, architecture, architecture.brains(count));
    if arguments.report {
        let reporter = socket.reporter()?;
        let report = move || loop {
            thread::sleep(STATUS_EVERY);
            say(&reporter.line());
        };
        thread::Builder::new().name("report".to_owned()).spawn(report)?;
    }
    let ready = || say(&format!("{architecture} listens on {}", setup.address));
    architecture.serve(&setup, socket, count, ready)
}

fn serve_timed(architecture: Architecture, arguments: &ServeArguments) -> io::Result<()> {
    if architecture != Architecture::EventBased {
        let told = "--timing is of --architecture event-based: of several threads nobody is alone with the clock";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, told));
    }
    let socket = timing::bind(arguments.listen)?;
    let setup = setup(&arguments.common, socket.local_addr(), architecture, architecture.brains(1));
    let ready = || say(&format!("{architecture} listens on {}", setup.address));
    timing::serve(&setup, socket, arguments.awake, ready)
}

fn join(arguments: &MemberArguments) -> io::Result<()> {
    let socket = inherit(&arguments.member)?;
    let setup = setup(&arguments.common, socket.address()?, arguments.architecture, arguments.brains);
    arguments.architecture.join(&setup, &socket, &arguments.member)
}

/// Writes a line to standard output and flushes it.
fn say(line: &str) {
    let mut out = io::stdout();
    // The parent process may have stopped reading.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn setup(common: &Common, address: SocketAddr, architecture: Architecture, brains: u16) -> Setup {
    Setup {
        address,
        brains: brains.max(1),
        shards: architecture.shards(),
        is_stateless: common.stateless,
        t1: Duration::from_millis(common.t1_ms),
        seed: common.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish()),
    }
}
