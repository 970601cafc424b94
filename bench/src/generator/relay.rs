//! The relay for comparison: the six packets of a call, in their sizes, between two sockets of one thread, with only
//! the first byte written and read. The generator's additional cost is its own work.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use strowger_net::{BufferSizes, OrderingKey, RecvBatch, SendBatch, UdpSocket};

use super::thread_time;

/// Packet sizes by first byte: INVITE, 180, 200, ACK, BYE, 200, as the generator writes them.
const SIZES: [usize; 6] = [560, 330, 500, 330, 330, 300];

/// Cost of the relay: calls per second, and processor time per call in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct RelayCost {
    /// Calls per second.
    pub rate: f64,
    /// Processor time per call, in microseconds.
    pub cost: f64,
}

/// Relays calls, with `at_once` concurrent calls.
///
/// # Errors
/// If no socket is available.
pub fn run(time: Duration, at_once: usize) -> io::Result<RelayCost> {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let open = || UdpSocket::bind(any, BufferSizes::DEFAULT).map_err(|error| error.cause);
    let (mut a, mut b) = (open()?, open()?);
    let (at, bt) = (a.local_addr(), b.local_addr());
    let (mut out_a, mut out_b, mut batch) = (SendBatch::new(), SendBatch::new(), RecvBatch::new());
    let (begun, before, mut calls) = (Instant::now(), thread_time(), 0_u64);
    for _ in 0..at_once {
        send(&mut a, &mut out_a, bt, &[0]);
    }
    while begun.elapsed() < time {
        let _ = a.send(&mut out_a, |_| ());
        b.recv(&mut batch)?;
        for datagram in batch.iter() {
            match datagram.bytes.first() {
                Some(0) => send(&mut b, &mut out_b, at, &[1, 2]),
                Some(4) => send(&mut b, &mut out_b, at, &[5]),
                _ => {}
            }
        }
        let _ = b.send(&mut out_b, |_| ());
        a.recv(&mut batch)?;
        for datagram in batch.iter() {
            match datagram.bytes.first() {
                Some(2) => send(&mut a, &mut out_a, bt, &[3, 4]),
                Some(5) => {
                    calls += 1;
                    send(&mut a, &mut out_a, bt, &[0]);
                }
                _ => {}
            }
        }
    }
    let count = calls.max(1) as f64;
    Ok(RelayCost { rate: count / begun.elapsed().as_secs_f64(), cost: (thread_time() - before) * 1e6 / count })
}

fn send(socket: &mut UdpSocket, batch: &mut SendBatch, to: SocketAddr, kinds: &[u8]) {
    for kind in kinds {
        batch.next_slot().resize(SIZES[usize::from(*kind)], *kind);
        batch.commit(to, OrderingKey::ALL);
        if batch.is_full() {
            let _ = socket.send(batch, |_| ());
        }
    }
}
