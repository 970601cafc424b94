//! The processes of one server: how the first one starts the others, and how they pass messages to each other.
//!
//! They share only the UDP socket, which a new process inherits as its standard input. Each process has a local
//! datagram socket that receives the messages that other processes pass to it. Its name disappears with the
//! processes.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{SocketAddr as LocalAddr, UnixDatagram};
use std::process::{Child, Command, Stdio};

use clap::ValueEnum as _;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::member::Member;
use crate::shard_group::Setup;
use crate::shells::Architecture;
use crate::socket::{MAX_DATAGRAM, Socket};

/// Length of the header of a message that is passed on: its source address.
const HEAD_BYTES: usize = 18;

/// The processes started by the first one. The kernel kills them when the first process ends for any reason.
#[derive(Debug)]
pub(crate) struct ChildProcesses(Vec<Child>);

impl ChildProcesses {
    /// Starts the processes `numbers` of a server and waits until each accepts messages.
    ///
    /// # Errors
    /// If a process cannot be started or exits at once.
    pub(crate) fn begin(
        architecture: Architecture,
        setup: &Setup,
        socket: &Socket,
        numbers: impl Iterator<Item = u16>,
    ) -> io::Result<Self> {
        let mut family = Self(Vec::new());
        for number in numbers {
            family.0.push(command(architecture, setup, number)?.stdin(Stdio::from(socket.descriptor()?)).spawn()?);
        }
        for child in &mut family.0 {
            let mut word = [0];
            child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?.read_exact(&mut word)?;
        }
        Ok(family)
    }
}

impl Drop for ChildProcesses {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Fails only if the process has exited already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn command(architecture: Architecture, setup: &Setup, number: u16) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    let name = architecture.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    command.args(["member", "--architecture", &name, "--brains", &setup.brains.to_string()]);
    command.args(["--t1-ms", &setup.t1.as_millis().to_string(), "--seed", &setup.seed.to_string()]);
    command.args(["--number", &number.to_string(), "--server", &std::process::id().to_string()]);
    if setup.is_stateless {
        command.arg("--stateless");
    }
    command.stdout(Stdio::piped());
    Ok(command)
}

/// Ties this process's lifetime to its parent's and opens the inherited socket.
///
/// # Errors
/// If there is no inherited socket, or the parent has exited already.
pub(crate) fn inherit(member: &Member) -> io::Result<Socket> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = getppid().map(|parent| parent.as_raw_nonzero().get().unsigned_abs());
    if parent != Some(member.server) {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the server has ended"));
    }
    Ok(Socket::inherited(io::stdin().as_fd().try_clone_to_owned()?))
}

/// Reports that this process accepts messages.
///
/// # Errors
/// If the parent does not listen.
pub(crate) fn announce() -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(b"+")?;
    out.flush()
}

/// Local socket on which a process receives messages from the others.
#[derive(Debug)]
pub(crate) struct Inbox(UnixDatagram);

impl Inbox {
    /// Opens the inbox. The socket is non-blocking; wait on its descriptor.
    ///
    /// # Errors
    /// If it is open already.
    pub(crate) fn open(member: &Member) -> io::Result<Self> {
        let socket = UnixDatagram::bind_addr(&member.address(member.number)?)?;
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }

    /// Receives one message into `buffer` and returns its source address and its bytes, or `None` if none is queued.
    ///
    /// # Errors
    /// If the socket cannot be read.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<(SocketAddr, &'a [u8])>> {
        let length = match self.0.recv(buffer) {
            Ok(length) => length,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let (head, message) = buffer[..length].split_at(HEAD_BYTES.min(length));
        Ok(<[u8; HEAD_BYTES]>::try_from(head).ok().map(|head| (peer_of(head), message)))
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sends to the inboxes of other processes. A message is received into [`buffer`](Self::buffer) behind the space for
/// its source address, so passing it on needs no copy.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// Address of each inbox, and the socket connected to it after the first message.
    others: Vec<(LocalAddr, Option<UnixDatagram>)>,
    buffer: Vec<u8>,
}

impl Outbox {
    /// Opens an outbox to all `count` processes.
    ///
    /// # Errors
    /// If no socket is available.
    pub(crate) fn open(member: &Member, count: u16) -> io::Result<Self> {
        let others = (0..count).map(|number| Ok((member.address(number)?, None))).collect::<io::Result<_>>()?;
        Ok(Self { others, buffer: vec![0; HEAD_BYTES + MAX_DATAGRAM] })
    }

    /// Returns the buffer for the next message.
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        &mut self.buffer[HEAD_BYTES..]
    }

    /// Returns the received message.
    #[must_use]
    pub(crate) fn message(&self, length: usize) -> &[u8] {
        &self.buffer[HEAD_BYTES..HEAD_BYTES + length]
    }

    /// Passes the message to process `to`. While that inbox is full, it waits and runs `own`, the work in this
    /// process's inbox, so two processes that pass messages to each other cannot deadlock. If the process is gone,
    /// the message is lost.
    ///
    /// # Errors
    /// If a socket fails, or the error of `own`.
    pub(crate) fn hand_over(
        &mut self,
        to: u16,
        peer: SocketAddr,
        length: usize,
        own: Option<(&Inbox, &dyn Fn() -> io::Result<bool>)>,
    ) -> io::Result<()> {
        let Some((address, way)) = self.others.get_mut(usize::from(to)) else { return Ok(()) };
        if way.is_none() {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            if socket.connect_addr(address).is_err() {
                return Ok(());
            }
            *way = Some(socket);
        }
        let Some(way) = way else { return Ok(()) };
        self.buffer[..HEAD_BYTES].copy_from_slice(&head_of(peer));
        while let Err(error) = way.send(&self.buffer[..HEAD_BYTES + length]) {
            if error.kind() != io::ErrorKind::WouldBlock {
                return Ok(());
            }
            match own {
                Some((inbox, work)) => {
                    if !work()? {
                        wait_for_either(way, Some(inbox))?;
                    }
                }
                None => wait_for_either(way, None)?,
            }
        }
        Ok(())
    }
}

/// Waits until the peer's inbox has space or this inbox has a message.
fn wait_for_either(way: &UnixDatagram, inbox: Option<&Inbox>) -> io::Result<()> {
    let room = PollFd::new(way, PollFlags::OUT);
    let outcome = match inbox {
        Some(inbox) => poll(&mut [room, PollFd::new(inbox, PollFlags::IN)], None),
        None => poll(&mut [room], None),
    };
    match outcome {
        Err(error) if error != rustix::io::Errno::INTR => Err(error.into()),
        _ => Ok(()),
    }
}

fn head_of(peer: SocketAddr) -> [u8; HEAD_BYTES] {
    let ip = match peer.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut head = [0; HEAD_BYTES];
    head[..16].copy_from_slice(&ip.octets());
    head[16..].copy_from_slice(&peer.port().to_be_bytes());
    head
}

fn peer_of(head: [u8; HEAD_BYTES]) -> SocketAddr {
    let mut ip = [0; 16];
    ip.copy_from_slice(&head[..16]);
    SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), u16::from_be_bytes([head[16], head[17]]))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_message_is_handed_over_with_its_sender() {
        let member = Member { number: 3, server: std::process::id() };
        let inbox = Inbox::open(&member).expect("the name is free");
        let mut outbox = Outbox::open(&member, 4).expect("a socket");
        for text in ["192.0.2.1:5060", "[2001:db8::1]:5062"] {
            let peer: SocketAddr = text.parse().expect("an address");
            outbox.buffer()[..5].copy_from_slice(b"hello");
            outbox.hand_over(3, peer, 5, None).expect("there is room");
            let mut buffer = [0; 100];
            let received = inbox.receive(&mut buffer).expect("the inbox is there");
            assert_eq!(received, Some((peer, &b"hello"[..])));
        }
        assert_eq!(inbox.receive(&mut [0; 100]).expect("the inbox is there"), None);
    }

    #[test]
    fn a_blocked_sender_keeps_working() {
        let member = Member { number: 5, server: std::process::id() };
        let inbox = Inbox::open(&member).expect("the name is free");
        let mut outbox = Outbox::open(&member, 6).expect("a socket");
        let peer = SocketAddr::from(([127, 0, 0, 1], 5060));
        let taken = Cell::new(0);
        let take = || {
            let is_there = inbox.receive(&mut [0; 1_000])?.is_some();
            taken.set(taken.get() + u32::from(is_there));
            Ok(is_there)
        };
        for _ in 0..2_000 {
            outbox.hand_over(5, peer, 900, Some((&inbox, &take))).expect("the inbox is there");
        }
        assert!(taken.get() > 0, "two thousand messages found room in a queue");
        while take().expect("the inbox is there") {}
        assert_eq!(taken.get(), 2_000, "none was lost");
    }
}
