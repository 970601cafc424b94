//! The relay between a process that has the sockets and one before it that still has transactions.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use strowger_worker::{ProcessLink, RelayKind, RelayedMessage};

use crate::relay_frame::{MAX_RELAYED_BYTES, RelayFrame};

/// Maximum number of frames that wait for the other process. Further ones are dropped and counted.
pub const MAX_RELAY_QUEUE: usize = 8192;

/// How long sending waits before it looks whether the relay is to end.
const SEND_TIMEOUT: Duration = Duration::from_millis(200);

/// One end of a relay: a socket that keeps the boundaries of frames.
#[derive(Debug)]
pub struct RelayEnd(OwnedFd);

impl RelayEnd {
    /// Creates both ends.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(one), Self(other)))
    }

    /// Takes an end that another process has sent.
    #[must_use]
    pub const fn from_descriptor(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }
}

impl AsFd for RelayEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A frame to send, or the end.
#[derive(Debug)]
enum Job {
    Frame(Vec<u8>),
    End,
}

/// The sending side of a relay.
#[derive(Clone, Debug)]
pub struct RelayLink(SyncSender<Job>);

impl RelayLink {
    /// Queues a frame; returns whether there was room.
    pub fn send(&self, frame: &RelayFrame<'_>) -> bool {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        self.0.try_send(Job::Frame(bytes)).is_ok()
    }
}

impl ProcessLink for RelayLink {
    fn relay(&self, kind: RelayKind, message: RelayedMessage<'_>) -> bool {
        self.send(&RelayFrame::Message(kind, message))
    }
}

/// A running relay. Dropping it ends it.
#[derive(Debug)]
pub struct Relay {
    end: Arc<RelayEnd>,
    link: RelayLink,
    sender: Option<JoinHandle<()>>,
    receiver: Option<JoinHandle<()>>,
    is_ending: Arc<AtomicBool>,
    /// Ends the receiver.
    wake: Arc<OwnedFd>,
}

impl Relay {
    /// Starts the threads of one end. `on_frame` gets each frame that arrives; `on_end` is called if the other process
    /// ends, but not after [`stop`](Self::stop).
    ///
    /// # Errors
    /// When the process has no file descriptor or thread left.
    pub fn start(
        end: RelayEnd,
        mut on_frame: impl FnMut(RelayFrame<'_>) + Send + 'static,
        on_end: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        set_socket_timeout(&end, Timeout::Send, Some(SEND_TIMEOUT))?;
        let (end, wake) = (Arc::new(end), Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?));
        let (jobs, waiting) = mpsc::sync_channel(MAX_RELAY_QUEUE);
        let is_ending = Arc::new(AtomicBool::new(false));
        // On an error after this point, dropping the relay ends what was started.
        let mut relay = Self {
            end: Arc::clone(&end),
            link: RelayLink(jobs),
            sender: None,
            receiver: None,
            is_ending: Arc::clone(&is_ending),
            wake: Arc::clone(&wake),
        };
        let socket = Arc::clone(&end);
        let sending = move || send_all(&socket, &waiting, &is_ending);
        relay.sender = Some(thread::Builder::new().name("relay-send".to_owned()).spawn(sending)?);
        let receiving = move || {
            if receive_all(&end, &wake, &mut on_frame) {
                on_end();
            }
        };
        relay.receiver = Some(thread::Builder::new().name("relay-receive".to_owned()).spawn(receiving)?);
        Ok(relay)
    }

    /// Returns the sending side.
    #[must_use]
    pub fn link(&self) -> RelayLink {
        self.link.clone()
    }

    /// Sends what is queued and ends the threads, so that another process can go on with the socket: returns it. Frames
    /// that arrive are left in it.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn stop(mut self) -> io::Result<RelayEnd> {
        self.join();
        Ok(RelayEnd(self.end.as_fd().try_clone_to_owned()?))
    }

    fn join(&mut self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        if let Some(receiver) = self.receiver.take() {
            // It is the receiver itself that may drop the relay.
            if receiver.thread().id() != thread::current().id() {
                drop(receiver.join());
            }
        }
        self.is_ending.store(true, Ordering::Release);
        // A full queue moves on, or the sender has seen the flag.
        drop(self.link.0.send(Job::End));
        if let Some(sender) = self.sender.take() {
            drop(sender.join());
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.join();
    }
}

fn send_all(socket: &RelayEnd, waiting: &Receiver<Job>, is_ending: &AtomicBool) {
    while let Ok(Job::Frame(frame)) = waiting.recv() {
        loop {
            match send(socket, &frame, SendFlags::NOSIGNAL) {
                Err(Errno::AGAIN) if is_ending.load(Ordering::Acquire) => return,
                Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => {}
                // The other process has ended.
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => return,
                // A frame that is too long, or as well lost.
                Ok(_) | Err(_) => break,
            }
        }
    }
}

/// Receives until the other process ends, and returns `true`, or until woken.
fn receive_all(socket: &RelayEnd, wake: &OwnedFd, on_frame: &mut impl FnMut(RelayFrame<'_>)) -> bool {
    let mut buffer = vec![0; MAX_RELAYED_BYTES + 1024];
    loop {
        let mut polled = [PollFd::new(socket, PollFlags::IN), PollFd::new(wake, PollFlags::IN)];
        match poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return true,
        }
        let [_, woken] = polled;
        if woken.revents().contains(PollFlags::IN) {
            return false;
        }
        match recv(socket, &mut buffer[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return true,
            Ok((_, length)) => {
                if let Some(frame) = RelayFrame::read(buffer.get(..length).unwrap_or_default()) {
                    on_frame(frame);
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use strowger_foundation::{Flow, ListenerId, ShardId, Timestamp, Transport};

    use super::*;

    fn message(bytes: &[u8]) -> RelayedMessage<'_> {
        let flow = Flow::new(ListenerId(1), Transport::Udp, ([127, 0, 0, 1], 5060).into());
        RelayedMessage { shard: ShardId(3), flow, arrival: Timestamp::from_millis(5), bytes }
    }

    /// A relay that reports the bytes of its messages, and its end as nothing.
    fn reporting(end: RelayEnd) -> (Relay, Receiver<Option<Vec<u8>>>) {
        let (report, reported) = channel();
        let ended = report.clone();
        let on_frame = move |frame: RelayFrame<'_>| {
            let RelayFrame::Message(RelayKind::Deliver, message) = frame else { panic!("a message") };
            report.send(Some(message.bytes.to_vec())).unwrap();
        };
        (Relay::start(end, on_frame, move || ended.send(None).unwrap()).unwrap(), reported)
    }

    #[test]
    fn a_successor_goes_on_with_the_relay_without_a_lost_frame() {
        let (one, other) = RelayEnd::pair().unwrap();
        let (_old, reported) = reporting(other);
        let (new, _) = reporting(one);
        assert!((0..100_u8).all(|number| new.link().relay(RelayKind::Deliver, message(&[number]))));
        let (newer, _) = reporting(new.stop().unwrap());
        assert!((100..200_u8).all(|number| newer.link().relay(RelayKind::Deliver, message(&[number]))));
        for number in 0..200 {
            assert_eq!(reported.recv().unwrap(), Some(vec![number]));
        }
        drop(newer);
        assert_eq!(reported.recv().unwrap(), None, "the other end is told of the end");
    }

    #[test]
    fn a_relay_whose_other_end_is_gone_takes_frames_and_ends() {
        let (one, other) = RelayEnd::pair().unwrap();
        let (relay, reported) = reporting(one);
        drop(other);
        assert_eq!(reported.recv().unwrap(), None);
        let link = relay.link();
        link.relay(RelayKind::Deliver, message(b"into the void"));
        drop(relay);
        assert!(!link.relay(RelayKind::Deliver, message(b"no longer")));
    }
}
