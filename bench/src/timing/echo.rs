//! The echo program: sends each packet back. It can wait at a stage, and then says how long it has waited.

use std::fmt;
use std::io::{self, Write as _};
use std::net::{SocketAddr, UdpSocket as BlockingSocket};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::sync::PoisonError;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};
use strowger_net::{BufferSizes, OrderingKey, RecvBatch, SendBatch, UdpSocket};

use crate::programs::{self, Lines};

/// Length of a packet that ends the program, which then prints its [`Stamps`].
pub const END_LENGTH: usize = 1;
/// Number of bytes at the end of a packet into which the program writes when it sent it, ns of real time.
pub const STAMP_BYTES: usize = 8;
/// Maximum time for the program to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the program waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Stage {
    /// Before it receives a packet.
    Receive,
    /// Between receiving and sending a packet.
    Application,
    /// The packet waits in the device's queue.
    Send,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Receive => "before receiving",
            Self::Application => "between receiving and sending",
            Self::Send => "between sending and the device",
        })
    }
}

/// Options of the program.
#[derive(Args, Clone, Copy, Debug)]
pub struct EchoArguments {
    /// Listening address
    pub address: SocketAddr,
    /// Polls without sleeping, waits at this stage, and stamps packets; otherwise the program is as plain as possible
    #[arg(long)]
    pub stage: Option<Stage>,
    /// Microseconds of the wait; without a stage, of work on each packet
    #[arg(long, default_value_t = 0)]
    pub micros: u64,
}

/// What the program saw of the packets, by the clock that the kernel's stamps use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamps {
    /// Number of packets.
    pub packets: u64,
    /// Sum of the times from a packet's arrival in the kernel to the receive call, ns.
    pub queued_ns: u64,
    /// Sum of the times from the return of the receive call to the send call, ns.
    pub application_ns: u64,
}

/// Sends packets back until it is told to end.
///
/// # Errors
/// If the socket fails.
pub fn run(arguments: EchoArguments) -> io::Result<()> {
    let delay = Duration::from_micros(arguments.micros);
    match arguments.stage {
        None => plain(arguments.address, delay),
        Some(stage) => delayed(arguments.address, stage, delay),
    }
}

/// The plain program: one blocking call to receive and one to send.
fn plain(address: SocketAddr, work: Duration) -> io::Result<()> {
    let socket = BlockingSocket::bind(address)?;
    ready()?;
    let mut buffer = [0; 2_048];
    loop {
        let (length, peer) = socket.recv_from(&mut buffer)?;
        if length == END_LENGTH {
            return Ok(());
        }
        spin(work);
        // The peer may have closed its socket.
        let _ = socket.send_to(&buffer[..length], peer);
    }
}

fn delayed(address: SocketAddr, stage: Stage, delay: Duration) -> io::Result<()> {
    let mut socket = UdpSocket::bind(address, BufferSizes::DEFAULT).map_err(|error| error.cause)?;
    let (mut batch, mut out, mut stamps) = (RecvBatch::new(), SendBatch::new(), Stamps::default());
    ready()?;
    loop {
        wait_for_packet(&socket)?;
        if stage == Stage::Receive {
            spin(delay);
        }
        let receiving = real_ns();
        socket.recv(&mut batch)?;
        let mut free = real_ns();
        for datagram in batch.iter() {
            if datagram.bytes.len() == END_LENGTH {
                let line = serde_json::to_string(&stamps).map_err(io::Error::other)?;
                return writeln!(io::stdout(), "{line}");
            }
            if stage == Stage::Application {
                spin(delay);
            }
            let slot = out.next_slot();
            slot.extend_from_slice(datagram.bytes);
            let sending = real_ns();
            if let Some((_, end)) = slot.split_last_chunk_mut::<STAMP_BYTES>() {
                *end = sending.to_le_bytes();
            }
            out.commit(datagram.peer, OrderingKey::ALL);
            let _ = socket.send(&mut out, |_| ());
            stamps.packets += 1;
            stamps.queued_ns += datagram.arrival.map_or(0, |arrival| receiving.saturating_sub(arrival.0));
            stamps.application_ns += sending.saturating_sub(free);
            free = real_ns();
        }
    }
}

fn ready() -> io::Result<()> {
    writeln!(io::stdout(), "ready")
}

/// Waits for a packet without sleeping, since waking up takes time.
fn wait_for_packet(socket: &UdpSocket) -> io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    while poll(&mut [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)], Some(&now))? == 0 {}
    Ok(())
}

fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {}
}

/// Returns the time of the clock that the kernel's stamps use.
fn real_ns() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The program as a process. Dropping it kills it.
#[derive(Debug)]
pub struct EchoProcess {
    child: Child,
    lines: Lines,
}

impl EchoProcess {
    /// Starts the program with the command prefix `before`.
    ///
    /// # Errors
    /// If it does not listen.
    pub fn start(before: &[&str], arguments: EchoArguments) -> Result<Self, String> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let own = own.display().to_string();
        let mut words = before.iter().copied().chain([own.as_str(), "echo"]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).arg(arguments.address.to_string()).args(["--micros", &arguments.micros.to_string()]);
        if let Some(stage) = arguments.stage.and_then(|stage| stage.to_possible_value()) {
            command.args(["--stage", stage.get_name()]);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut process =
            Self { child: child.map_err(|error| format!("{command:?}: {error}"))?, lines: Lines::default() };
        process.lines = programs::listen(&mut process.child).map_err(|error| format!("{command:?}: {error}"))?;
        Ok(process)
    }

    /// Returns its process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns what it saw, after a packet of [`END_LENGTH`] was sent to it.
    ///
    /// # Errors
    /// If it does not say so in time.
    pub fn stamps(&self) -> Result<Stamps, String> {
        let begun = Instant::now();
        loop {
            let last = self.lines.lock().unwrap_or_else(PoisonError::into_inner).last().cloned();
            if let Some(line) = last {
                return serde_json::from_str(&line).map_err(|error| format!("the echo program said '{line}': {error}"));
            }
            if begun.elapsed() > PATIENCE {
                return Err("the echo program did not end".to_owned());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for EchoProcess {
    fn drop(&mut self) {
        // Both fail only if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
