//! Shards behind locks, for the shells whose threads share them.
//!
//! Each shard has its own lock, which corresponds to the paper's division of users and transactions into sets. A
//! thread holds one shard lock while it handles a message and sends the results, and within it the location table's
//! lock during a lookup. In stateless mode each thread uses its own shard group and locks only the location table.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use strowger_foundation::Timestamp;

use crate::shard_group::{Affinity, ProcessContext, Setup, ShardGroup};
use crate::socket::{Clock, Socket};

/// Interval at which timers are checked.
const TICK: Duration = Duration::from_millis(10);

/// All shards of the process and its socket.
pub(crate) struct LockedShards {
    rules: ProcessContext,
    seats: Box<[Mutex<ShardGroup>]>,
    /// Socket shared by all threads.
    pub(crate) socket: Socket,
    clock: Clock,
}

impl LockedShards {
    /// Creates all shards and starts the thread that runs their timers.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(setup: &Setup, socket: Socket) -> std::io::Result<Arc<Self>> {
        let rules = ProcessContext::new(setup);
        let seats = (0..rules.brains()).map(|number| Mutex::new(rules.brain(number))).collect();
        let locked = Arc::new(Self { rules, seats, socket, clock: Clock::start() });
        let ticking = Arc::clone(&locked);
        thread::Builder::new().name("timers".to_owned()).spawn(move || ticking.tick())?;
        Ok(locked)
    }

    /// Creates a shard group for one thread. Used in stateless mode only.
    pub(crate) fn own(&self) -> ShardGroup {
        self.rules.brain(0)
    }

    /// Handles a datagram completely.
    pub(crate) fn handle(&self, own: &mut ShardGroup, peer: SocketAddr, bytes: &[u8]) {
        let Some(message) = self.rules.steer(bytes) else { return };
        let now = self.clock.now();
        let send = |peer: SocketAddr, bytes: &[u8]| self.socket.send(peer, bytes);
        match self.seats.get(usize::from(message.brain)) {
            Some(slot) if message.bound == Affinity::Transaction => {
                let mut brain = slot.lock().unwrap_or_else(PoisonError::into_inner);
                brain.handle_message(now, peer, &message, send);
            }
            _ => {
                own.handle_message(now, peer, &message, send);
                self.look_after(own, now);
            }
        }
    }

    /// Runs the due timers of a thread's own shard group.
    pub(crate) fn idle(&self, own: &mut ShardGroup) {
        self.look_after(own, self.clock.now());
    }

    fn look_after(&self, brain: &mut ShardGroup, now: Timestamp) {
        if brain.wakeup() <= now {
            brain.handle_timeout(now, |peer, bytes| self.socket.send(peer, bytes));
        }
    }

    fn tick(&self) {
        loop {
            thread::sleep(TICK);
            let now = self.clock.now();
            for slot in &self.seats {
                self.look_after(&mut slot.lock().unwrap_or_else(PoisonError::into_inner), now);
            }
        }
    }
}
