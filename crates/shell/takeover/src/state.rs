//! What the running process hands over, in pieces.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use strowger_worker::{FleetHandover, ListenerHandover};

use crate::channel::{Channel, ChannelError};
use crate::frame::{Kind, MAX_PAYLOAD};
use crate::relay::RelayEnd;

/// Maximum number of keys of transactions, of all processes together.
pub const MAX_KEYS: usize = 1 << 23;

/// Maximum length of all sections together.
pub const MAX_SECTION_BYTES: usize = 1 << 28;

/// Maximum length of everything.
pub const MAX_STATE_BYTES: usize = 1 << 32;

/// Length from which a piece of registrations is sent.
const PIECE: usize = MAX_PAYLOAD / 4;

/// Sockets of a worker and a listener.
#[derive(Debug)]
pub struct WorkerSockets {
    /// The worker.
    pub worker: usize,
    /// The listener.
    pub listener: usize,
    /// The sockets.
    pub sockets: ListenerHandover,
}

/// What is known of a process that still has transactions or connections. Fields may be added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PredecessorInfo {
    /// Its process id; 0 if it is unknown.
    pub pid: u32,
    /// Version of its program.
    pub version: String,
    /// When it was replaced, in nanoseconds of the clock that all share.
    pub replaced_at: u64,
    /// Number of its transactions, as last reported.
    pub transactions: u64,
    /// Number of its connections.
    pub connections: u64,
}

/// A process that still has transactions or connections.
#[derive(Debug)]
pub struct PredecessorState {
    /// Its number.
    pub process: u8,
    /// What is known of it.
    pub info: PredecessorInfo,
    /// The relay to it.
    pub relay: RelayEnd,
    /// Halves of the keys of its server transactions.
    pub keys: Vec<u64>,
}

/// State of a part of the server that the protocol does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name, such as `calls`.
    pub name: String,
    /// Version of its format.
    pub version: u32,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// What was handed over, besides registrations.
#[derive(Debug, Default)]
pub struct State {
    /// Sockets of the workers.
    pub sockets: Vec<WorkerSockets>,
    /// Processes that still have transactions.
    pub predecessors: Vec<PredecessorState>,
    /// Descriptors by name: the listeners of control socket and administration.
    pub extras: Vec<(String, OwnedFd)>,
    /// Opaque sections.
    pub sections: Vec<Section>,
}

#[derive(Serialize, Deserialize)]
struct SocketsHead {
    worker: usize,
    listener: usize,
    drops: [u32; 2],
    has_socket: bool,
}

#[derive(Serialize, Deserialize)]
struct SectionHead {
    name: String,
    version: u32,
}

/// Sends the state.
#[derive(Debug)]
pub struct StateSender<'c> {
    channel: &'c Channel,
    deadline: Instant,
    piece: Vec<u8>,
    /// Bytes sent so far.
    bytes: usize,
    keys: usize,
}

impl<'c> StateSender<'c> {
    /// Begins to send; all of it must arrive before the deadline.
    #[must_use]
    pub const fn new(channel: &'c Channel, deadline: Instant) -> Self {
        Self { channel, deadline, piece: Vec::new(), bytes: 0, keys: 0 }
    }

    fn send(&mut self, kind: Kind, payload: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        self.bytes += payload.len();
        if self.bytes > MAX_STATE_BYTES {
            return Err(ChannelError::Protocol("more state than can be handed over"));
        }
        self.channel.send(kind, payload, descriptors, self.deadline)
    }

    /// Sends the workers' sockets.
    ///
    /// # Errors
    /// When the other process has ended or is too slow; the same for all of these.
    pub fn fleet(&mut self, handover: &FleetHandover) -> Result<(), ChannelError> {
        for (worker, sockets) in handover.sockets.iter().enumerate() {
            for (listener, one) in sockets.iter().enumerate() {
                let has_socket = one.socket.is_some();
                let head = json(&SocketsHead { worker, listener, drops: one.drops, has_socket })?;
                let descriptors: Vec<_> = one.socket.iter().chain(&one.new_work).map(AsFd::as_fd).collect();
                self.send(Kind::Sockets, &head, &descriptors)?;
            }
        }
        Ok(())
    }

    /// Sends a process that still has transactions.
    ///
    /// # Errors
    /// As [`fleet`](Self::fleet), and with more than [`MAX_KEYS`].
    pub fn predecessor(
        &mut self,
        (process, info): (u8, &PredecessorInfo),
        relay: &RelayEnd,
        keys: impl Iterator<Item = u64>,
    ) -> Result<(), ChannelError> {
        let mut head = vec![process];
        head.append(&mut json(info)?);
        self.send(Kind::Predecessor, &head, &[relay.as_fd()])?;
        let mut piece = Vec::with_capacity(PIECE);
        for key in keys {
            self.keys += 1;
            piece.extend_from_slice(&key.to_le_bytes());
            if piece.len() >= PIECE {
                self.send(Kind::Keys, &piece, &[])?;
                piece.clear();
            }
        }
        if self.keys > MAX_KEYS {
            return Err(ChannelError::Protocol("more transactions than can be handed over"));
        }
        if piece.is_empty() { Ok(()) } else { self.send(Kind::Keys, &piece, &[]) }
    }

    /// Sends the state of a registered address.
    ///
    /// # Errors
    /// As [`fleet`](Self::fleet).
    pub fn registration(&mut self, record: &[u8]) -> Result<(), ChannelError> {
        let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
        if record.len() + 4 > MAX_PAYLOAD - PIECE {
            return Err(ChannelError::Protocol("a registration that is too long"));
        }
        self.piece.extend_from_slice(&length.to_le_bytes());
        self.piece.extend_from_slice(record);
        if self.piece.len() >= PIECE { self.flush_registrations() } else { Ok(()) }
    }

    fn flush_registrations(&mut self) -> Result<(), ChannelError> {
        let mut piece = std::mem::take(&mut self.piece);
        let sent = if piece.is_empty() { Ok(()) } else { self.send(Kind::Registrations, &piece, &[]) };
        piece.clear();
        self.piece = piece;
        sent
    }

    /// Sends a descriptor.
    ///
    /// # Errors
    /// As [`fleet`](Self::fleet).
    pub fn extra(&mut self, name: &str, descriptor: BorrowedFd<'_>) -> Result<(), ChannelError> {
        self.send(Kind::Extra, name.as_bytes(), &[descriptor])
    }

    /// Sends a section.
    ///
    /// # Errors
    /// As [`fleet`](Self::fleet).
    pub fn section(&mut self, section: &Section) -> Result<(), ChannelError> {
        let Section { name, version, bytes } = section;
        let head = json(&SectionHead { name: name.clone(), version: *version })?;
        let head_length = u16::try_from(head.len()).map_err(|_| ChannelError::Protocol("a long name"))?;
        let mut parts = bytes.chunks(PIECE);
        // An empty section has one part too.
        let mut part = parts.next().or(Some(&[]));
        while let Some(bytes) = part {
            let mut payload = head_length.to_le_bytes().to_vec();
            payload.extend_from_slice(&head);
            payload.extend_from_slice(bytes);
            self.send(Kind::Section, &payload, &[])?;
            part = parts.next();
        }
        Ok(())
    }

    /// Ends the state; returns its length in bytes.
    ///
    /// # Errors
    /// As [`fleet`](Self::fleet).
    pub fn complete(mut self) -> Result<usize, ChannelError> {
        self.flush_registrations()?;
        self.send(Kind::Complete, &[], &[])?;
        Ok(self.bytes)
    }
}

/// Receives the state.
#[derive(Debug)]
pub struct StateReceiver;

impl StateReceiver {
    /// Receives the state until it is complete. `on_registration` gets the state of each registered address.
    ///
    /// # Errors
    /// When the other process has ended, is too slow, or sends what is over a limit.
    pub fn receive(
        channel: &Channel,
        deadline: Instant,
        mut on_registration: impl FnMut(&[u8]),
    ) -> Result<State, ChannelError> {
        let (mut state, mut bytes, mut keys, mut section_bytes) = (State::default(), 0_usize, 0, 0);
        loop {
            let mut frame = channel.receive(deadline)?;
            bytes += frame.payload.len();
            if bytes > MAX_STATE_BYTES {
                return Err(ChannelError::Protocol("more state than is allowed"));
            }
            match frame.kind {
                Kind::Sockets => state.sockets.push(sockets(&frame.payload, frame.descriptors)?),
                Kind::Predecessor => {
                    let (Some((&process, info)), Some(relay)) = (frame.payload.split_first(), frame.descriptors.pop())
                    else {
                        return Err(ChannelError::Protocol("a process without a relay"));
                    };
                    let info = serde_json::from_slice(info);
                    let info = info.map_err(|_| ChannelError::Protocol("a process with unknown fields"))?;
                    let relay = RelayEnd::from_descriptor(relay);
                    state.predecessors.push(PredecessorState { process, info, relay, keys: Vec::new() });
                }
                Kind::Keys => {
                    let (found, _) = frame.payload.as_chunks();
                    keys += found.len();
                    let last = state.predecessors.last_mut().filter(|_| keys <= MAX_KEYS);
                    let last = last.ok_or(ChannelError::Protocol("keys of no process, or too many"))?;
                    last.keys.extend(found.iter().copied().map(u64::from_le_bytes));
                }
                Kind::Registrations => for_each_record(&frame.payload, &mut on_registration)?,
                Kind::Extra => {
                    let name = String::from_utf8(frame.payload).map_err(|_| ChannelError::Protocol("a bad name"))?;
                    let descriptor = frame.descriptors.pop().ok_or(ChannelError::Protocol("no descriptor"))?;
                    state.extras.push((name, descriptor));
                }
                Kind::Section => {
                    section_bytes += frame.payload.len();
                    if section_bytes > MAX_SECTION_BYTES {
                        return Err(ChannelError::Protocol("longer sections than are allowed"));
                    }
                    add_section(&mut state.sections, &frame.payload)?;
                }
                Kind::Complete => return Ok(state),
                Kind::Abort => return Err(ChannelError::Closed),
                _ => return Err(ChannelError::Protocol("a message that does not belong here")),
            }
        }
    }
}

fn sockets(payload: &[u8], descriptors: Vec<OwnedFd>) -> Result<WorkerSockets, ChannelError> {
    let head: SocketsHead = serde_json::from_slice(payload).map_err(|_| ChannelError::Protocol("bad sockets"))?;
    let mut descriptors = descriptors.into_iter();
    let socket = if head.has_socket { descriptors.next() } else { None };
    let sockets = ListenerHandover { socket, new_work: descriptors.next(), drops: head.drops };
    Ok(WorkerSockets { worker: head.worker, listener: head.listener, sockets })
}

fn for_each_record(mut piece: &[u8], on_record: &mut impl FnMut(&[u8])) -> Result<(), ChannelError> {
    const CUT: ChannelError = ChannelError::Protocol("a registration that is cut off");
    while !piece.is_empty() {
        let (length, rest) = piece.split_first_chunk().ok_or(CUT)?;
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| CUT)?;
        let (record, rest) = rest.split_at_checked(length).ok_or(CUT)?;
        on_record(record);
        piece = rest;
    }
    Ok(())
}

fn add_section(sections: &mut Vec<Section>, payload: &[u8]) -> Result<(), ChannelError> {
    const BAD: ChannelError = ChannelError::Protocol("a bad section");
    let (length, rest) = payload.split_first_chunk().ok_or(BAD)?;
    let (head, bytes) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length))).ok_or(BAD)?;
    let SectionHead { name, version } = serde_json::from_slice(head).map_err(|_| BAD)?;
    match sections.last_mut() {
        Some(last) if last.name == name && last.version == version => last.bytes.extend_from_slice(bytes),
        _ => sections.push(Section { name, version, bytes: bytes.to_vec() }),
    }
    Ok(())
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, ChannelError> {
    serde_json::to_vec(value).map_err(|error| ChannelError::System(error.into()))
}

/// A reply of the new process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It has loaded what is not handed over; with the version of its program.
    Ready(String),
    /// It has everything and can go on.
    Prepared,
    /// It cannot take over, for this reason.
    Refused(String),
}

/// Sends a reply.
///
/// # Errors
/// When the other process has ended.
pub fn send_reply(channel: &Channel, reply: &Reply, deadline: Instant) -> Result<(), ChannelError> {
    let (kind, text) = match reply {
        Reply::Ready(version) => (Kind::Ready, version.as_str()),
        Reply::Prepared => (Kind::Prepared, ""),
        Reply::Refused(reason) => (Kind::Refused, reason.as_str()),
    };
    channel.send(kind, text.get(..MAX_PAYLOAD).unwrap_or(text).as_bytes(), &[], deadline)
}

/// Receives a reply.
///
/// # Errors
/// When the new process has ended or is too slow.
pub fn receive_reply(channel: &Channel, deadline: Instant) -> Result<Reply, ChannelError> {
    let frame = channel.receive(deadline)?;
    let text = String::from_utf8_lossy(&frame.payload).into_owned();
    match frame.kind {
        Kind::Ready => Ok(Reply::Ready(text)),
        Kind::Prepared => Ok(Reply::Prepared),
        Kind::Refused => Ok(Reply::Refused(text)),
        _ => Err(ChannelError::Protocol("no reply")),
    }
}

/// The last word of the old process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// The new process serves.
    Go,
    /// The old process goes on.
    Abort,
}

impl Go {
    /// Sends it.
    ///
    /// # Errors
    /// When the new process has ended.
    pub fn send(self, channel: &Channel, deadline: Instant) -> Result<(), ChannelError> {
        channel.send(if self == Self::Go { Kind::Go } else { Kind::Abort }, &[], &[], deadline)
    }
}

/// Receives the last word of the old process. If that has ended without one, the new process is the only one that has the
/// sockets, and goes on.
///
/// # Errors
/// When there is no word in time.
pub fn receive_go(channel: &Channel, deadline: Instant) -> Result<Go, ChannelError> {
    match channel.receive(deadline) {
        Ok(frame) if frame.kind == Kind::Go => Ok(Go::Go),
        Ok(frame) if frame.kind == Kind::Abort => Ok(Go::Abort),
        Ok(_) => Err(ChannelError::Protocol("no decision")),
        Err(ChannelError::Closed) => Ok(Go::Go),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    fn descriptor() -> OwnedFd {
        UnixStream::pair().unwrap().0.into()
    }

    #[test]
    fn everything_arrives_as_it_was_sent() {
        let (old, new) = Channel::pair().unwrap();
        let new = Channel::from_descriptor(new).unwrap();
        let long = Section { name: "calls".to_owned(), version: 3, bytes: vec![9; 3 * PIECE + 5] };
        let empty = Section { name: "nothing".to_owned(), version: 1, bytes: Vec::new() };
        let sent = (long.clone(), empty.clone());
        let sender = std::thread::spawn(move || {
            let mut state = StateSender::new(&old, soon());
            let udp = ListenerHandover { socket: Some(descriptor()), new_work: Some(descriptor()), drops: [1, 2] };
            let closed = ListenerHandover::default();
            state.fleet(&FleetHandover { sockets: vec![vec![udp, closed]], keys: Vec::new() }).unwrap();
            let (relay, _other) = RelayEnd::pair().unwrap();
            let info =
                PredecessorInfo { pid: 70, version: "0.9".to_owned(), connections: 3, ..PredecessorInfo::default() };
            state.predecessor((7, &info), &relay, 0..200_000).unwrap();
            state.predecessor((8, &PredecessorInfo::default()), &relay, std::iter::empty()).unwrap();
            (0..10_000_u32).for_each(|number| state.registration(&number.to_be_bytes()).unwrap());
            state.extra("control", descriptor().as_fd()).unwrap();
            state.section(&sent.0).unwrap();
            state.section(&sent.1).unwrap();
            assert!(state.complete().unwrap() > 200_000 * 8);
            assert_eq!(receive_reply(&old, soon()).unwrap(), Reply::Prepared);
            Go::Go.send(&old, soon()).unwrap();
        });
        let mut records = 0_u32;
        let state = StateReceiver::receive(&new, soon(), |record| {
            assert_eq!(record, records.to_be_bytes());
            records += 1;
        });
        let state = state.unwrap();
        assert_eq!(records, 10_000);
        let [udp, closed] = &state.sockets[..] else { panic!("two") };
        assert!(udp.sockets.socket.is_some() && udp.sockets.new_work.is_some() && udp.sockets.drops == [1, 2]);
        assert!((closed.worker, closed.listener) == (0, 1) && closed.sockets.socket.is_none());
        let [one, other] = &state.predecessors[..] else { panic!("two") };
        assert!((one.process, other.process) == (7, 8) && one.keys.iter().copied().eq(0..200_000));
        assert!(one.info.pid == 70 && one.info.version == "0.9" && one.info.connections == 3);
        assert!(other.keys.is_empty() && state.extras[0].0 == "control");
        assert_eq!(state.sections, [long, empty]);
        send_reply(&new, &Reply::Prepared, soon()).unwrap();
        assert_eq!(receive_go(&new, soon()).unwrap(), Go::Go);
        sender.join().unwrap();
        assert_eq!(receive_go(&new, soon()).unwrap(), Go::Go, "the other process is gone");
    }

    proptest! {
        #[test]
        fn pieces_are_read_without_a_panic(bytes: Vec<u8>) {
            let mut length = 0;
            let whole = for_each_record(&bytes, &mut |record| length += record.len() + 4).is_ok();
            prop_assert!(length <= bytes.len() && (!whole || length == bytes.len()));
            let mut sections = Vec::new();
            let _ = add_section(&mut sections, &bytes);
            prop_assert!(sections.len() <= 1);
        }
    }
}
