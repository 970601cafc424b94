//! The floor: the six packets of a Proxy-200 call, of their sizes, between two sockets of one thread, with nothing written
//! or read of them. What `both_ends` costs beside this is the generator's own work.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use strowger_net::{BufferSizes, RecvBatch, SendBatch, UdpSocket};

/// What answers which packet, by its first byte: sizes of INVITE, 180, 200, ACK, BYE, 200.
const SIZES: [usize; 6] = [560, 330, 500, 330, 330, 300];

fn send(socket: &mut UdpSocket, batch: &mut SendBatch, to: SocketAddr, kinds: &[u8]) {
    for kind in kinds {
        batch.next_slot().resize(SIZES[usize::from(*kind)], *kind);
        batch.commit(to);
        if batch.is_full() {
            let _ = socket.send(batch, |_| ());
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds: f64 = std::env::args().nth(1).unwrap_or_default().parse().unwrap_or(3.0);
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let (mut a, mut b) = (UdpSocket::bind(any, BufferSizes::DEFAULT)?, UdpSocket::bind(any, BufferSizes::DEFAULT)?);
    let (at, bt) = (a.local_addr(), b.local_addr());
    let (mut out_a, mut out_b, mut batch) = (SendBatch::new(), SendBatch::new(), RecvBatch::new());
    let (begun, mut calls) = (Instant::now(), 0_u64);
    send(&mut a, &mut out_a, bt, &[0; 32]);
    while begun.elapsed() < Duration::from_secs_f64(seconds) {
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
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let cpu: f64 = text.split(' ').next().unwrap_or("0").parse()?;
    println!(
        "{:.0} calls/s, {:.2} µs of CPU each",
        calls as f64 / begun.elapsed().as_secs_f64(),
        cpu / 1e3 / calls as f64
    );
    Ok(())
}
