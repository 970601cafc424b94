//! Messages on their way between threads that listen at one address.
//!
//! The kernel chooses by the sender's address whose socket a message comes to, so the parts of one call may come to several
//! threads: from a proxy that does not stay on the way, over several connections, from a caller with several sockets. Each call
//! belongs to one thread by its Call-ID ([`Partition`]). Whoever has a message of another's call hands it over, and what is to
//! leave by a connection of another thread goes back to that. Nobody waits: a full queue drops datagrams, and counts them;
//! what came by a connection is kept, and no more is read of connections until there is room.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use mio::{Registry, Token, Waker};
use strowger_foundation::Timestamp;

use super::links::LinkCounts;
use crate::driver::Partition;

/// Maximum number of messages that wait for a thread.
const QUEUE: usize = 4_096;
/// Maximum number of messages of connections in the backlog of a full queue; further ones are dropped and counted.
const MAX_BACKLOG: usize = 65_536;

/// What the receiving thread does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandoverKind {
    /// Delivers it to a call of that thread; it arrived at this time.
    Deliver(Timestamp),
    /// Sends it on a connection of that thread.
    Send,
    /// Notes that the connection is closed.
    Closed,
}

/// A message with its source or destination.
#[derive(Debug)]
pub(super) struct HandoverMessage {
    pub errand: HandoverKind,
    pub link: u32,
    pub peer: SocketAddr,
    pub bytes: Vec<u8>,
}

/// A thread's inbox and its queues to the other threads.
#[derive(Debug)]
pub(super) struct Mailbox {
    pub share: Partition,
    /// Whether messages wait in a backlog if a queue is full: those of connections do.
    keeps: bool,
    inbox: Receiver<HandoverMessage>,
    /// Next message of the inbox, if one was peeked at.
    next: Option<HandoverMessage>,
    ways: Vec<ThreadQueue>,
    bells: Arc<[ThreadWaker]>,
    pub counts: LinkCounts,
}

/// The queue to another thread.
#[derive(Debug)]
struct ThreadQueue {
    queue: SyncSender<HandoverMessage>,
    kept: VecDeque<HandoverMessage>,
    /// Whether messages were queued since the owner was woken.
    is_fresh: bool,
}

/// Wakes a thread that waits in the kernel, and costs nothing otherwise.
#[derive(Debug)]
pub(super) struct ThreadWaker {
    is_parked: AtomicBool,
    waker: Waker,
}

impl ThreadWaker {
    pub(super) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        Ok(Self { is_parked: AtomicBool::new(false), waker: Waker::new(registry, token)? })
    }

    fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.is_parked.load(Ordering::Relaxed) && self.is_parked.swap(false, Ordering::Relaxed) {
            // Without it the thread wakes some milliseconds later.
            let _ = self.waker.wake();
        }
    }
}

impl Mailbox {
    /// Creates the mailboxes of the threads with these wakers.
    pub(super) fn mailboxes(bells: Vec<ThreadWaker>, keeps: bool) -> Vec<Self> {
        let of = u32::try_from(bells.len()).unwrap_or(u32::MAX);
        let bells: Arc<[ThreadWaker]> = bells.into();
        let (queues, inboxes): (Vec<_>, Vec<_>) = bells.iter().map(|_| sync_channel(QUEUE)).unzip();
        let way = |queue: &SyncSender<_>| ThreadQueue { queue: queue.clone(), kept: VecDeque::new(), is_fresh: false };
        let post = |(index, inbox)| Self {
            share: Partition { index, of },
            keeps,
            inbox,
            next: None,
            ways: queues.iter().map(way).collect(),
            bells: Arc::clone(&bells),
            counts: LinkCounts::default(),
        };
        (0..).zip(inboxes).map(post).collect()
    }

    /// Sends a message to the thread `to`.
    pub(super) fn send(&mut self, to: u32, handed: HandoverMessage) {
        let Some(way) = self.ways.get_mut(to as usize) else { return };
        self.counts.handed_over += u64::from(matches!(handed.errand, HandoverKind::Deliver(_)));
        if way.kept.is_empty() {
            match way.queue.try_send(handed) {
                Ok(()) => way.is_fresh = true,
                Err(TrySendError::Full(handed)) => self.push_backlog(to, handed),
                // That thread has ended, and so has the run.
                Err(TrySendError::Disconnected(_)) => {}
            }
        } else {
            self.push_backlog(to, handed);
        }
    }

    fn push_backlog(&mut self, to: u32, handed: HandoverMessage) {
        let Some(way) = self.ways.get_mut(to as usize) else { return };
        let has_room = self.keeps && way.kept.len() < MAX_BACKLOG;
        // Without this message the number of a closed connection would be taken for the next one's.
        if has_room || handed.errand == HandoverKind::Closed {
            way.kept.push_back(handed);
        } else {
            self.counts.handover_drops += 1;
        }
    }

    /// Tells all other threads that a connection of ours is closed.
    pub(super) fn send_closed(&mut self, link: u32, peer: SocketAddr) {
        let Partition { index, of } = self.share;
        for to in (0..of).filter(|to| *to != index) {
            self.send(to, HandoverMessage { errand: HandoverKind::Closed, link, peer, bytes: Vec::new() });
        }
    }

    /// Returns whether a backlog exists. Nothing more is read from connections then.
    pub(super) fn is_full(&self) -> bool {
        self.ways.iter().any(|way| !way.kept.is_empty())
    }

    /// Queues the backlog as far as there is room, and wakes the threads that have new messages.
    pub(super) fn flush(&mut self) {
        for (way, bell) in self.ways.iter_mut().zip(self.bells.iter()) {
            while let Some(handed) = way.kept.pop_front() {
                match way.queue.try_send(handed) {
                    Ok(()) => way.is_fresh = true,
                    Err(TrySendError::Full(handed)) => {
                        way.kept.push_front(handed);
                        break;
                    }
                    Err(TrySendError::Disconnected(_)) => {}
                }
            }
            if std::mem::take(&mut way.is_fresh) {
                bell.wake();
            }
        }
    }

    /// Returns the next message from another thread.
    pub(super) fn poll(&mut self) -> Option<HandoverMessage> {
        self.next.take().or_else(|| self.inbox.try_recv().ok())
    }

    /// Returns whether a message waits.
    pub(super) fn has_messages(&mut self) -> bool {
        self.next = self.poll();
        self.next.is_some()
    }

    /// Announces that this thread is about to wait; returns false if it must not, because a message waits to be read
    /// or sent.
    pub(super) fn park(&mut self) -> bool {
        let Some(bell) = self.bells.get(self.share.index as usize) else { return true };
        bell.is_parked.store(true, Ordering::Relaxed);
        // A sender that queued a message while this thread looked awake has not woken it, so it looks once more.
        fence(Ordering::SeqCst);
        let may_wait = !self.is_full() && !self.has_messages();
        if !may_wait {
            self.unpark();
        }
        may_wait
    }

    /// Announces that this thread does not wait.
    pub(super) fn unpark(&self) {
        if let Some(bell) = self.bells.get(self.share.index as usize) {
            bell.is_parked.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use mio::Poll;

    use super::*;

    fn posts(keeps: bool) -> (Vec<Poll>, Vec<Mailbox>) {
        let polls: Vec<_> = (0..2).map(|_| Poll::new().expect("a poll")).collect();
        let bells = polls.iter().map(|poll| ThreadWaker::new(poll.registry(), Token(7)).expect("a bell")).collect();
        (polls, Mailbox::mailboxes(bells, keeps))
    }

    fn message(link: u32) -> HandoverMessage {
        let errand = HandoverKind::Deliver(Timestamp::from_millis(1));
        HandoverMessage { errand, link, peer: SocketAddr::from(([127, 0, 0, 1], 5060)), bytes: b"x".to_vec() }
    }

    #[test]
    fn a_full_queue_drops_datagrams_and_counts_them() {
        let (_polls, mut posts) = posts(false);
        (0..QUEUE as u32 + 3).for_each(|link| posts[0].send(1, message(link)));
        assert_eq!((posts[0].counts.handed_over, posts[0].counts.handover_drops), (QUEUE as u64 + 3, 3));
        assert!(!posts[0].is_full(), "they do not wait");
        posts[0].flush();
        assert_eq!(posts[1].poll().map(|handed| handed.link), Some(0), "the oldest first");
        posts[0].send(1, message(9));
        assert_eq!(posts[0].counts.handover_drops, 3, "there is room again");
    }

    #[test]
    fn stream_messages_wait_and_stay_in_order() {
        let (_polls, mut posts) = posts(true);
        let all = QUEUE as u32 + 100;
        (0..all).for_each(|link| posts[0].send(1, message(link)));
        let peer = message(0).peer;
        posts[0].send_closed(all, peer);
        assert!(posts[0].is_full() && !posts[0].park(), "who has something to hand over does not sleep");
        let mut found = Vec::new();
        while found.len() <= all as usize {
            let Some(handed) = posts[1].poll() else {
                posts[0].flush();
                continue;
            };
            found.push(handed.link);
        }
        assert!(found.iter().copied().eq(0..=all) && !posts[0].is_full());
        assert_eq!(posts[0].counts.handover_drops, 0);
    }

    #[test]
    fn sleepers_are_woken_and_messages_prevent_sleep() {
        let (mut polls, mut posts) = posts(false);
        assert!(posts[1].park());
        posts[0].send(1, message(1));
        posts[0].flush();
        let mut events = mio::Events::with_capacity(4);
        polls[1].poll(&mut events, None).expect("it wakes");
        assert!(events.iter().any(|event| event.token() == Token(7)));
        posts[1].unpark();
        assert!(!posts[1].park(), "a message waits");
        assert!(posts[1].poll().is_some() && posts[1].poll().is_none());
    }
}
