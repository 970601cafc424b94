//! On an open connection, messages and keep-alives cost no allocation.

use strowger_allocations::{CountingAllocator, allocations_of};
use strowger_wire::stun::{MAX_RESPONSE, Outcome, handle_datagram};
use strowger_wire::websocket::{AllowedOrigins, Event, MessageKind, WebSocketServer, write_message, write_ping};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: sip\r\nSec-WebSocket-Version: 13\r\n\r\n";

#[test]
fn opening_messages_and_pings_are_free() {
    let (origins, mut out) = (AllowedOrigins::any(), Vec::with_capacity(4096));
    let mut bytes = REQUEST.to_vec();
    write_message(&mut bytes, &[b'x'; 600], Some([1, 2, 3, 4]));
    write_ping(&mut bytes, b"alive", Some([1, 2, 3, 4]));
    let ((), count) = allocations_of(|| {
        let mut server = WebSocketServer::new(65_536);
        let mut at = 0;
        let mut next = |out: &mut Vec<u8>| {
            let input = server.handle_input(&mut bytes[at..], &origins, out);
            at += input.consumed;
            input.event
        };
        assert_eq!(next(&mut out), Event::Opened);
        assert_eq!(next(&mut out), Event::Message { kind: MessageKind::Text, payload: 8..608 });
        assert_eq!(next(&mut out), Event::Ping);
        write_message(&mut out, &[b'x'; 600], None);
    });
    assert_eq!(count, 0);
}

#[test]
fn stun_is_free() {
    let request = b"\x00\x01\x00\x00\x21\x12\xa4\x42123456789012";
    let source = "192.0.2.1:5060".parse().expect("an address");
    let (outcome, count) = allocations_of(|| handle_datagram(request, source, &mut [0; MAX_RESPONSE]));
    assert_eq!((outcome, count), (Outcome::Success(32), 0));
}
