//! Thread pool: threads that all receive on the one socket; who has received a message finishes it.
//!
//! In the paper (§6.2) only one of the threads can be in `recvfrom` at a time, the next enters when it returns. Today's kernel
//! takes them all: they sleep in the socket's queue, and each packet wakes one. So there is no lock around the socket; the shards
//! are behind locks, see [`Shelf`], the location table is shared, and where nothing is kept of what is forwarded each thread has
//! a forwarder of its own. How many threads there are is the c of a queue M/M/c/K whose K is the socket's receive buffer.

use std::io;
use std::sync::Arc;
use std::thread;

use crate::locked_shards::LockedShards;
use crate::shard_group::Setup;
use crate::socket::{MAX_DATAGRAM, Socket};

pub(super) fn serve(setup: &Setup, socket: Socket, count: usize, ready: impl FnOnce()) -> io::Result<()> {
    let shelf = LockedShards::start(setup, socket)?;
    shelf.socket.wait_in_receive()?;
    let mut threads = Vec::new();
    for number in 0..count {
        let shelf = Arc::clone(&shelf);
        threads.push(thread::Builder::new().name(format!("pool-{number}")).spawn(move || work(&shelf))?);
    }
    ready();
    for thread in threads {
        thread.join().map_err(|_| io::Error::other("a thread of the pool panicked"))??;
    }
    Ok(())
}

fn work(shelf: &LockedShards) -> io::Result<()> {
    let mut own = shelf.own();
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        match shelf.socket.receive(&mut buffer)? {
            Some((length, peer)) => shelf.handle(&mut own, peer, &buffer[..length]),
            None => shelf.idle(&mut own),
        }
    }
}
