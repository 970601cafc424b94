//! One end of calls on a thread: passes received messages to its driver and handles what is due.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use strowger_foundation::Timestamp;
use strowger_net::{Clock, RecvBatch};

use super::readable::Readable;
use super::sockets::{LISTENER, Links};
use crate::driver::{Driver, Partition, Setup};
use crate::engine::activities::CallRole;
use crate::engine::handover::{HandoverKind, HandoverMessage, Mailbox};
use crate::engine::links::LinkCounts;
use crate::engine::plan::Plan;
use crate::engine::streams::ReadResult;
use crate::service::Service;

/// Messages of other threads handled before the sockets are checked again.
const MESSAGES_PER_TURN: usize = 256;

/// Sessions whose timers are handled before the sockets are checked again.
const TIMERS_PER_TURN: usize = 256;

/// One end: its sessions and its sockets.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) driver: Driver,
    pub(super) links: Links,
    pub(super) service: Option<Service>,
    /// Mailbox for the other threads that listen at the same address.
    post: Option<Mailbox>,
    pub(super) readable: Readable,
    /// How long the messages handled last had waited to be read.
    pub(super) waited: Duration,
    received: ReadResult,
}

impl Endpoint {
    pub(super) fn new(
        plan: &Plan,
        index: usize,
        who: CallRole,
        links: Links,
        (service, post): (Option<Service>, Option<Mailbox>),
        (remote, wall_at_zero): (SocketAddr, Duration),
    ) -> Option<Self> {
        let side = match who {
            CallRole::Caller => plan.caller.as_ref()?,
            CallRole::Callee => &plan.callee.as_ref()?.side,
        };
        let is_callee = who == CallRole::Callee;
        let setup = Setup {
            scripts: Arc::clone(&side.scripts),
            answers: side.answers.clone(),
            users: Arc::clone(&plan.users),
            remote,
            transport: plan.transport,
            connection_lifetime: if is_callee { plan.lifetime_of_callees() } else { plan.connection_lifetime },
            locals: links.addresses(),
            retransmits: plan.retransmits,
            t1: plan.t1,
            t2: plan.t1 * 8,
            max_ring: plan.max_ring,
            max_wait: plan.max_wait,
            reuses_nonces: plan.reuses_nonces,
            retries: plan.retries,
            max_sessions: plan.max_sessions,
            expected: plan.expected(),
            run: plan.run,
            number: u16::try_from(index * 2 + usize::from(is_callee)).unwrap_or(u16::MAX),
            partition: post.as_ref().map_or(Partition::SINGLE, |post| post.share),
            seed: plan.seed,
        };
        let mut driver = Driver::new(setup);
        driver.set_wall(wall_at_zero);
        let (readable, received) = (Readable::default(), ReadResult::default());
        Some(Self { driver, links, service, post, readable, waited: Duration::ZERO, received })
    }

    /// Receives a batch from a socket that has been readable since the given time; returns the index of the first
    /// message to process. Messages of a connection are processed at once.
    pub(super) fn receive(
        &mut self,
        (link, since): (u32, Timestamp),
        batch: &mut RecvBatch,
        clock: Clock,
    ) -> io::Result<usize> {
        self.waited = Duration::ZERO;
        let socket = match &mut self.links {
            Links::Udp(datagrams) => datagrams.sockets.get_mut(link as usize),
            Links::Tcp(_) => {
                self.read_stream(link, since, clock.now());
                None
            }
        };
        let Some(socket) = socket else { return Ok(batch.len()) };
        socket.socket.recv(batch)?;
        if batch.is_full() {
            self.readable.push(link, since);
        }
        Ok(0)
    }

    /// Processes up to `most` datagrams of a batch, from `next` on; returns how many it processed.
    pub(super) fn process_batch(
        &mut self,
        link: u32,
        batch: &RecvBatch,
        (next, most): (usize, usize),
        clock: Clock,
    ) -> usize {
        let Links::Udp(datagrams) = &mut self.links else { return self.received.ends.len() };
        let pair = clock.pair();
        if let Some(first) = batch.iter().nth(next) {
            self.waited = pair.monotonic.saturating_since(pair.arrival(first.arrival));
            self.driver.meter_mut().unread.record(self.waited);
        }
        let portion = batch.iter().skip(next).take(most);
        let count = portion.len();
        for datagram in portion {
            let arrived = pair.arrival(datagram.arrival);
            let from = (link, datagram.peer);
            match &mut self.service {
                Some(service) if service.applies(datagram.bytes) => {
                    service.handle_message(arrived, from, datagram.bytes);
                }
                _ => {
                    let owner = self.driver.handle_message(pair.monotonic, arrived, from, datagram.bytes, datagrams);
                    hand_over(&mut self.post, owner, arrived, from, datagram.bytes);
                }
            }
        }
        count
    }

    fn read_stream(&mut self, link: u32, since: Timestamp, now: Timestamp) {
        let Links::Tcp(streams) = &mut self.links else { return };
        if link == LISTENER {
            return streams.accept();
        }
        // There is no room for messages of other threads: nothing is read, so the peer waits and nothing is lost.
        if self.post.as_ref().is_some_and(Mailbox::is_full) {
            return self.readable.push(link, since);
        }
        streams.read(link, &mut self.received);
        let Some(peer) = self.received.peer else { return };
        // A stream has no timestamps; the time of the readiness event stands in.
        if !self.received.ends.is_empty() {
            self.waited = now.saturating_since(since);
            self.driver.meter_mut().unread.record(self.waited);
        }
        let from = (streams.global(link), peer);
        let mut start = 0;
        for end in &self.received.ends {
            let bytes = self.received.bytes.get(start..*end).unwrap_or(&[]);
            start = *end;
            match &mut self.service {
                Some(service) if service.applies(bytes) => service.handle_message(now, from, bytes),
                _ => {
                    let owner = self.driver.handle_message(now, now, from, bytes, streams.as_mut());
                    hand_over(&mut self.post, owner, now, from, bytes);
                }
            }
        }
        if self.received.is_closed {
            streams.forget(link);
            self.driver.handle_closed(now, from.0, streams.as_mut());
            if let Some(post) = &mut self.post {
                post.send_closed(from.0, peer);
            }
        }
    }

    /// Handles what is due.
    pub(super) fn turn(&mut self, now: Timestamp) {
        if let Some(service) = &mut self.service {
            while let Some(job) = service.poll_done(now) {
                let from = (job.link, job.peer);
                let owner = self.driver.handle_message(now, now, from, &job.bytes, self.links.outbox());
                hand_over(&mut self.post, owner, now, from, &job.bytes);
                service.recycle(job);
            }
        }
        for _ in 0..MESSAGES_PER_TURN {
            let Some(handed) = self.post.as_mut().and_then(Mailbox::poll) else { break };
            self.receive_handovers(handed, now);
        }
        if self.driver.poll_timeout().is_some_and(|at| at <= now) {
            self.driver.handle_timeouts(now, TIMERS_PER_TURN, self.links.outbox());
        }
    }

    /// Handles a message from another thread.
    fn receive_handovers(&mut self, handed: HandoverMessage, now: Timestamp) {
        let HandoverMessage { errand, link, peer, bytes } = handed;
        match (errand, &mut self.links) {
            (HandoverKind::Deliver(arrived), links) => {
                // The call is ours; otherwise the message would not have come here.
                self.driver.handle_message(now, arrived, (link, peer), &bytes, links.outbox());
            }
            (HandoverKind::Send, Links::Tcp(streams)) => streams.send_for_other(link, peer, &bytes),
            (HandoverKind::Closed, links) => self.driver.handle_closed(now, link, links.outbox()),
            // Datagrams leave by any socket of the address.
            (HandoverKind::Send, Links::Udp(_)) => {}
        }
    }

    /// Sends everything, through our sockets and to the other threads.
    pub(super) fn flush(&mut self) {
        self.links.flush();
        if let Links::Tcp(streams) = &mut self.links {
            for handshake in streams.handshakes.drain(..) {
                self.driver.on_handshake(handshake);
            }
        }
        let Some(post) = &mut self.post else { return };
        if let Links::Tcp(streams) = &mut self.links {
            for (link, peer, bytes) in streams.away.drain(..) {
                post.send(link % post.share.of, HandoverMessage { errand: HandoverKind::Send, link, peer, bytes });
            }
        }
        post.flush();
    }

    /// Announces that the thread is about to wait; returns false if it must not.
    pub(super) fn park(&mut self) -> bool {
        self.post.as_mut().is_none_or(Mailbox::park)
    }

    /// Announces that the thread does not wait.
    pub(super) fn unpark(&self) {
        self.post.iter().for_each(Mailbox::unpark);
    }

    pub(super) fn counts(&self) -> LinkCounts {
        let mut counts = self.links.counts();
        self.post.iter().for_each(|post| counts.merge(&post.counts));
        counts
    }
}

/// Hands a message over to the thread `owner`, if there is one.
fn hand_over(
    post: &mut Option<Mailbox>,
    owner: Option<u32>,
    arrived: Timestamp,
    (link, peer): (u32, SocketAddr),
    bytes: &[u8],
) {
    if let (Some(post), Some(owner)) = (post, owner) {
        post.send(owner, HandoverMessage { errand: HandoverKind::Deliver(arrived), link, peer, bytes: bytes.to_vec() });
    }
}
