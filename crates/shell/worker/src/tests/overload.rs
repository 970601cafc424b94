//! Overload: deferral, paused reading, and drops by the kernel.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream as Line};
use std::time::Duration;

use mio::{Poll, Token};
use strowger_foundation::Timestamp;
use strowger_net::{StreamSocket, TcpListener};
use strowger_overload::MAX_QUEUE_WAIT;

use super::single::SingleWorker;
use super::{DEADLINE, options, phone};
use crate::WorkerOptions;
use crate::listener_socket::ListenerSocket;
use crate::stream_listener::StreamListener;
use crate::streams::Streams;

/// Creates a worker with a number of connections to its first shard.
fn with_connections(count: usize) -> (SingleWorker, Vec<Line>) {
    let mut alone = SingleWorker::new(4);
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
    let address = listen(&mut alone, listener.into());
    let lines = (0..count).map(|_| connect(&mut alone, address)).collect();
    (alone, lines)
}

/// Makes a worker listen for connections; returns the address.
pub(super) fn listen(alone: &mut SingleWorker, listener: StreamSocket) -> SocketAddr {
    let address = listener.local_addr();
    let poll = Poll::new().expect("epoll");
    let entrance = StreamListener::new(listener, poll.registry(), Token(1)).expect("a fresh socket");
    alone.worker.ingress.host.io.sockets[1] = ListenerSocket::Stream(entrance);
    address
}

/// Opens a connection that the worker accepts.
pub(super) fn connect(alone: &mut SingleWorker, address: SocketAddr) -> Line {
    let line = Line::connect(address).expect("it listens");
    line.set_read_timeout(Some(DEADLINE)).expect("a sound socket");
    let before = streams(alone).len();
    while streams(alone).len() == before {
        if let ListenerSocket::Stream(entrance) = &mut alone.worker.ingress.host.io.sockets[1] {
            entrance.is_readable = true;
        }
        alone.worker.ingress.host.io.accept(Timestamp::ZERO, 1);
    }
    line
}

/// Runs twice: once to classify the input of connections, once for deferred ones.
fn read_twice(alone: &mut SingleWorker, now: Timestamp) {
    for _ in 0..2 {
        alone.worker.ingress.read_streams(now);
        streams(alone).finish();
    }
}

pub(super) fn streams(alone: &mut SingleWorker) -> &mut Streams {
    &mut alone.worker.ingress.host.io.streams
}

/// A request that is queued as new work but never refused.
fn within_a_dialog(call_id: &str) -> String {
    let text = String::from_utf8(options(call_id)).expect("text");
    text.replace("OPTIONS", "INVITE").replace("To: <sip:example.com>", "To: <sip:example.com>;tag=2")
}

/// Returns what a connection receives.
pub(super) fn hear(line: &mut Line) -> String {
    let mut buffer = [0; 256];
    let length = line.read(&mut buffer).expect("an answer in time");
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

#[test]
fn connections_with_new_work_are_read_last_under_overload() {
    for (is_limiting, count) in [(false, 1), (true, 2)] {
        let (mut alone, mut lines) = with_connections(2);
        if is_limiting {
            alone.worker.ingress.host.admission.begin_limiting();
        }
        lines[0].write_all(within_a_dialog("0-new").as_bytes()).expect("loopback takes it");
        let bye = String::from_utf8(options("0-bye")).expect("text").replace("OPTIONS", "BYE");
        lines[1].write_all(bye.as_bytes()).expect("loopback takes it");
        let now = Timestamp::from_millis(1);
        // In this order, regardless of kernel events.
        (0..2).for_each(|slot| {
            let connection = streams(&mut alone).get(slot).expect("it is open");
            connection.is_readable = true;
            streams(&mut alone).list(slot);
        });
        read_twice(&mut alone, now);
        assert!(hear(&mut lines[0]).ends_with(&format!("count {count}")), "limiting: {is_limiting}");
        assert!(hear(&mut lines[1]).ends_with(&format!("count {}", 3 - count)), "limiting: {is_limiting}");
    }
}

#[test]
fn under_overload_some_connections_are_not_read_and_drop_their_backlog() {
    const ALL: u64 = 40;
    let (mut alone, mut lines) = with_connections(ALL as usize);
    alone.worker.ingress.host.admission.begin_limiting();
    alone.worker.ingress.host.admission.limit_connections();
    let now = Timestamp::from_millis(1);
    for (slot, line) in (0..).zip(&mut lines) {
        // One message within a dialog, and one that begins new work.
        line.write_all(within_a_dialog("0-dialog").as_bytes()).expect("loopback takes it");
        line.write_all(&options("0-new")).expect("loopback takes it");
        streams(&mut alone).get(slot).expect("it is open").is_readable = true;
        streams(&mut alone).list(slot);
    }
    read_twice(&mut alone, now);
    let left = streams(&mut alone).counters.overload_pauses;
    assert!((ALL / 2..ALL).contains(&left), "{left}");
    let read = 2 * (ALL - left);
    assert_eq!(streams(&mut alone).counters.messages_in, read);
    // They are not made ready again by any event.
    (0..ALL as u32).for_each(|slot| streams(&mut alone).list(slot));
    read_twice(&mut alone, now);
    assert_eq!(streams(&mut alone).counters.messages_in, read);

    assert!(streams(&mut alone).resume_reading(|_| false), "they stay");
    let shed = alone.worker.ingress.host.io.counters.shed;
    assert!(!streams(&mut alone).resume_reading(|_| true));
    read_twice(&mut alone, now);
    assert_eq!(streams(&mut alone).counters.messages_in, 2 * ALL);
    assert_eq!(alone.worker.ingress.host.io.counters.shed - shed, left, "new work that has waited in them");
    lines.iter_mut().for_each(|line| assert!(hear(line).starts_with("0-dialog")));
    // From here on they are like all others.
    assert!((0..ALL as u32).all(|slot| streams(&mut alone).get(slot).is_some_and(|connection| !connection.is_stale)));
}

#[test]
fn emergency_calls_are_read_on_every_connection() {
    let (mut alone, mut lines) = with_connections(40);
    alone.worker.ingress.host.admission.begin_limiting();
    alone.worker.ingress.host.admission.limit_connections();
    for (slot, line) in (0..).zip(&mut lines) {
        let call = within_a_dialog("0-sos").replace("INVITE sip:example.com", "INVITE urn:service:sos");
        line.write_all(call.as_bytes()).expect("loopback takes it");
        streams(&mut alone).get(slot).expect("it is open").is_readable = true;
        streams(&mut alone).list(slot);
    }
    alone.worker.ingress.read_streams(Timestamp::from_millis(1));
    let counters = streams(&mut alone).counters;
    assert_eq!((counters.messages_in, counters.overload_pauses), (40, 0));
}

#[test]
fn a_queue_with_too_long_waits_gets_less_room() {
    const SENT: u64 = 200;
    for (longest, is_cut) in [(MAX_QUEUE_WAIT / 2, false), (Duration::from_secs(60), true)] {
        let mut alone = SingleWorker::made(4, &WorkerOptions::default(), true);
        let phone = phone(alone.address);
        let queue =
            |alone: &mut SingleWorker| alone.worker.ingress.host.io.new_work[0].take().expect("the kernel sorts");
        let mut new_work = queue(&mut alone);
        new_work.note_wait(longest);
        new_work.bound(MAX_QUEUE_WAIT);
        let before = new_work.socket.socket().counters().received;
        alone.worker.ingress.host.io.new_work[0] = Some(new_work);
        let request = within_a_dialog("0-new").replace("\r\n\r\n", &format!("\r\nX: {:-<800}\r\n\r\n", ""));
        for _ in 0..SENT {
            phone.send(request.as_bytes()).expect("loopback takes it");
        }
        for _ in 0..SENT {
            alone.worker.ingress.mark_all_readable();
            alone.worker.round();
        }
        let received = queue(&mut alone).socket.socket().counters().received - before;
        assert!(received > 0 && (received < SENT) == is_cut, "{longest:?}: {received}");
    }
}
