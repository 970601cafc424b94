//! Cost of the paper's users for a server with this table and these credentials: processor time on one core and on
//! two.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use strowger_foundation::Timestamp;
use strowger_net::{BufferSizes, OrderingKey, RecvBatch, SendBatch, UdpSocket};

use super::clock::processor_time;
use super::credentials::{Source, UserStores};
use super::kind::Kind;
use super::lookup::Credentials;
use super::phones::{RequestKind, Work, World};
use super::table::{BEGINNING, Names, REFRESH, RegistrationOrder, Table, ThreadIndex, fill};
use crate::register::process::stay_on;

/// Registrations per thread that are not counted.
const WARM_UP: u64 = 500;
/// Registrations between two time checks.
const SLICE: u64 = 500;
/// Maximum registrations per thread.
const MOST: u64 = 12_000;
/// Registrations assigned to a thread. It ends with a slice, and a slice ends with all registrations of the same
/// time.
const EACH: u64 = WARM_UP + MOST + 3 * SLICE;

/// A table with its users, who register in turn.
pub struct Population {
    /// Table under test.
    pub table: Box<dyn Table>,
    /// Kind of the table.
    pub kind: Kind,
    /// Number of users.
    pub users: u32,
    order: RegistrationOrder,
    /// Registrations since [`BEGINNING`].
    turn: u64,
}

/// A registration that is due.
#[derive(Clone, Copy, Debug)]
struct DueRegistration {
    turn: u64,
    user: u32,
    cseq: u32,
    at: Timestamp,
}

impl Population {
    /// Creates a full table.
    #[must_use]
    pub fn new(kind: Kind, users: u32, threads: usize) -> Self {
        let table = kind.make(threads);
        fill(&*table, users);
        Self { table, kind, users, order: RegistrationOrder::new(users), turn: 0 }
    }

    /// Returns the model's time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.at(self.turn)
    }

    fn at(&self, turn: u64) -> Timestamp {
        let nanos = u128::from(turn) * REFRESH.as_nanos() / u128::from(self.users);
        BEGINNING + Duration::from_nanos(nanos as u64)
    }

    /// Distributes the next registrations over threads, each of which gets those that it may process.
    fn deal(&self, threads: usize, each: u64) -> Vec<Vec<DueRegistration>> {
        let mut hands = vec![Vec::new(); threads];
        let mut names = Names::default();
        for turn in self.turn..self.turn + each * threads as u64 {
            let user = self.order.user_at(turn);
            let cseq = 3 + (turn / u64::from(self.users)) as u32;
            let due = DueRegistration { turn, user, cseq, at: self.at(turn) };
            let owner = self.table.owner(names.aor(user), threads);
            hands[owner.unwrap_or(turn as usize % threads)].push(due);
        }
        hands
    }
}

/// Cost of users for a server.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Time per registration, including the user's other requests in the same period: processor time of the threads
    /// and of a database process, and time asleep waiting for locks.
    pub registration: Duration,
    /// Time asleep waiting for locks, included above.
    pub slept: Duration,
    /// Messages received and sent per registration.
    pub messages: f64,
}

impl Cost {
    /// Returns the thread seconds per second of a user.
    #[must_use]
    pub fn of_user(&self) -> f64 {
        self.registration.as_secs_f64() / REFRESH.as_secs_f64()
    }
}

/// Lets the phones of the worlds register and call, with a thread per world on separate cores, until each thread has
/// used `time`.
///
/// # Errors
/// If a database query fails.
pub fn measure(
    worlds: &mut [World],
    population: &mut Population,
    (stock, source): (&UserStores, Source),
    time: Duration,
) -> Result<Cost, String> {
    let threads = worlds.len();
    let hands = population.deal(threads, EACH);
    let (table, users) = (&*population.table, population.users);
    let before = table.waits();
    let mut asked = Vec::new();
    for _ in 0..threads {
        asked.push(stock.open(source)?);
    }
    let done = thread::scope(|scope| {
        let mut running = Vec::new();
        for (thread, ((world, hand), credentials)) in worlds.iter_mut().zip(hands).zip(asked).enumerate() {
            let share = ThreadIndex { thread, of: threads };
            let tables = ThreadTables {
                table,
                credentials,
                names: Names::default(),
                found: Vec::new(),
                share,
                users,
                known: stock.users(),
                now: hand.first().map_or(BEGINNING, |due| due.at),
                random: thread as u64 + 1,
                hand,
                next: 0,
            };
            running.push(scope.spawn(move || tables.serve(world, time)));
        }
        running.into_iter().map(|thread| thread.join().expect("it ends")).collect::<Vec<_>>()
    });
    let slept = table.waits().asleep.saturating_sub(before.asleep);
    let (done, mut all_tables): (Vec<Work>, Vec<ThreadTables<'_>>) = done.into_iter().unzip();
    // Takes the turn of the thread that got farthest, so no user whose turn has come is skipped.
    let turn = all_tables.iter().filter_map(ThreadTables::turn).max().unwrap_or(population.turn);
    all_tables.iter_mut().for_each(|tables| tables.come_to(turn));
    drop(all_tables);
    population.turn = turn;
    let sum = |of: fn(&Work) -> u64| done.iter().map(of).sum::<u64>();
    let registrations = sum(|work| work.registrations);
    let processor: Duration = done.iter().map(|work| work.processor).sum();
    Ok(Cost {
        registration: (processor + slept).div_f64(registrations as f64),
        slept: slept.div_f64(registrations as f64),
        messages: sum(|work| work.received + work.sent) as f64 / registrations as f64,
    })
}

/// The tables under test in a thread, beside its shard.
struct ThreadTables<'a> {
    table: &'a dyn Table,
    credentials: Box<dyn Credentials + Send>,
    names: Names,
    found: Vec<u8>,
    share: ThreadIndex,
    users: u32,
    known: u32,
    now: Timestamp,
    random: u64,
    hand: Vec<DueRegistration>,
    next: usize,
}

impl ThreadTables<'_> {
    fn serve(mut self, world: &mut World, time: Duration) -> (Work, Self) {
        // With fewer cores than threads, a thread runs on any core.
        let _ = stay_on(self.share.thread);
        world.run(WARM_UP, |ask| self.ask(ask));
        let mut sum = Work::default();
        let elsewhere = self.credentials.elsewhere();
        while sum.processor < time && sum.registrations < MOST {
            let work = world.run(SLICE, |ask| self.ask(ask));
            sum.registrations += work.registrations;
            sum.calls += work.calls;
            sum.proved += work.proved;
            sum.received += work.received;
            sum.sent += work.sent;
            sum.processor += work.processor;
        }
        sum.processor += self.credentials.elsewhere().saturating_sub(elsewhere);
        (sum, self)
    }

    /// Returns the turn after its last one.
    fn turn(&self) -> Option<u64> {
        Some(self.hand.get(self.next.checked_sub(1)?)?.turn + 1)
    }

    /// Registers all users that are due before `turn`.
    fn come_to(&mut self, turn: u64) {
        while self.hand.get(self.next).is_some_and(|due| due.turn < turn) {
            self.register();
        }
    }

    fn ask(&mut self, ask: RequestKind) {
        match ask {
            RequestKind::Register => {
                let user = self.hand.get(self.next).map_or(0, |due| due.user);
                self.prove(user);
                self.register();
            }
            RequestKind::Call => {
                let (caller, callee) = (self.anybody(), self.anybody());
                self.prove(caller);
                self.found.clear();
                self.table.lookup(self.now, self.names.aor(callee), &mut self.found);
            }
            RequestKind::Other => {
                let anybody = self.anybody();
                self.prove(anybody);
            }
        }
    }

    fn prove(&mut self, user: u32) {
        let hash = self.credentials.hash(self.names.aor(user % self.known));
        assert!(hash.is_some(), "user {user} is not known");
    }

    fn register(&mut self) {
        let due = self.hand.get(self.next).expect("it was dealt enough");
        self.next += 1;
        self.now = due.at;
        let (aor, contact) = self.names.both(due.user);
        self.table.put(self.now, aor, contact, due.cseq);
        self.table.work(self.now, self.share);
    }

    fn anybody(&mut self) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % u64::from(self.users)) as u32
    }
}

/// Returns the time of an uninterrupted sweep over the whole table: the median of three.
#[must_use]
pub fn sweep_time(population: &Population) -> Duration {
    let mut times = [0; 3].map(|_| {
        let began = processor_time();
        population.table.sweep(population.now(), 0, 1);
        processor_time() - began
    });
    times.sort();
    times[1]
}

/// Returns the time to send and receive a message in batches between two sockets of a pinned thread: the median of
/// five.
///
/// # Errors
/// If no sockets are available.
pub fn message_time() -> Result<Duration, String> {
    let run = || {
        let _ = stay_on(0);
        (0..5).map(|_| message_time_once()).collect::<Result<Vec<_>, _>>()
    };
    let mut times = thread::scope(|scope| scope.spawn(run).join().expect("it ends"))?;
    times.sort();
    Ok(times[times.len() / 2])
}

fn message_time_once() -> Result<Duration, String> {
    const BATCH: usize = 16;
    const BATCHES: u32 = 4_000;
    let open = || UdpSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0)), BufferSizes::DEFAULT);
    let (mut from, mut to) = (open().map_err(|e| e.to_string())?, open().map_err(|e| e.to_string())?);
    let (mut out, mut into) = (SendBatch::new(), RecvBatch::new());
    let mut received = 0_u32;
    let began = processor_time();
    for _ in 0..BATCHES {
        for _ in 0..BATCH {
            out.next_slot().resize(500, b'x');
            out.commit(to.local_addr(), OrderingKey::ALL);
        }
        let _ = from.send(&mut out, |_| ());
        to.recv(&mut into).map_err(|error| error.to_string())?;
        received += into.len() as u32;
    }
    let took = processor_time() - began;
    if received == 0 { Err("no message arrives".to_owned()) } else { Ok(took / received) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_expires_however_far_threads_get() {
        let stock = UserStores::make(1_000, &[Source::Memory]).expect("nothing is written");
        let mut worlds: Vec<World> = (1..=2).map(World::new).collect();
        for kind in [Kind::Buckets(512), Kind::Ours] {
            let mut population = Population::new(kind, 1_000, 2);
            for threads in [1, 2, 1] {
                let before = population.turn;
                let time = Duration::from_millis(1);
                let cost = measure(&mut worlds[..threads], &mut population, (&stock, Source::Memory), time)
                    .expect("it is in memory");
                assert!(cost.registration > cost.slept && population.turn >= before + WARM_UP + SLICE, "{cost:?}");
                population.table.sweep(population.now(), 0, 1);
                assert_eq!(population.table.len(), 1_000, "{kind}: all register in time");
            }
        }
    }
}
