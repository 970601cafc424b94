//! The phones of the paper's users around a shard, in virtual time. The shard receives messages in batches, so that
//! processor time is measured for the server only.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use strowger_auth::{Algorithm, Ha1, NonceWindows};
use strowger_directory::{Directory, DirectoryChange, Ha1s, User};
use strowger_foundation::{Flow, KeyRing, ListenerId, ShardId, TagKey, Timestamp, Transport};
use strowger_locate::{CachePolicy, NameCache, Outages};
use strowger_message::{Kind, Method, Peek};
use strowger_registrar::Locations;
use strowger_shard::{
    Input, Listener, Neighbours, Output, ProvenSources, Shard, ShardConfig, Snapshot, Steering, Verdict,
};
use strowger_traffic::driver::{Driver, EndedSession, Outbox, Setup};
use strowger_traffic::engine::{Activity, ActivitySchedule, CallRole, GapFrom};
use strowger_traffic::population::Users;
use strowger_traffic::workload::Workload;

use super::table::DOMAIN;
use crate::tables::clock::processor_time;

/// Users of the shard itself: few enough that their registrations fit into a core's cache.
const PHONES: u32 = 1_000;
/// Acceleration relative to the model: with transactions of 6.4 s, it just uses the shard's transaction capacity.
const SPEED: f64 = 1_500.0;
/// Virtual time per step.
const STEP: Duration = Duration::from_millis(20);
/// T1 of the shard. Transactions live for 6.4 s, so memory does not dominate the measurement.
const T1: Duration = Duration::from_millis(100);
/// Stripes of the nonce window, as in workers.
const NONCE_STRIPES: usize = 64;

const fn at(port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

const CALLER: SocketAddr = at(40_000);
const CALLEE: SocketAddr = at(5_070);
const SERVER: SocketAddr = at(5_060);

/// Table operations that a request needs besides the shard's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// A registration with credentials.
    Register,
    /// A call with credentials.
    Call,
    /// Any other request with credentials.
    Other,
}

/// Messages handled by a server, and their cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Registrations.
    pub registrations: u64,
    /// Calls.
    pub calls: u64,
    /// Requests with credentials.
    pub proved: u64,
    /// Messages received.
    pub received: u64,
    /// Messages sent.
    pub sent: u64,
    /// Processor time.
    pub processor: Duration,
}

/// The phones and their server.
pub struct World {
    caller: Driver,
    callee: Driver,
    habits: ActivitySchedule,
    list: Vec<Activity>,
    up: Wire,
    down: Wire,
    server: Server,
    /// Common virtual time.
    now: Timestamp,
}

/// The shard with the parts of a worker around it.
struct Server {
    shard: Shard,
    steering: Steering,
    snapshot: Arc<Snapshot>,
    message: Vec<u8>,
    out: Wire,
}

/// Messages in flight, in the order in which they were sent.
#[derive(Default)]
struct Wire {
    slot: Vec<u8>,
    bytes: Vec<u8>,
    sent: Vec<(SocketAddr, usize)>,
}

impl Wire {
    fn push(&mut self, peer: SocketAddr, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.sent.push((peer, self.bytes.len()));
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.sent.clear();
    }

    fn iter(&self) -> impl Iterator<Item = (SocketAddr, &[u8])> {
        let begins = std::iter::once(0).chain(self.sent.iter().map(|(_, end)| *end));
        self.sent.iter().zip(begins).map(|((peer, end), begin)| (*peer, &self.bytes[begin..*end]))
    }
}

impl Outbox for Wire {
    fn slot(&mut self, _: u32) -> &mut Vec<u8> {
        self.slot.clear();
        &mut self.slot
    }

    fn commit(&mut self, _: u32, peer: SocketAddr, _: u64) {
        self.bytes.extend_from_slice(&self.slot);
        self.sent.push((peer, self.bytes.len()));
    }

    fn connect(&mut self, _: SocketAddr, _: bool) -> Option<u32> {
        Some(0)
    }

    fn close(&mut self, _: u32) {}
}

impl World {
    /// Creates phones that are all registered; `seed` distinguishes worlds.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let workload = Workload::parse("users", &[], SPEED).expect("the model");
        let users = Arc::new(Users::generated("user%", "secret", DOMAIN, PHONES));
        let setup = |scripts: &[_], local, number| {
            let mut setup = Setup::new(scripts.to_vec().into(), Arc::clone(&users), SERVER, local);
            (setup.run, setup.number, setup.seed) = (seed, number, seed);
            setup
        };
        let mut callee = setup(&workload.callees, CALLEE, 1);
        callee.answers = workload.answers.clone();
        let mut caller = Driver::new(setup(&workload.callers, CALLER, 0));
        caller.watch_ends();
        let now = Timestamp::from_millis(1_000);
        let mut world = Self {
            caller,
            callee: Driver::new(callee),
            habits: ActivitySchedule::new(&workload.activities, &(0..PHONES), seed, (0, 1)).beginning(now),
            list: workload.activities.clone(),
            up: Wire::default(),
            down: Wire::default(),
            server: Server::new(seed),
            now,
        };
        let registering = workload.registering.expect("users register");
        for user in 0..PHONES {
            world.callee.begin(now, registering, (user, user), &mut world.down).expect("there is no limit");
        }
        world
    }

    /// Runs until a number of registrations is reached. Calls `ask` where a table would be used.
    pub fn run(&mut self, registrations: u64, mut ask: impl FnMut(RequestKind)) -> Work {
        let mut work = Work::default();
        while work.registrations < registrations {
            self.begin();
            self.caller.handle_timeout(self.now, &mut self.up);
            self.callee.handle_timeout(self.now, &mut self.down);
            self.settle(&mut work, &mut ask);
            self.now += STEP;
        }
        work
    }

    fn begin(&mut self) {
        while let Some(EndedSession { script, caller: user, .. }) = self.caller.take_ended() {
            let does = |habit: &Activity| {
                habit.who == CallRole::Caller && habit.gap_from == GapFrom::End && habit.mix.runs(script)
            };
            if let Some(habit) = self.list.iter().position(does) {
                self.habits.on_end(habit, user, self.now);
            }
        }
        while let Some(due) = self.habits.poll_due(self.now) {
            let habit = &self.list[due.habit];
            let script = habit.mix.pick(0, due.number);
            let other = (due.number % u64::from(PHONES)) as u32;
            let begun = match habit.who {
                CallRole::Caller => self.caller.begin(self.now, script, (due.user, other), &mut self.up),
                CallRole::Callee => self.callee.begin(self.now, script, (due.user, due.user), &mut self.down),
            };
            begun.expect("there is no limit");
        }
    }

    /// Delivers messages until none is left.
    fn settle(&mut self, work: &mut Work, ask: &mut impl FnMut(RequestKind)) {
        let mut is_first = true;
        while is_first || !self.up.sent.is_empty() || !self.down.sent.is_empty() {
            let began = processor_time();
            if is_first {
                self.server.handle_timeout(self.now);
                is_first = false;
            }
            for (from, wire) in [(CALLER, &self.up), (CALLEE, &self.down)] {
                for (_, bytes) in wire.iter() {
                    self.server.handle(self.now, from, bytes, work, ask);
                }
            }
            work.processor += processor_time() - began;
            self.up.clear();
            self.down.clear();
            for (to, bytes) in self.server.out.iter() {
                work.sent += 1;
                if to == CALLEE {
                    self.callee.handle_message(self.now, self.now, (0, SERVER), bytes, &mut self.down);
                } else {
                    self.caller.handle_message(self.now, self.now, (0, SERVER), bytes, &mut self.up);
                }
            }
            self.server.out.clear();
        }
    }

    /// Returns the phones' counts of all finished and of successful requests.
    #[must_use]
    pub fn transactions(&self) -> (u64, u64) {
        let mut sum = (0, 0);
        for driver in [&self.caller, &self.callee] {
            let ends = driver.meter().transactions.sum();
            sum = (sum.0 + ends.all, sum.1 + ends.succeeded);
        }
        sum
    }
}

impl Server {
    fn new(seed: u64) -> Self {
        let snapshot = Arc::new(snapshot(SERVER, 0..PHONES));
        let locations = Arc::new(Locations::new(1, seed).with_listeners([(Transport::Udp, SERVER)]));
        let ring = KeyRing::new(TagKey::new([seed as u8 + 1; 16]));
        let shard = Shard::new(ShardConfig {
            id: ShardId(0),
            now: Timestamp::ZERO,
            seed,
            ring,
            locations: Arc::clone(&locations),
            nonces: Arc::new(NonceWindows::new(NONCE_STRIPES, seed)),
            names: Arc::new(NameCache::new(CachePolicy::default(), seed)),
            outages: Arc::new(Outages::new(seed)),
            proven: Arc::new(ProvenSources::new(1)),
            shedding: Arc::default(),
            neighbours: Arc::new(Neighbours::new(seed)),
            snapshot: Arc::clone(&snapshot),
        });
        let steering = Steering::new(&ring, locations, 1);
        Self { shard, steering, snapshot, message: Vec::new(), out: Wire::default() }
    }

    fn handle(
        &mut self,
        now: Timestamp,
        from: SocketAddr,
        bytes: &[u8],
        work: &mut Work,
        ask: &mut impl FnMut(RequestKind),
    ) {
        work.received += 1;
        let Ok(peek) = Peek::read(bytes) else { return };
        let Some((_, steered)) = self.steering.steer(&peek, &self.snapshot) else { return };
        if let Some(asks) = asks(&peek) {
            work.proved += 1;
            work.registrations += u64::from(asks == RequestKind::Register);
            work.calls += u64::from(asks == RequestKind::Call);
            ask(asks);
        }
        let flow = Flow::new(ListenerId(0), Transport::Udp, from);
        self.shard.handle_input(
            now,
            Input::Message { arrival: now, flow, peek: &peek, steering: &steered, verdict: Verdict::Admit },
        );
        self.drain();
    }

    fn handle_timeout(&mut self, now: Timestamp) {
        while self.shard.poll_timeout().is_some_and(|wakeup| wakeup.at <= now) {
            self.shard.handle_timeout(now);
            self.drain();
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.shard.poll_output(&mut self.message) {
            if let Output::Send { flow } = output {
                self.out.push(flow.peer, &self.message);
            }
            self.message.clear();
        }
    }
}

/// Returns the server's snapshot: users with passwords, and authentication for registrations, calls and requests
/// within calls.
#[must_use]
pub fn snapshot(address: SocketAddr, users: std::ops::Range<u32>) -> Snapshot {
    let user = |number: u32| {
        let name = format!("user{number}");
        let ha1 = Ha1::compute(Algorithm::Md5, name.as_bytes(), DOMAIN.as_bytes(), b"secret");
        let ha1 = Ha1s { md5: ha1.as_bytes().try_into().ok(), sha256: None, sha512_256: None };
        DirectoryChange::PutUser(User { aor: format!("{name}@{DOMAIN}").into_bytes().into(), ha1, enabled: true })
    };
    let directory = Directory::empty(1).with_changes(users.map(user));
    let listener = Listener::new(Transport::Udp, address);
    let mut snapshot = Snapshot::new(vec![listener], vec![DOMAIN.as_bytes().into()], directory);
    snapshot.auth.require = ["REGISTER", "INVITE", "BYE"].map(|method| method.as_bytes().into()).to_vec();
    snapshot.auth.in_dialog = true;
    snapshot.timing.t1 = T1;
    snapshot
}

/// Returns the table operations of a message: only requests with credentials need any.
#[must_use]
pub fn asks(peek: &Peek<'_>) -> Option<RequestKind> {
    let asks = match peek.kind {
        Kind::Request(Method::Register) => RequestKind::Register,
        Kind::Request(Method::Invite) => RequestKind::Call,
        Kind::Request(Method::Bye) => RequestKind::Other,
        _ => return None,
    };
    use strowger_message::HeaderName::{Authorization, ProxyAuthorization};
    let head = peek.head();
    let has_credentials = head.first(Authorization).is_some() || head.first(ProxyAuthorization).is_some();
    has_credentials.then_some(asks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_users_register_and_call_correctly() {
        let mut world = World::new(5);
        let (mut registers, mut others) = (0, 0);
        let work = world.run(6_000, |ask| if ask == RequestKind::Register { registers += 1 } else { others += 1 });
        assert_eq!((registers, registers + others), (work.registrations, work.proved));
        // Six registrations and nearly one call per hour.
        assert!((5.0..9.0).contains(&(work.registrations as f64 / work.calls as f64)), "{work:?}");
        let (all, good) = world.transactions();
        assert!(all > work.registrations && good == all, "{good} of {all} went as they should");
    }
}
