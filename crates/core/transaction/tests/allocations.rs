//! Caching a response hardly allocates.
#![allow(clippy::expect_used, reason = "a test may fail loudly")]

use core::net::SocketAddr;

use strowger_allocations::{CountingAllocator, allocations_of};
use strowger_foundation::{Buf, Flow, ListenerId, TagKey, Timestamp, Transport};
use strowger_message::{Message, Status};
use strowger_transaction::{Kind, NO_USER, ServerKey, Timing, Transactions};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Responses per round; more than one chunk.
const ANSWERS: u32 = 300;

#[test]
fn responses_are_kept_in_chunks() {
    let mut layer = Transactions::new(Timing::default(), 1);
    let (secret, mut out, mut request) = (TagKey::new([7; 16]), Buf::with_capacity(2048), Vec::with_capacity(2048));
    let flow = Flow::new(ListenerId(0), Transport::Udp, SocketAddr::from(([192, 0, 2, 1], 5060)));
    let mut round = |at: u64| {
        let now = Timestamp::from_millis(1_000 * at);
        layer.handle_timeout(now);
        assert_eq!(layer.servers(), 0, "all have ended");
        for number in 0..ANSWERS {
            use std::io::Write as _;
            request.clear();
            write!(
                request,
                "OPTIONS sip:a SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK{at}.{number}\r\nTo: <sip:a>\r\n\
                 From: <sip:b>;tag=1\r\nCall-ID: c\r\nCSeq: 1 OPTIONS\r\nMax-Forwards: 70\r\n\r\n"
            )
            .expect("memory takes it");
            let message = Message::parse(&request).expect("valid");
            let key = ServerKey::of(&secret, message.head(), message.via(), message.method());
            let id = layer.open_server(now, key, Kind::NonInvite, flow, NO_USER).expect("room");
            // Typical and varying lengths.
            let mut response = layer.pool().take(500);
            response.resize(300 + number as usize % 100, b'x');
            layer.respond(now, id, Status::OK, response);
            assert_eq!(layer.poll_transmit(&mut out), Some(flow));
        }
        assert_eq!(layer.servers(), ANSWERS as usize);
    };
    round(0);
    round(40);
    let ((), asked) = allocations_of(|| [80, 120].into_iter().for_each(round));
    // All expire at once: all chunks but one are freed, and two parts of each are allocated again.
    let pieces = (ANSWERS as usize).div_ceil(128);
    assert!(asked <= 2 * 2 * pieces, "{asked} for {} answers", 2 * ANSWERS);
}
