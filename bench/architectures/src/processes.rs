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
use std::thread;

use clap::{Args, ValueEnum as _};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::brain::Setup;
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
pub(crate) struct Family(Vec<Child>);

impl Family {
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

impl Drop for Family {
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
    command.args(["member", "--architecture", &name, "--shards", &setup.shards.to_string()]);
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
    socket: UnixDatagram,
    others: Vec<LocalAddr>,
    buffer: Vec<u8>,
}

impl Outbox {
    /// A way to all `count` processes.
    ///
    /// # Errors
    /// When there is no socket.
    pub(crate) fn open(member: &Member, count: u16) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        let others = (0..count).map(|number| member.address(number)).collect::<io::Result<_>>()?;
        Ok(Self { socket, others, buffer: vec![0; HEAD_BYTES + MAX_DATAGRAM] })
    }

    /// From here on a full queue is waited for.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn wait_for_room(&self) -> io::Result<()> {
        self.socket.set_nonblocking(false)
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

    /// Hands it over. As long as the other's queue is full, what `meanwhile` does, and else others: so two who hand over to each
    /// other both go on. To a process that is gone it is lost.
    ///
    /// # Errors
    /// What `meanwhile` says.
    pub(crate) fn hand_over(
        &mut self,
        to: u16,
        peer: SocketAddr,
        length: usize,
        mut meanwhile: impl FnMut() -> io::Result<bool>,
    ) -> io::Result<()> {
        let Some(address) = self.others.get(usize::from(to)) else { return Ok(()) };
        self.buffer[..HEAD_BYTES].copy_from_slice(&head_of(peer));
        while let Err(error) = self.socket.send_to_addr(&self.buffer[..HEAD_BYTES + length], address) {
            if error.kind() != io::ErrorKind::WouldBlock {
                break;
            }
            if !meanwhile()? {
                thread::yield_now();
            }
        }
        Ok(())
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
    use super::*;

    #[test]
    fn a_message_is_handed_over_with_its_sender() {
        let member = Member { number: 3, server: std::process::id() };
        let inbox = Inbox::open(&member).expect("the name is free");
        let mut outbox = Outbox::open(&member, 4).expect("a socket");
        for text in ["192.0.2.1:5060", "[2001:db8::1]:5062"] {
            let peer: SocketAddr = text.parse().expect("an address");
            outbox.buffer()[..5].copy_from_slice(b"hello");
            outbox.hand_over(3, peer, 5, || Ok(false)).expect("there is room");
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
        let mut taken = 0;
        for _ in 0..2_000 {
            let take = || {
                let is_there = inbox.receive(&mut [0; 1_000])?.is_some();
                taken += u32::from(is_there);
                Ok(is_there)
            };
            outbox.hand_over(5, peer, 900, take).expect("the inbox is there");
        }
        assert!(taken > 0, "two thousand messages found room in a queue");
    }
}
