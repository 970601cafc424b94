//! Datagram sockets of one end on one thread, as the driver's [`Outbox`], and the counters of links of both kinds.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mio::{Interest, Registry, Token};
use strowger_net::{BindError, Cause, Counters, Flush, OrderingKey, PeerError, SendBatch, UdpSocket};

use super::plan::{Plan, PlanError};
use crate::driver::Outbox;

/// Remedy for exhausted files.
const FILES_REMEDY: &str = "raise the limit (ulimit -n)";
/// Remedy for exhausted ports.
const PORTS_REMEDY: &str = "send from more addresses (--from, several), or widen net.ipv4.ip_local_port_range";

/// Returns why something cannot be opened, in terms of this program's options.
pub(super) fn cannot(error: &dyn std::fmt::Display) -> PlanError {
    let text = error.to_string().replace("[server] listen", "--listen or --from");
    let is_of_files = text.contains("Too many open files");
    PlanError(if is_of_files { format!("{text}; {FILES_REMEDY}") } else { text })
}

/// Works as [`cannot`]; if any port would have done, all of them are taken.
pub(super) fn cannot_bind(error: &BindError) -> PlanError {
    let BindError { transport, address, cause } = error;
    if address.port() == 0 && cause.kind() == io::ErrorKind::AddrInUse {
        let transport = transport.as_str().to_ascii_lowercase();
        let ip = address.ip();
        return PlanError(format!(
            "no {transport} port of {ip} is free; {PORTS_REMEDY}, or use fewer sockets (--sockets, --threads)"
        ));
    }
    cannot(error)
}

/// Counters of an end's links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Datagrams that the kernel dropped because this end was too slow to read them.
    pub kernel_drops: u64,
    /// Messages that could not be sent, because of a full queue or an error of the kernel.
    pub send_failures: u64,
    /// ICMP errors: no listener there, or no route.
    pub unreachable: u64,
    /// Datagrams, or messages on connections, received.
    pub received: u64,
    /// Datagrams, or messages on connections, sent.
    pub sent: u64,
    /// Sent datagrams that left in one segmented packet with others.
    pub segmented: u64,
    /// Connections opened.
    pub connected: u64,
    /// Connections that could not be opened or were lost.
    pub broken: u64,
    /// Connections that could not be opened because files or ports were exhausted.
    pub exhausted: u64,
    /// Those of `exhausted` that lacked a file.
    pub out_of_files: u64,
    /// Messages that were received by another thread than their call's and handed over.
    pub handed_over: u64,
    /// Handed-over messages that were dropped for lack of room.
    pub handover_drops: u64,
}

impl LinkCounts {
    /// Adds the counts of another.
    pub fn merge(&mut self, other: &Self) {
        self.kernel_drops += other.kernel_drops;
        self.send_failures += other.send_failures;
        self.unreachable += other.unreachable;
        self.received += other.received;
        self.sent += other.sent;
        self.segmented += other.segmented;
        self.connected += other.connected;
        self.broken += other.broken;
        self.exhausted += other.exhausted;
        self.out_of_files += other.out_of_files;
        self.handed_over += other.handed_over;
        self.handover_drops += other.handover_drops;
    }

    /// Returns the limit of this machine that kept connections from being opened, with the remedy; `None` if there
    /// was none.
    #[must_use]
    pub fn exhaustion(&self) -> Option<String> {
        let Self { exhausted, out_of_files, .. } = *self;
        let ports = exhausted - out_of_files;
        if out_of_files > 0 {
            return Some(format!(
                "{out_of_files} connections could not be opened because too many files were open; {FILES_REMEDY}, or use \
                 fewer connections (--connections, fewer calls at once)"
            ));
        }
        (ports > 0).then(|| format!("{ports} connections could not be opened because no port was free; {PORTS_REMEDY}"))
    }

    /// Returns the counts since `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            kernel_drops: self.kernel_drops - earlier.kernel_drops,
            send_failures: self.send_failures - earlier.send_failures,
            unreachable: self.unreachable - earlier.unreachable,
            received: self.received - earlier.received,
            sent: self.sent - earlier.sent,
            segmented: self.segmented - earlier.segmented,
            connected: self.connected - earlier.connected,
            broken: self.broken - earlier.broken,
            exhausted: self.exhausted - earlier.exhausted,
            out_of_files: self.out_of_files - earlier.out_of_files,
            handed_over: self.handed_over - earlier.handed_over,
            handover_drops: self.handover_drops - earlier.handover_drops,
        }
    }
}

/// Datagram sockets of an end.
#[derive(Debug)]
pub(super) struct Datagrams {
    pub sockets: Vec<Socket>,
    dirty: Vec<u32>,
    /// Sockets of `dirty` that are being flushed; the memory is reused.
    leaving: Vec<u32>,
    spare: Vec<u8>,
}

/// A socket and the datagrams that wait to leave it.
#[derive(Debug)]
pub(super) struct Socket {
    pub socket: UdpSocket,
    batch: SendBatch,
    is_dirty: bool,
    unreachable: u64,
}

impl Datagrams {
    /// Opens one socket on each of the addresses, with the plan's options.
    pub(super) fn bind(addresses: &[SocketAddr], plan: &Plan) -> Result<Self, PlanError> {
        let bind = |address: &SocketAddr| UdpSocket::bind(*address, plan.buffers);
        Self::of(addresses.iter().map(bind), plan.has_segmentation)
    }

    /// Opens sockets on the same addresses for another thread.
    pub(super) fn sibling(&self, plan: &Plan) -> Result<Self, PlanError> {
        Self::of(self.sockets.iter().map(|socket| socket.socket.sibling()), plan.has_segmentation)
    }

    fn of(sockets: impl Iterator<Item = Result<UdpSocket, BindError>>, joins: bool) -> Result<Self, PlanError> {
        let is_allowed = joins.then(|| Arc::new(AtomicBool::new(true)));
        let sockets = sockets.map(|socket| {
            let mut socket = socket.map_err(|error| cannot_bind(&error))?;
            if let Some(is_allowed) = &is_allowed {
                let joined = socket.enable_segmentation(Arc::clone(is_allowed));
                joined.map_err(|error| {
                    PlanError(format!("this kernel has no UDP_SEGMENT ({error}); leave out --segmentation"))
                })?;
            }
            Ok(Socket { socket, batch: SendBatch::new(), is_dirty: false, unreachable: 0 })
        });
        let sockets = sockets.collect::<Result<_, PlanError>>()?;
        Ok(Self { sockets, dirty: Vec::new(), leaving: Vec::new(), spare: Vec::new() })
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.iter().map(|socket| socket.socket.local_addr()).collect()
    }

    pub(super) fn register(&mut self, registry: &Registry, token: impl Fn(u32) -> Token) -> io::Result<()> {
        for (index, socket) in (0..).zip(&mut self.sockets) {
            registry.register(&mut socket.socket, token(index), Interest::READABLE | Interest::WRITABLE)?;
        }
        Ok(())
    }

    /// Sends everything that waits; returns whether all was sent.
    pub(super) fn flush(&mut self) {
        std::mem::swap(&mut self.dirty, &mut self.leaving);
        for index in self.leaving.drain(..) {
            if let Some(socket) = self.sockets.get_mut(index as usize) {
                socket.is_dirty = false;
                if socket.flush() == Flush::Blocked {
                    socket.is_dirty = true;
                    self.dirty.push(index);
                }
            }
        }
    }

    pub(super) fn take_errors(&mut self, index: u32) {
        if let Some(socket) = self.sockets.get_mut(index as usize) {
            while let Some(error) = socket.socket.poll_error() {
                socket.unreachable += u64::from(is_unreachable(error));
            }
        }
    }

    pub(super) fn counts(&self) -> LinkCounts {
        let mut counts = LinkCounts::default();
        for socket in &self.sockets {
            let Counters { received, kernel_drops, sent, segmented: joined, send_errors, send_overflow, .. } =
                *socket.socket.counters();
            counts.merge(&LinkCounts {
                kernel_drops,
                send_failures: send_errors + send_overflow,
                unreachable: socket.unreachable,
                received,
                sent,
                segmented: joined,
                ..LinkCounts::default()
            });
        }
        counts
    }
}

impl Socket {
    fn flush(&mut self) -> Flush {
        let unreachable = &mut self.unreachable;
        self.socket.send(&mut self.batch, |error| *unreachable += u64::from(is_unreachable(error)))
    }
}

const fn is_unreachable(error: PeerError) -> bool {
    matches!(error.cause, Cause::Refused | Cause::Unreachable | Cause::Forbidden)
}

impl Outbox for Datagrams {
    fn slot(&mut self, link: u32) -> &mut Vec<u8> {
        match self.sockets.get_mut(link as usize) {
            Some(socket) => socket.batch.next_slot(),
            None => {
                self.spare.clear();
                &mut self.spare
            }
        }
    }

    fn commit(&mut self, link: u32, peer: SocketAddr, call: u64) {
        let Some(socket) = self.sockets.get_mut(link as usize) else { return };
        // Calls are identified by hashes, any part of which serves as well as the whole.
        socket.batch.commit(peer, OrderingKey::new(call as u16));
        if !std::mem::replace(&mut socket.is_dirty, true) {
            self.dirty.push(link);
        }
        if socket.batch.is_full() {
            let _ = socket.flush();
        }
    }

    fn connect(&mut self, _: SocketAddr, _: bool) -> Option<u32> {
        None
    }

    fn close(&mut self, _: u32) {}
}
