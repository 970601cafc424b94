//! Thread pool: all threads receive on one socket; the one that receives a message finishes it.
//!
//! In the paper (§6.2), only one thread can be in `recvfrom` at a time; the next enters when it returns. Today's
//! kernel accepts all of them: they sleep in the socket's wait queue and each packet wakes one, so the socket needs
//! no lock. The shards are behind locks, see [`LockedShards`], and the location table is shared. In stateless mode
//! each thread has its own forwarder. The number of threads is the c of an M/M/c/K queue whose K is the socket's
//! receive buffer.

use std::io;
use std::sync::Arc;
use std::thread;

use crate::locked_shards::LockedShards;
use crate::shard_group::Setup;
use crate::socket::{MAX_DATAGRAM, Socket};

pub(super) fn serve(setup: &Setup, socket: Socket, count: usize, ready: impl FnOnce()) -> io::Result<()> {
    let locked = LockedShards::start(setup, socket)?;
    locked.socket.wait_in_receive()?;
    let mut threads = Vec::new();
    for number in 0..count {
        let locked = Arc::clone(&locked);
        threads.push(thread::Builder::new().name(format!("pool-{number}")).spawn(move || work(&locked))?);
    }
    ready();
    for thread in threads {
        thread.join().map_err(|_| io::Error::other("a thread of the pool panicked"))??;
    }
    Ok(())
}

fn work(locked: &LockedShards) -> io::Result<()> {
    let mut own = locked.own();
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        match locked.socket.receive(&mut buffer)? {
            Some((length, peer)) => locked.handle(&mut own, peer, &buffer[..length]),
            None => locked.idle(&mut own),
        }
    }
}
