//! One shard driven by seven shells: the first paper's question, which software architecture serves SIP best, asked again of
//! today's kernel.
//!
//! ```text
//! cargo run --release -p strowger-architectures -- --architecture thread-pool --threads 4     serves
//! cargo run --release -p strowger-architectures -- compare                                    measures all of them
//! cargo run --release -p strowger-architectures -- queue --threads 1,2,4 --receive-buffer 200 fills a pool's queue
//! ```
//!
//! The shells are in `shells`, a file each; what they share is in `brain` (the shard), `socket`, `shelf` (shards behind locks)
//! and `processes`.

#![forbid(unsafe_code)]

mod compare;
mod locked_shards;
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
use rustix::thread::{CpuSet, sched_setaffinity};

use processes::{Member, inherit};
use shard_group::Setup;
use shells::Architecture;
use socket::Socket;

// As the server has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How often a server says what went through its socket.
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
    /// Offers a thread pool more and more, and shows what its queue drops
    Queue(compare::queue::QueueArguments),
    /// A process of a server that another one has begun
    #[command(hide = true)]
    Member(MemberArguments),
}

/// What every process of a server is told.
#[derive(Clone, Debug, Args)]
struct Common {
    /// Forwards without keeping state
    #[arg(long)]
    stateless: bool,
    /// T1 in milliseconds; transactions live 64 times as long
    #[arg(long, default_value_t = 500)]
    t1_ms: u64,
    /// What hashes and keys are made from [default: drawn]
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(Debug, Args)]
struct ServeArguments {
    /// How the server is built
    #[arg(long, value_enum)]
    architecture: Option<Architecture>,
    #[command(flatten)]
    common: Common,
    /// Where to listen
    #[arg(long, default_value = "127.0.0.1:5060")]
    listen: SocketAddr,
    /// Threads or processes: of the pool, or of the second stage; of thread-per-message the most at once
    #[arg(long)]
    threads: Option<usize>,
    /// Room in the socket for so many packets of 600 bytes [default: some thousands]
    #[arg(long, value_name = "N")]
    receive_buffer: Option<usize>,
    /// Prints every second what went through the socket and what found no room
    #[arg(long)]
    report: bool,
    /// Prints twenty times a second how long messages have waited and were served; of the event-based one only
    #[arg(long, conflicts_with_all = ["report", "threads", "receive_buffer"])]
    timing: bool,
    /// Looks for messages without pause, so that nothing has to wake it
    #[arg(long, requires = "timing")]
    awake: bool,
    /// The cores that it may use, as 0 or 0,1
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
}

#[derive(Debug, Args)]
struct MemberArguments {
    #[arg(long, value_enum)]
    architecture: Architecture,
    #[command(flatten)]
    common: Common,
    /// The brains of all processes
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
        (None, None) => Err("which --architecture? see --help".to_owned()),
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

/// A line on standard output, now.
fn say(line: &str) {
    let mut out = io::stdout();
    // Who began this process may not read any more.
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
