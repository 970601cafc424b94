//! The server on a socket, for the load generator: one thread with its sixteen shards, and beside them the table and
//! credentials under test.
//!
//! Here the shards' own table has all users, because the names come from outside. The cost of the table under test is
//! additional.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use strowger_auth::NonceWindows;
use strowger_foundation::{Flow, KeyRing, ListenerId, ShardId, TagKey, Timestamp, Transport};
use strowger_locate::{CachePolicy, NameCache as HostNames, Outages};
use strowger_message::{HeaderName, NameAddr, Peek, StartLine, Uri};
use strowger_net::{BufferSizes, Clock, OrderingKey, RecvBatch, SendBatch, UdpSocket};
use strowger_registrar::Locations;
use strowger_shard::{
    Input, Neighbours, Output, ProvenSources, Shard, ShardConfig, Shedding, Snapshot, Steering, Verdict,
};

use super::credentials::{Source, UserStores};
use super::kind::Kind;
use super::lookup::Credentials;
use super::model::Expiry;
use super::phones::{RequestKind, asks, snapshot};
use super::table::{Names, PARTS, SWEEP_EVERY, Table};
use crate::register::process::stay_on;

/// Maximum wait before timers are checked.
const PATIENCE: Duration = Duration::from_millis(10);
/// Shards of the thread, as many as a worker has.
const SHARDS: u16 = 16;
/// Socket receive buffer size in bytes.
const BUFFER_BYTES: usize = 8 << 20;

/// Configuration of the server.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Listening address.
    pub address: SocketAddr,
    /// Table beside the shard's; none for [`Kind::Ours`] and [`Kind::Nothing`].
    pub kind: Kind,
    /// Source of password hashes.
    pub source: Source,
    /// How the table under test finds expired registrations.
    pub expiry: Expiry,
    /// Number of users.
    pub users: u32,
    /// Acceleration relative to the model; sweeps are as much more frequent.
    pub speed: f64,
}

/// Serves until standard input ends.
///
/// # Errors
/// If a socket or a database is not available.
pub fn run(setup: &Setup) -> Result<(), String> {
    let _ = stay_on(0);
    let stock = match setup.source {
        Source::Memory => None,
        source => Some(UserStores::make(setup.users, &[source])?),
    };
    let mut beside = StudiedTables {
        table: matches!(setup.kind, Kind::Buckets(_)).then(|| setup.kind.make(1)),
        credentials: stock.as_ref().map(|stock| stock.open(setup.source)).transpose()?,
        names: Names::default(),
        found: Vec::new(),
        cseq: 0,
    };
    let sizes = BufferSizes { receive: BUFFER_BYTES, send: BUFFER_BYTES };
    let mut socket = UdpSocket::bind(setup.address, sizes).map_err(|error| error.to_string())?;
    let snapshot = Arc::new(snapshot(setup.address, 0..setup.users));
    let (mut shards, steering) = brain(setup.address, &snapshot);
    let (mut inbox, mut outbox, mut message) = (RecvBatch::new(), SendBatch::new(), Vec::new());
    let clock = Clock::start();
    let mut sweeps = SweepSchedule::new(setup);
    let is_over = Arc::new(AtomicBool::new(false));
    let watch = Arc::clone(&is_over);
    thread::spawn(move || {
        // Until the parent closes the pipe or ends.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        watch.store(true, Ordering::Relaxed);
    });
    while !is_over.load(Ordering::Relaxed) {
        let wakeup = shards.iter().filter_map(Shard::poll_timeout).map(|wakeup| wakeup.at).min();
        wait(&socket, wakeup.map_or(PATIENCE, |at| (at - clock.now()).min(PATIENCE)));
        socket.recv(&mut inbox).map_err(|error| error.to_string())?;
        let now = clock.now();
        for datagram in inbox.iter() {
            let Ok(peek) = Peek::read(datagram.bytes) else { continue };
            let Some((ShardId(owner), steered)) = steering.steer(&peek, &snapshot) else { continue };
            let Some(shard) = shards.get_mut(usize::from(owner)) else { continue };
            if let Some(ask) = asks(&peek) {
                beside.ask(now, ask, &peek, &snapshot);
            }
            let flow = Flow::new(ListenerId(0), Transport::Udp, datagram.peer);
            shard.handle_input(
                now,
                Input::Message { arrival: now, flow, peek: &peek, steering: &steered, verdict: Verdict::Admit },
            );
            drain(shard, &mut message, &mut outbox);
            if outbox.is_full() {
                let _ = socket.send(&mut outbox, |_| ());
            }
        }
        for shard in &mut shards {
            if shard.poll_timeout().is_some_and(|wakeup| wakeup.at <= now) {
                shard.handle_timeout(now);
                drain(shard, &mut message, &mut outbox);
            }
        }
        if let Some(table) = &beside.table {
            sweeps.run(now, &**table);
        }
        let _ = socket.send(&mut outbox, |_| ());
        while socket.poll_error().is_some() {}
    }
    Ok(())
}

fn brain(address: SocketAddr, snapshot: &Arc<Snapshot>) -> (Vec<Shard>, Steering) {
    let locations = Arc::new(Locations::new(SHARDS, 1).with_listeners([(Transport::Udp, address)]));
    let ring = KeyRing::new(TagKey::new([9; 16]));
    let nonces = Arc::new(NonceWindows::new(64, 1));
    let names = Arc::new(HostNames::new(CachePolicy::default(), 1));
    let outages = Arc::new(Outages::new(1));
    let proven = Arc::new(ProvenSources::new(1));
    let (shedding, neighbours) = (Arc::<Shedding>::default(), Arc::new(Neighbours::new(1)));
    let shard = |number: u16| {
        Shard::new(ShardConfig {
            id: ShardId(number),
            now: Timestamp::ZERO,
            seed: u64::from(number),
            ring,
            locations: Arc::clone(&locations),
            nonces: Arc::clone(&nonces),
            names: Arc::clone(&names),
            outages: Arc::clone(&outages),
            proven: Arc::clone(&proven),
            shedding: Arc::clone(&shedding),
            neighbours: Arc::clone(&neighbours),
            snapshot: Arc::clone(snapshot),
        })
    };
    ((0..SHARDS).map(shard).collect(), Steering::new(&ring, Arc::clone(&locations), SHARDS))
}

fn drain(shard: &mut Shard, message: &mut Vec<u8>, outbox: &mut SendBatch) {
    while let Some(output) = shard.poll_output(message) {
        if let Output::Send { flow } = output {
            std::mem::swap(outbox.next_slot(), message);
            outbox.commit(flow.peer, OrderingKey::ALL);
        }
        message.clear();
    }
}

fn wait(socket: &UdpSocket, time: Duration) {
    let limit = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    // An interruption does not matter: the socket is read in any case.
    let _ = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&limit));
}

/// Schedule of sweeps over the table under test.
struct SweepSchedule {
    expiry: Expiry,
    every: Duration,
    next: Timestamp,
    part: usize,
}

impl SweepSchedule {
    fn new(setup: &Setup) -> Self {
        let parts = if setup.expiry == Expiry::Parts { PARTS as f64 } else { 1.0 };
        let every = SWEEP_EVERY.div_f64(setup.speed * parts);
        Self { expiry: setup.expiry, every, next: Timestamp::ZERO + every, part: 0 }
    }

    fn run(&mut self, now: Timestamp, table: &dyn Table) {
        if now < self.next {
            return;
        }
        // Missed sweeps are skipped.
        self.next = now + self.every;
        match self.expiry {
            Expiry::Sweep => {
                table.sweep(now, 0, 1);
            }
            Expiry::Parts => {
                table.sweep(now, self.part % PARTS, PARTS);
                self.part += 1;
            }
            Expiry::Own => {}
        }
    }
}

/// The table and credentials under test.
struct StudiedTables {
    table: Option<Box<dyn Table>>,
    credentials: Option<Box<dyn Credentials + Send>>,
    names: Names,
    found: Vec<u8>,
    cseq: u32,
}

impl StudiedTables {
    fn ask(&mut self, now: Timestamp, ask: RequestKind, peek: &Peek<'_>, snapshot: &Snapshot) {
        let head = peek.head();
        let from = head.first(HeaderName::From).and_then(NameAddr::parse).and_then(|from| from.parse_uri());
        let called = match head.start() {
            StartLine::Request { uri, .. } => Uri::parse(uri),
            StartLine::Response { .. } => None,
        };
        let user = |uri: &Uri<'_>| number_of(snapshot.identity(uri.sip()?)?.as_bytes());
        let Some(caller) = from.as_ref().and_then(user) else { return };
        if let Some(credentials) = &mut self.credentials {
            let hash = credentials.hash(self.names.aor(caller));
            assert!(hash.is_some(), "user {caller} is not known");
        }
        let Some(table) = &self.table else { return };
        match ask {
            RequestKind::Register => {
                self.cseq += 1;
                let (aor, contact) = self.names.both(caller);
                table.put(now, aor, contact, self.cseq);
            }
            RequestKind::Call => {
                if let Some(callee) = called.as_ref().and_then(user) {
                    self.found.clear();
                    table.lookup(now, self.names.aor(callee), &mut self.found);
                }
            }
            RequestKind::Other => {}
        }
    }
}

/// Returns the number in `user123@…`.
fn number_of(aor: &[u8]) -> Option<u32> {
    let digits = aor.strip_prefix(b"user")?.split(|byte| *byte == b'@').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
