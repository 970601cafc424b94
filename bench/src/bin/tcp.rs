//! Cost of TCP for a server with very many connections. Writes `bench/TCP.md`.

use std::io::BufRead as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};
use strowger_bench::namespace::enter;
use strowger_bench::programs;
use strowger_bench::register::report::replace;
use strowger_bench::server::{circumstances, command_line};
use strowger_bench::tcp::growth::Growth;
use strowger_bench::tcp::phones::{Phones, Task};
use strowger_bench::tcp::{ConnectionLifetime, echo, lifetimes, parts, registrar};

const GROWTH: &str = "
## An echo server and more and more connections

Each new connection carries 512 bytes in both directions and stays open. A process may have 20,000 files, so there are several
processes of each kind. Times are those of the connections since the row above. Slabs are the kernel's, files and inodes included,
for both ends of a connection; a server alone has half. At 14,800 a second connections are opened up to `--connections`; at 200 and
2,500 a second the run ends earlier, so compare rows with equal numbers of connections.
";

const LIFETIMES: &str = "
Requests use connections in one of these ways: *udp* uses none; *persistent* an open one; *persistent-with-open* a new one that stays
open, as for a phone's first REGISTER; *transaction* a new one that is closed after the response; *dialog* one for the whole call.
With *persistent-with-open*, the limit on open files bounds the number of requests, so a run at a high rate lasts about a second.
";

#[derive(Debug, Parser)]
#[command(about = "What TCP costs a server with very many connections; a report, not a test")]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    /// Number of connections, opened at 14,800 per second
    #[arg(long, default_value_t = 300_000)]
    connections: usize,
    /// Seconds of each other measurement
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Smoke test: a little of everything; writes nothing
    #[arg(long)]
    quick: bool,
    /// File for the report, in addition to standard output [default: bench/TCP.md]
    #[arg(long)]
    output: Option<PathBuf>,
}

/// Role of a child process of this program.
#[derive(Debug, Subcommand)]
enum Role {
    /// An echo server
    #[command(hide = true)]
    Echo {
        #[arg(long, action = clap::ArgAction::Set)]
        datagrams: bool,
    },
    /// Clients of the echo server
    #[command(hide = true)]
    Phones {
        #[arg(long)]
        server: SocketAddr,
        #[arg(long, value_parser = ConnectionLifetime::parse)]
        lifetime: ConnectionLifetime,
        #[arg(long)]
        rate: u32,
        #[arg(long)]
        requests: usize,
        #[arg(long)]
        connections: usize,
    },
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    strowger_net::raise_open_files()?;
    let arguments = Arguments::parse();
    match arguments.role {
        Some(Role::Echo { datagrams }) => Ok(echo::serve(datagrams)?),
        Some(Role::Phones { server, lifetime, rate, requests, connections }) => {
            phones(Task { server, lifetime, rate, requests, connections })
        }
        None => report(&arguments),
    }
}

/// Opens the connections, waits for the start signal, sends requests, reports the results, and stays until its input
/// ends.
fn phones(task: Task) -> Result<(), Box<dyn std::error::Error>> {
    let mut phones = Phones::new(task)?;
    println!("ready");
    let mut lines = std::io::stdin().lock().lines();
    if lines.next().is_some() {
        println!("{}", phones.run()?.to_json());
    }
    let _ = lines.next();
    Ok(())
}

fn report(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    // Its own namespace, because it changes the port range.
    let _ = enter(false);
    // Widens the ephemeral port range, in this namespace only.
    std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "1024 65535")?;
    let (connections, seconds) = if arguments.quick { (20_000, 1) } else { (arguments.connections, arguments.seconds) };
    let mut text = circumstances(&command_line("strowger-bench --bin tcp"));
    eprintln!("the echo server, more and more connections");
    text.push_str(GROWTH);
    for (rate, connections) in
        [(200, connections.min(200 * seconds as usize)), (2_500, connections.min(75_000)), (14_800, connections)]
    {
        text.push_str(&Growth::measure(rate, connections)?.to_markdown());
    }
    eprintln!("the echo server, by lifetime");
    text.push_str("\n## An echo server and the lifetime of connections\n");
    text.push_str(LIFETIMES);
    text.push_str(&lifetimes::measure(&[200, 2_500, 14_800], seconds)?);
    eprintln!("the SIP server");
    text.push_str("\n## Strowger and the lifetime of connections\n");
    text.push_str(&registrar::measure(&programs::strowger(None), seconds)?);
    eprintln!("one message");
    text.push_str(
        "\n## The parts of one message\n\nOne thread is both phone and server: it sends a refreshing REGISTER and reads \
         the 200. It receives and sends with one system call each; `strowger serve` batches them. *Parsing* finds lines \
         and values and validates the rest. The shard does that itself, so *SIP* is its time minus the parsing time.\n",
    );
    text.push_str(&parts::measure(if arguments.quick { 10_000 } else { 200_000 })?);
    print!("{text}");
    if !arguments.quick {
        let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("TCP.md");
        replace(arguments.output.as_ref().unwrap_or(&usual), "tcp", &text)?;
    }
    Ok(())
}
