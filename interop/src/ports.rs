//! Allocation of unused ports.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use socket2::{Domain, Socket, Type};

/// Range below Linux's ephemeral ports (from 32768), so that no unrelated socket can take a port between the check
/// and the program's bind.
const RANGE: Range<u32> = 20_000..32_000;

/// Distance between the first ports of two test executables.
const STRIDE: u32 = 97;

/// Returns a port that is free for UDP and TCP on every address. A test executable gets each port at most once.
#[must_use]
pub fn free_port() -> u16 {
    find(1)
}

/// Like [`free_port`], with the next port free as well: `baresip` uses two (SIP and SIP over TLS).
#[must_use]
pub fn free_port_pair() -> u16 {
    find(2)
}

fn find(width: u32) -> u16 {
    // Concurrent executables start at different offsets. The bind below decides.
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

/// Returns whether a TCP listener can bind this address without `SO_REUSEADDR`. The standard library sets that
/// option, `baresip` does not, so a connection in TIME_WAIT from an earlier test keeps it from listening.
fn is_free_for_streams(address: SocketAddr) -> bool {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&address.into()).is_ok() && socket.listen(1).is_ok()
}
