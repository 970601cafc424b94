//! The socket between the two processes.

use std::fmt::{self, Display, Formatter};
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use crate::frame::{HEAD, Head, Kind, MAX_DESCRIPTORS};

/// Why a message did not arrive.
#[derive(Debug)]
pub enum ChannelError {
    /// The other process has ended, or closed the channel.
    Closed,
    /// It did not answer in time.
    Timeout,
    /// It sent something that this version does not understand.
    Protocol(&'static str),
    /// The system refused.
    System(io::Error),
}

impl Display for ChannelError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the other process has ended"),
            Self::Timeout => f.write_str("the other process does not answer in time"),
            Self::Protocol(what) => write!(f, "the other process sent {what}; it may be of another version"),
            Self::System(error) => write!(f, "the channel to the other process fails: {error}"),
        }
    }
}

impl std::error::Error for ChannelError {}

impl From<io::Error> for ChannelError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Timeout,
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Closed,
            _ => Self::System(error),
        }
    }
}

/// A received frame.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) payload: Vec<u8>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// A socket between two processes that carries frames and descriptors.
#[derive(Debug)]
pub struct Channel {
    stream: UnixStream,
}

impl Channel {
    /// Creates both ends. The second is the standard input of the other process.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (stream, other) = UnixStream::pair()?;
        Ok((Self { stream }, other.into()))
    }

    /// Takes the end that was inherited.
    ///
    /// # Errors
    /// When the descriptor is no Unix socket.
    pub fn from_descriptor(descriptor: OwnedFd) -> io::Result<Self> {
        let stream = UnixStream::from(descriptor);
        stream.peer_addr()?;
        Ok(Self { stream })
    }

    pub(crate) fn send(
        &self,
        kind: Kind,
        payload: &[u8],
        descriptors: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> Result<(), ChannelError> {
        let head = Head { kind, descriptors: descriptors.len(), length: payload.len() };
        let head = head.to_bytes().ok_or(ChannelError::Protocol("more than fits into a frame"))?;
        self.stream.set_write_timeout(Some(left(deadline)?))?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(ChannelError::Protocol("too many descriptors"));
        }
        let sent = sendmsg(&self.stream, &[IoSlice::new(&head)], &mut ancillary, SendFlags::NOSIGNAL)
            .map_err(io::Error::from)?;
        if sent < HEAD {
            (&self.stream).write_all(head.get(sent..).unwrap_or_default())?;
        }
        (&self.stream).write_all(payload)?;
        Ok(())
    }

    pub(crate) fn receive(&self, deadline: Instant) -> Result<Frame, ChannelError> {
        let mut head = [0; HEAD];
        let mut descriptors = Vec::new();
        let mut got = 0;
        while got < HEAD {
            self.stream.set_read_timeout(Some(left(deadline)?))?;
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let rest = head.get_mut(got..).unwrap_or_default();
            let parts = &mut [IoSliceMut::new(rest)];
            let received =
                recvmsg(&self.stream, parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC).map_err(io::Error::from)?;
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    descriptors.extend(rights);
                }
            }
            if received.bytes == 0 {
                return Err(ChannelError::Closed);
            }
            got += received.bytes;
        }
        let head = Head::read(head).ok_or(ChannelError::Protocol("an unknown message"))?;
        if descriptors.len() != head.descriptors {
            return Err(ChannelError::Protocol("another number of descriptors than announced"));
        }
        let mut payload = vec![0; head.length];
        let mut filled = 0;
        while filled < head.length {
            self.stream.set_read_timeout(Some(left(deadline)?))?;
            match (&self.stream).read(payload.get_mut(filled..).unwrap_or_default())? {
                0 => return Err(ChannelError::Closed),
                more => filled += more,
            }
        }
        Ok(Frame { kind: head.kind, payload, descriptors })
    }
}

/// Returns the time until a deadline.
fn left(deadline: Instant) -> Result<Duration, ChannelError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ChannelError::Timeout) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};
    use std::os::fd::AsFd as _;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[test]
    fn frames_arrive_with_their_descriptors_in_order() {
        let (one, other) = Channel::pair().unwrap();
        let other = Channel::from_descriptor(other).unwrap();
        let (mut reader, writer) = UnixStream::pair().unwrap();
        let long = vec![7; 300_000];
        let sender = std::thread::spawn(move || {
            one.send(Kind::Hello, b"hello", &[], soon()).unwrap();
            one.send(Kind::Sockets, &long, &[writer.as_fd()], soon()).unwrap();
            one.send(Kind::Complete, b"", &[], soon()).unwrap();
        });
        let first = other.receive(soon()).unwrap();
        assert_eq!((first.kind, first.payload.as_slice(), first.descriptors.len()), (Kind::Hello, &b"hello"[..], 0));
        let mut second = other.receive(soon()).unwrap();
        assert_eq!((second.kind, second.payload.len(), second.descriptors.len()), (Kind::Sockets, 300_000, 1));
        let mut written = UnixStream::from(second.descriptors.remove(0));
        written.write_all(b"through it").unwrap();
        let mut read = [0; 10];
        reader.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"through it");
        assert_eq!(other.receive(soon()).unwrap().kind, Kind::Complete);
        sender.join().unwrap();
        assert!(matches!(other.receive(soon()), Err(ChannelError::Closed)));
    }

    #[test]
    fn silence_nonsense_and_other_descriptors_are_errors() {
        let (one, other) = Channel::pair().unwrap();
        let past = Instant::now() + Duration::from_millis(1);
        assert!(matches!(one.receive(past), Err(ChannelError::Timeout)));
        UnixStream::from(other).write_all(b"\xffnonsense").unwrap();
        assert!(matches!(one.receive(soon()), Err(ChannelError::Protocol(_))));
        let mut file = std::fs::File::open("/dev/null").unwrap();
        let _ = file.rewind();
        assert!(Channel::from_descriptor(file.into()).is_err());
    }
}
