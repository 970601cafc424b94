//! Turns of single connections, one by one: what is read when, and what is known of a peer meanwhile.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream as Line};
use std::sync::Arc;
use std::time::Duration;

use strowger_auth::Network;
use strowger_foundation::Timestamp;
use strowger_net::{AllowedOrigins, StreamSocket, TcpListener, WebSocketContext};

use super::options;
use super::overload::{connect, hear, listen, streams};
use super::single::SingleWorker;
use crate::connection_index::ConnectionIndex;
use crate::streams::CloseReason;

const ANYWHERE: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: sip\r\n\r\n";

/// Frames of a client whose mask is zero: a pong, and a text message of a double line end.
const PONG: &[u8] = &[0x8A, 0x80, 0, 0, 0, 0];
const BLANK: &[u8] = b"\x81\x84\0\0\0\0\r\n\r\n";

fn seconds(number: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(number)
}

/// Gives a connection a turn, as if the kernel had reported input.
fn read(alone: &mut SingleWorker, now: Timestamp, slot: u32) {
    streams(alone).get(slot).expect("it is open").is_readable = true;
    streams(alone).list(slot);
    alone.worker.ingress.read_streams(now);
    streams(alone).finish();
}

fn pass_time(alone: &mut SingleWorker, now: Timestamp) {
    streams(alone).handle_timeout(now);
    streams(alone).finish();
}

/// Returns a worker with an open WebSocket in its slot 0.
fn with_web_socket() -> (SingleWorker, Line) {
    let mut alone = SingleWorker::new(4);
    let context = Arc::new(WebSocketContext::new(AllowedOrigins::any(), 65_536));
    let listener = StreamSocket::bind_web_socket(ANYWHERE.into(), None, context).expect("a free port");
    let address = listen(&mut alone, listener);
    let mut line = connect(&mut alone, address);
    line.write_all(UPGRADE).expect("loopback takes it");
    read(&mut alone, Timestamp::ZERO, 0);
    assert!(hear(&mut line).starts_with("HTTP/1.1 101 "));
    (alone, line)
}

#[track_caller]
fn expect_ping(line: &mut Line) {
    let mut frame = [0; 2];
    line.read_exact(&mut frame).expect("a frame in time");
    assert_eq!(frame, [0x89, 0]);
}

//= rfc7118#6
#[test]
fn a_web_socket_that_is_not_read_for_a_while_stays_open() {
    let (mut alone, mut line) = with_web_socket();
    pass_time(&mut alone, seconds(31));
    expect_ping(&mut line);
    line.write_all(PONG).expect("loopback takes it");
    streams(&mut alone).pause_reading(0);
    (2..10).for_each(|number| pass_time(&mut alone, seconds(31 * number)));
    assert_eq!((streams(&mut alone).len(), streams(&mut alone).counters.ws_unanswered), (1, 0));

    assert!(!streams(&mut alone).resume_reading(|_| true));
    read(&mut alone, seconds(300), 0);
    line.set_nonblocking(true).expect("a sound socket");
    line.read(&mut [0; 2]).expect_err("no ping while its answer could not be read");
    line.set_nonblocking(false).expect("a sound socket");
    // From here on, it is watched like all others.
    pass_time(&mut alone, seconds(331));
    expect_ping(&mut line);
    pass_time(&mut alone, seconds(362));
    assert_eq!((streams(&mut alone).len(), streams(&mut alone).counters.ws_unanswered), (0, 1));
}

#[test]
fn blank_messages_of_a_web_socket_take_turns_with_others() {
    const SENT: usize = 1000;
    const A_TURN: usize = 8;
    let (mut alone, mut line) = with_web_socket();
    line.write_all(&BLANK.repeat(SENT)).expect("loopback takes it");
    let answered = |alone: &SingleWorker| alone.worker.ingress.host.io.counters.keep_alives as usize;
    let mut turns = 0;
    while answered(&alone) < SENT {
        let before = answered(&alone);
        read(&mut alone, seconds(1), 0);
        assert!(answered(&alone) - before <= A_TURN, "others wait");
        turns += 1;
        assert!(turns <= SENT, "all are answered");
    }
    let mut responses = vec![0; 4 * SENT];
    line.read_exact(&mut responses).expect("responses in time");
    assert!(responses == b"\x81\x02\r\n".repeat(SENT), "each has its own");
}

fn shake_hands(alone: &mut SingleWorker) {
    streams(alone).queue_handshake(0);
    // The handshake, and what came with it.
    for _ in 0..2 {
        alone.worker.ingress.read_streams(Timestamp::ZERO);
        streams(alone).finish();
    }
}

#[test]
fn the_previous_connection_of_a_slot_does_not_take_the_proxy_header() {
    const HEADER: &[u8] = b"PROXY TCP4 192.0.2.7 192.0.2.1 40000 5060\r\n";
    let mut alone = SingleWorker::new(4);
    let balancers = vec![Network { address: ANYWHERE.0.into(), prefix: 32 }];
    streams(&mut alone).index = Arc::new(ConnectionIndex::new(64, 64).with_balancers(balancers));
    let listener = TcpListener::bind(SocketAddr::from(ANYWHERE)).expect("a free port");
    let address = listen(&mut alone, listener.into());
    let mut previous = connect(&mut alone, address);
    previous.write_all(HEADER).expect("loopback takes it");
    previous.write_all(&options("0-hello")).expect("loopback takes it");
    shake_hands(&mut alone);
    assert!(hear(&mut previous).ends_with("count 1"));
    // It breaks while it waits for a turn, and the next one gets its slot.
    streams(&mut alone).list(0);
    streams(&mut alone).kill(0, CloseReason::Broken);
    streams(&mut alone).finish();
    let mut next = connect(&mut alone, address);
    assert_eq!((streams(&mut alone).len(), streams(&mut alone).ready()), (1, 1));
    next.write_all(HEADER).expect("loopback takes it");
    next.write_all(&options("0-hello")).expect("loopback takes it");
    // While its handshake waits for those of others.
    read(&mut alone, Timestamp::ZERO, 0);
    shake_hands(&mut alone);
    assert!(hear(&mut next).ends_with("count 2"));
    let counters = streams(&mut alone).counters;
    assert_eq!((counters.proxied, counters.closed_malformed, counters.proxy_header_failures), (2, 0, 0));
}
