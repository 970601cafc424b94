//! Processes of one server: how the first one begins the others, and how they hand messages to each other.
//!
//! They share the UDP socket, which a new process finds in the place of its standard input, and nothing else. Each has a local
//! datagram socket, by a name that ends with the processes, into which the others put messages that are its own.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as LocalAddr, UnixDatagram};
use std::process::{Child, Command, Stdio};

use clap::{Args, ValueEnum as _};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::shard_group::Setup;
use crate::shells::Architecture;
use crate::socket::{MAX_DATAGRAM, Socket};

/// What stands before a message that is handed over: where it came from.
const HEAD_BYTES: usize = 18;

/// What a process is told that belongs to a server.
#[derive(Clone, Debug, Args)]
pub(crate) struct Member {
    /// Which of the server's processes it is
    #[arg(long, hide = true)]
    pub(crate) number: u16,
    /// The first one's process number, by which they find each other
    #[arg(long, hide = true)]
    pub(crate) server: u32,
}

impl Member {
    /// The first process, which this one is.
    #[must_use]
    pub(crate) fn first() -> Self {
        Self { number: 0, server: std::process::id() }
    }

    /// The local address of one of them.
    fn address(&self, number: u16) -> io::Result<LocalAddr> {
        LocalAddr::from_abstract_name(format!("strowger-architectures/{}/{number}", self.server))
    }
}

/// The processes that the first one has begun. When it ends, however it does, the kernel ends them.
#[derive(Debug)]
pub(crate) struct ChildProcesses(Vec<Child>);

impl ChildProcesses {
    /// Begins the processes `numbers` of a server, and waits until each takes messages.
    ///
    /// # Errors
    /// When one cannot be begun, or ends at once.
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
            // Fails only when it is gone already.
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

/// Makes this process end with the one that began it, and opens the socket that it was given.
///
/// # Errors
/// When there is none, or the first process is gone already.
pub(crate) fn inherit(member: &Member) -> io::Result<Socket> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = getppid().map(|parent| parent.as_raw_nonzero().get().unsigned_abs());
    if parent != Some(member.server) {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the server has ended"));
    }
    Ok(Socket::inherited(io::stdin().as_fd().try_clone_to_owned()?))
}

/// Says that this process takes messages.
///
/// # Errors
/// When nobody listens.
pub(crate) fn announce() -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(b"+")?;
    out.flush()
}

/// Where a process finds what others have put there for it.
#[derive(Debug)]
pub(crate) struct Inbox(UnixDatagram);

impl Inbox {
    /// Opens it. It waits for nothing: wait by its descriptor.
    ///
    /// # Errors
    /// When it is open already.
    pub(crate) fn open(member: &Member) -> io::Result<Self> {
        let socket = UnixDatagram::bind_addr(&member.address(member.number)?)?;
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }

    /// One message, where it came from and where it stands in `buffer`; `None` where there is none.
    ///
    /// # Errors
    /// When it cannot be read any more.
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

/// The way into the inboxes of others. The message to be handed over is received into [`buffer`](Self::buffer), behind the place
/// for where it came from, so that it is not copied for that.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// Connected to an inbox each, once something was put there.
    others: Vec<(LocalAddr, Option<UnixDatagram>)>,
    buffer: Vec<u8>,
}

impl Outbox {
    /// A way to all `count` processes.
    ///
    /// # Errors
    /// When there is no socket.
    pub(crate) fn open(member: &Member, count: u16) -> io::Result<Self> {
        let others = (0..count).map(|number| Ok((member.address(number)?, None))).collect::<io::Result<_>>()?;
        Ok(Self { others, buffer: vec![0; HEAD_BYTES + MAX_DATAGRAM] })
    }

    /// Where the next message is received.
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        &mut self.buffer[HEAD_BYTES..]
    }

    /// The message that was received.
    #[must_use]
    pub(crate) fn message(&self, length: usize) -> &[u8] {
        &self.buffer[HEAD_BYTES..HEAD_BYTES + length]
    }

    /// Hands it over to process `to`. As long as the queue there is full it waits, and does its `own` work that others put into its
    /// own inbox meanwhile: so two who hand over to each other both go on. To a process that is gone the message is lost.
    ///
    /// # Errors
    /// When the sockets fail, or what `own` says.
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

/// Waits until there is room on a way, or something in an inbox.
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
    fn who_waits_for_room_works_meanwhile() {
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
