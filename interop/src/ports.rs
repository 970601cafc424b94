//! Ports that nobody uses.

use std::net::{TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the range from which Linux takes ports for outgoing sockets (from 32768), so that no
/// unrelated socket can take a port between our look and the program's bind.
const RANGE: Range<u32> = 20_000..32_000;

/// How far the ports of two test executables lie apart at the start.
const STRIDE: u32 = 97;

/// A port that is free for UDP and TCP on every address, handed out once per test executable.
#[must_use]
pub fn free_port() -> u16 {
    find(1)
}

/// Like [`free_port`], with the port after it free too: `baresip` takes two (SIP and SIP over TLS).
#[must_use]
pub fn free_port_pair() -> u16 {
    find(2)
}

fn find(width: u32) -> u16 {
    // Executables that run at the same time start at different places; the bind below decides.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let size = RANGE.end - RANGE.start;
    let start = std::process::id().wrapping_mul(STRIDE);
    for _ in 0..size {
        let taken = NEXT.fetch_add(width, Ordering::Relaxed);
        let first = RANGE.start + start.wrapping_add(taken) % (size - width);
        if (first..first + width).all(is_free) {
            return u16::try_from(first).expect("the range fits a port");
        }
    }
    panic!("no free port in {RANGE:?}");
}

fn is_free(port: u32) -> bool {
    let address = ("0.0.0.0", u16::try_from(port).expect("the range fits a port"));
    UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok()
}
