//! One end of calls on a thread: what it reads goes to its driver, and what is due is done.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use strowger_foundation::Timestamp;
use strowger_net::{Clock, RecvBatch};

use super::sockets::{LISTENER, Links};
use crate::driver::{Driver, Setup};
use crate::engine::links::Received;
use crate::engine::plan::{Plan, Who};
use crate::service::Service;

/// One end: its sessions and its sockets.
#[derive(Debug)]
pub(super) struct End {
    pub(super) driver: Driver,
    pub(super) links: Links,
    pub(super) service: Option<Service>,
    /// Sockets that have something to read, as far as is known.
    pub(super) readable: Vec<u32>,
    /// Those that are read just now; the memory is used again.
    reading: Vec<u32>,
    pub(super) received: Received,
}

impl End {
    pub(super) fn new(
        plan: &Plan,
        index: usize,
        who: Who,
        links: Links,
        service: Option<Service>,
        (remote, wall_at_zero): (SocketAddr, Duration),
    ) -> Option<Self> {
        let side = match who {
            Who::Caller => plan.caller.as_ref()?,
            Who::Callee => &plan.callee.as_ref()?.side,
        };
        let is_callee = who == Who::Callee;
        let setup = Setup {
            scripts: Arc::clone(&side.scripts),
            answers: side.answers.clone(),
            users: Arc::clone(&plan.users),
            remote,
            transport: plan.transport,
            connecting: plan.connecting,
            locals: links.addresses(),
            repeats: plan.repeats,
            t1: plan.t1,
            t2: plan.t1 * 8,
            max_ring: plan.max_ring,
            max_wait: plan.max_wait,
            reuses_nonces: plan.reuses_nonces,
            max_sessions: plan.max_sessions,
            expected: plan.expected(),
            run: plan.run,
            number: u16::try_from(index * 2 + usize::from(is_callee)).unwrap_or(u16::MAX),
            seed: plan.seed,
        };
        let mut driver = Driver::new(setup);
        driver.set_wall(wall_at_zero);
        Some(Self { driver, links, service, readable: Vec::new(), reading: Vec::new(), received: Received::default() })
    }

    /// Reads what has come, a batch of each socket.
    pub(super) fn read(&mut self, batch: &mut RecvBatch, clock: Clock) -> io::Result<()> {
        std::mem::swap(&mut self.readable, &mut self.reading);
        for index in 0..self.reading.len() {
            let Some(link) = self.reading.get(index).copied() else { break };
            match &mut self.links {
                Links::Udp(datagrams) => {
                    let Some(socket) = datagrams.sockets.get_mut(link as usize) else { continue };
                    socket.socket.recv(batch)?;
                    if batch.is_full() {
                        self.readable.push(link);
                    }
                    if batch.is_empty() {
                        continue;
                    }
                    let pair = clock.pair();
                    for datagram in batch.iter() {
                        let arrived = pair.arrival(datagram.arrival);
                        let from = (link, datagram.peer);
                        match &mut self.service {
                            Some(service) if service.applies(datagram.bytes) => {
                                service.handle_message(arrived, from, datagram.bytes);
                            }
                            _ => self.driver.handle_message(pair.monotonic, arrived, from, datagram.bytes, datagrams),
                        }
                    }
                }
                Links::Tcp(streams) => {
                    if link == LISTENER {
                        streams.accept();
                        continue;
                    }
                    let now = clock.now();
                    streams.read(link, &mut self.received);
                    let Some(peer) = self.received.peer else { continue };
                    let mut start = 0;
                    for end in &self.received.ends {
                        let bytes = self.received.bytes.get(start..*end).unwrap_or(&[]);
                        start = *end;
                        match &mut self.service {
                            Some(service) if service.applies(bytes) => service.handle_message(now, (link, peer), bytes),
                            _ => self.driver.handle_message(now, now, (link, peer), bytes, streams.as_mut()),
                        }
                    }
                    if self.received.is_closed {
                        streams.forget(link);
                        self.driver.handle_closed(now, link, streams.as_mut());
                    }
                }
            }
        }
        self.reading.clear();
        Ok(())
    }

    /// Does what is due.
    pub(super) fn turn(&mut self, now: Timestamp) {
        if let Some(service) = &mut self.service {
            while let Some(job) = service.poll_done(now) {
                let from = (job.link, job.peer);
                self.driver.handle_message(now, now, from, &job.bytes, self.links.outbox());
                service.recycle(job);
            }
        }
        if self.driver.poll_timeout().is_some_and(|at| at <= now) {
            self.driver.handle_timeout(now, self.links.outbox());
        }
    }
}
