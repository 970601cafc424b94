//! Ports that nobody uses.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use socket2::{Domain, Socket, Type};

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
    let port = u16::try_from(port).expect("the range fits a port");
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    UdpSocket::bind(address).is_ok() && is_free_for_streams(address)
}

/// Without the reuse that the standard library asks for: `baresip` does not ask for it either, so a connection of an earlier
/// test that still waits for its end (TIME_WAIT) keeps it from listening.
fn is_free_for_streams(address: SocketAddr) -> bool {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&address.into()).is_ok() && socket.listen(1).is_ok()
}
