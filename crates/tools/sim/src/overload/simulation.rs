//! A run: callers, callee, kernel and worker on one virtual clock.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use strowger_directory::Directory;
use strowger_foundation::{Timestamp, Transport};
use strowger_proxy::Stateless;
use strowger_shard::{Action, Listener, Route, RouteTarget, Snapshot};

use super::Setup;
use super::admission::Admission;
use super::callee::{self, Callee};
use super::callers::Callers;
use super::kernel::{Datagram, Kernel};
use super::load::{Arrivals, end_of};
use super::outcome::{Drops, Outcome};
use super::requests::DOMAIN;
use super::schedule::{Event, Schedule, Timer};
use super::worker::Worker;
use crate::overload::worker::SHARDS;
use crate::rng::Rng;
use crate::server::Server;

/// Duration of a run after the last new call: answered calls must be able to end, even with a BYE sent five times.
const AFTERMATH: Duration = Duration::from_secs(8);

/// State of a run.
#[derive(Debug)]
struct Simulation {
    now: Timestamp,
    schedule: Schedule,
    arrivals: Arrivals,
    callers: Callers,
    callee: Callee,
    kernel: Kernel,
    worker: Worker,
    drops: Drops,
}

/// Runs a setup to its end.
#[must_use]
pub fn run(setup: &Setup) -> Outcome {
    let mut simulation = Simulation::new(setup);
    simulation.offer_next();
    simulation.run_until(end_of(&setup.phases) + AFTERMATH);
    let Simulation { callers, worker, drops, .. } = simulation;
    Outcome::of(setup, &callers.calls, (drops, worker.refusals, worker.checksum))
}

impl Simulation {
    fn new(setup: &Setup) -> Self {
        let mut rng = Rng::new(setup.seed);
        let salt = u32::try_from(rng.next_u64() >> 32).unwrap_or(0);
        let worker = Worker {
            server: Server::new(SHARDS, rng.next_u64(), Arc::new(snapshot())),
            admission: Admission::new(rng.next_u64(), salt, setup.policy.is_controlled()),
            costs: setup.costs.scaled_to(setup.capacity),
            cpu: setup.cpu,
            batch: setup.batch.max(1),
            put_off: 0,
            busy_until: Timestamp::ZERO,
            refusals: 0,
            checksum: 0,
        };
        Self {
            now: Timestamp::ZERO,
            schedule: Schedule::new(setup.delay),
            arrivals: Arrivals::new(rng.fork(), setup.capacity, setup.phases.clone()),
            callers: Callers::new(setup, rng.fork()),
            callee: Callee::default(),
            kernel: Kernel::new(setup, salt),
            worker,
            drops: Drops::default(),
        }
    }

    fn run_until(&mut self, end: Timestamp) {
        loop {
            let event = self.schedule.next_at().unwrap_or(Timestamp::MAX);
            let round = self.worker.next_round(self.now, &self.kernel).unwrap_or(Timestamp::MAX);
            self.now = event.min(round);
            if self.now >= end {
                return;
            }
            // A round reads what arrives at the same time.
            if event <= round {
                self.handle_event();
            } else {
                self.worker.round(self.now, &mut self.kernel, &mut self.schedule, &mut self.drops);
            }
        }
    }

    fn handle_event(&mut self) {
        let Some((now, event)) = self.schedule.poll() else { return };
        match event {
            Event::Offer => {
                self.callers.call(now, &mut self.schedule);
                self.offer_next();
            }
            Event::AtServer { from, bytes } => {
                let kind = self.worker.kind_from(from.ip(), &bytes);
                self.kernel.receive(kind, Datagram { arrival: now, from, bytes }, &mut self.drops);
            }
            Event::AtClient { to, bytes } if to == callee::address() => {
                self.callee.handle_message(now, &bytes, &mut self.schedule);
            }
            Event::AtClient { bytes, .. } => self.callers.handle_message(now, &bytes, &mut self.schedule),
            Event::Timer { call, timer: Timer::AnswerAgain(interval) } => {
                self.callee.handle_timeout(now, call, interval, &mut self.schedule);
            }
            Event::Timer { call, timer } => self.callers.handle_timeout(now, call, timer, &mut self.schedule),
        }
    }

    fn offer_next(&mut self) {
        if let Some(at) = self.arrivals.next() {
            self.schedule.add(at, Event::Offer);
        }
    }
}

/// Returns the configuration of a server that requires no authentication and routes all calls to the callee with
/// Record-Route.
fn snapshot() -> Snapshot {
    let listener = Listener::new(Transport::Udp, SocketAddr::from(([192, 0, 2, 1], 5060)));
    let mut snapshot = Snapshot::new(vec![listener], vec![b"example.com"[..].into()], Directory::empty(1));
    snapshot.auth.require.clear();
    snapshot.proxy.record_route = true;
    let target = RouteTarget::at(format!("sip:{}", callee::address()).as_bytes(), callee::address());
    let action = Action::proxy(vec![target], Stateless::Never);
    snapshot.routes = vec![Route::of_domain(DOMAIN.as_bytes(), action)];
    snapshot
}
