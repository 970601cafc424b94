//! Thread per message: one thread receives and creates a thread for each message, which handles it and ends.
//!
//! In the paper, a stateless proxy creates two threads in succession per message, one to parse and one to process it.
//! A stateful one creates a thread that lives as long as the transaction; §6.3 explains why this does not scale:
//! transactions live for half a minute. Here a message has one thread and transactions live in shards, which is the
//! cheapest form of this architecture. The shards are behind locks, see [`LockedShards`]. Another lock counts the
//! threads, whose number is bounded: at the limit, the receiver waits and messages queue in the socket.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use crate::locked_shards::LockedShards;
use crate::shard_group::{Setup, ShardGroup};
use crate::socket::{MAX_DATAGRAM, Socket};

/// Stack size of a message thread.
const STACK_BYTES: usize = 512 << 10;

pub(super) fn serve(setup: &Setup, socket: Socket, limit: usize, ready: impl FnOnce()) -> io::Result<()> {
    let locked = LockedShards::start(setup, socket)?;
    let queue = Arc::new(LiveThreads::default());
    let mut buffer = vec![0; MAX_DATAGRAM];
    locked.socket.wait_in_receive()?;
    ready();
    loop {
        let Some((length, peer)) = locked.socket.receive(&mut buffer)? else { continue };
        let message: Box<[u8]> = buffer[..length].into();
        queue.enter(limit);
        let (locked, its) = (Arc::clone(&locked), Arc::clone(&queue));
        let work = move || {
            let mut own = its.take_brain(&locked);
            locked.handle(&mut own, peer, &message);
            its.leave(Some(own));
        };
        if thread::Builder::new().stack_size(STACK_BYTES).spawn(work).is_err() {
            // No thread can be created: the message is lost, as if the socket had dropped it.
            queue.leave(None);
        }
    }
}

/// The number of threads, and the shard groups of finished threads for reuse, like the paper's memory pools.
#[derive(Default)]
struct LiveThreads {
    inside: Mutex<LiveThreadsState>,
    left: Condvar,
}

#[derive(Default)]
struct LiveThreadsState {
    count: usize,
    brains: Vec<ShardGroup>,
}

impl LiveThreads {
    fn enter(&self, limit: usize) {
        let inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let is_crowded = |inside: &mut LiveThreadsState| inside.count >= limit;
        self.left.wait_while(inside, is_crowded).unwrap_or_else(PoisonError::into_inner).count += 1;
    }

    fn take_brain(&self, locked: &LockedShards) -> ShardGroup {
        let kept = self.inside.lock().unwrap_or_else(PoisonError::into_inner).brains.pop();
        kept.unwrap_or_else(|| locked.own())
    }

    fn leave(&self, shard: Option<ShardGroup>) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        inside.count -= 1;
        inside.brains.extend(shard);
        drop(inside);
        self.left.notify_one();
    }
}
