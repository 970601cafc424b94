//! Cost of TCP for a server with very many connections. Writes `bench/TCP.md`.

use std::io::BufRead as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};
use strowger_bench::namespace::enter;
use strowger_bench::programs;
use strowger_bench::server::{circumstances, command_line};
use strowger_bench::tcp::growth::Growth;
use strowger_bench::tcp::phones::{Phones, Task};
use strowger_bench::tcp::{ConnectionLifetime, echo, lifetimes, parts, registrar};

const HEAD: &str = "# TCP

The experiments of K. Ono and H. Schulzrinne, \"The impact of TCP on SIP servers\", again: an echo server, then Strowger, each on
one core, the clients on the other, over the loopback of a network namespace of their own. Written by `strowger-bench`.

";

const GROWTH: &str = "
## An echo server and more and more connections

512 bytes there and back over each new connection, which stays. A process may have 20,000 files here, so there are several of
each kind. Times are of the connections since the row above. Slabs are all of the kernel's for both ends of a connection, files
and inodes included: the server is on the same machine as its clients, so halve them for a server alone. At 14,800 a second it goes on to as many
connections as are asked for (`--connections`); at 200 and 2,500 it ends sooner, for time's sake: that is what rows differ by.
";

const LIFETIMES: &str = "
What a request does to a connection: *udp* has none; *persistent* takes one of those that were opened before; *persistent-with-open* opens one that stays, as a phone's
first REGISTER does; *transaction* opens one and closes it behind the answer; *dialog* keeps one for a call. Where each request opens one that
stays, there are as many requests as a process may have files, and no more: at a high rate that is a second or some.
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
    let mut text = format!("{HEAD}{}", circumstances(&command_line("strowger-bench --bin tcp")));
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
        "\n## The parts of one message\n\nOne thread is phone and server: a REGISTER that refreshes, and its 200. One system call receives and one sends, where \
         `strowger serve` has one for several. Parsing is finding the lines and the values in them, and checking the \
         rest; the second the shard does itself, and what it takes, measured before, is taken off.\n",
    );
    text.push_str(&parts::measure(if arguments.quick { 10_000 } else { 200_000 })?);
    print!("{text}");
    if !arguments.quick {
        let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("TCP.md");
        std::fs::write(arguments.output.as_ref().unwrap_or(&usual), text)?;
    }
    Ok(())
}
