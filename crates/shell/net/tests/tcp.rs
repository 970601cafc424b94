//! Stream sockets over loopback.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};
use strowger_net::{IoOutcome, TcpListener, TcpStream};

/// Far more than any machine needs; bounds the time of a failing test.
const DEADLINE: Duration = Duration::from_secs(20);

fn bind(ip: &str) -> Option<TcpListener> {
    match TcpListener::bind(SocketAddr::new(ip.parse().expect("an address"), 0)) {
        Ok(listener) => Some(listener),
        Err(error) => {
            assert_ne!(ip, "127.0.0.1", "{error}");
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// Polls until there is a result, waiting for events of a socket in between.
fn wait_for<T>(poll: &mut Poll, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    let mut events = Events::with_capacity(8);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "nothing more came");
        poll.poll(&mut events, Some(left)).expect("epoll");
    }
}

fn register(poll: &Poll, source: &mut impl mio::event::Source, token: usize) {
    let interests = Interest::READABLE | Interest::WRITABLE;
    poll.registry().register(source, Token(token), interests).expect("a fresh socket");
}

#[test]
fn a_connection_carries_data_both_ways_and_reports_eof() {
    for ip in ["127.0.0.1", "::1"] {
        let Some(mut listener) = bind(ip) else { continue };
        let mut poll = Poll::new().expect("epoll");
        register(&poll, &mut listener, 0);
        assert!(listener.accept().expect("a sound socket").is_none());
        let mut near = TcpStream::connect(listener.local_addr().ip(), listener.local_addr()).expect("loopback");
        register(&poll, &mut near, 1);
        let (mut far, peer) = wait_for(&mut poll, || listener.accept().expect("a sound socket"));
        register(&poll, &mut far, 2);
        assert_eq!(peer.ip(), listener.local_addr().ip());
        wait_for(&mut poll, || near.is_connected().expect("it is taken").then_some(()));
        near.tune(Duration::from_secs(5)).expect("an open connection");
        let mut buffer = [0; 16];
        assert_eq!(far.read(&mut buffer).expect("sound"), IoOutcome::Blocked);
        for (from, to) in [(&near, &far), (&far, &near)] {
            assert_eq!(from.write(b"hello").expect("sound"), IoOutcome::Bytes(5));
            let read = wait_for(&mut poll, || match to.read(&mut buffer).expect("sound") {
                IoOutcome::Blocked => None,
                moved => Some(moved),
            });
            assert_eq!((read, &buffer[..5]), (IoOutcome::Bytes(5), b"hello".as_slice()));
        }
        near.end();
        let end = wait_for(&mut poll, || match far.read(&mut buffer).expect("sound") {
            IoOutcome::Blocked => None,
            moved => Some(moved),
        });
        assert_eq!(end, IoOutcome::Eof);
        assert_eq!(far.write(b"bye").expect("one side only has ended"), IoOutcome::Bytes(3));
    }
}

#[test]
fn a_write_to_a_full_connection_returns_blocked() {
    let listener = bind("127.0.0.1").expect("loopback");
    let mut poll = Poll::new().expect("epoll");
    let mut near = TcpStream::connect(listener.local_addr().ip(), listener.local_addr()).expect("loopback");
    register(&poll, &mut near, 0);
    wait_for(&mut poll, || near.is_connected().expect("it is taken").then_some(()));
    let chunk = vec![b'x'; 1024 * 1024];
    let written: usize = std::iter::from_fn(|| match near.write(&chunk).expect("sound") {
        IoOutcome::Bytes(count) => Some(count),
        IoOutcome::Blocked => None,
        IoOutcome::Eof => panic!("it is open"),
    })
    .take(64)
    .sum();
    assert!((1..64 * chunk.len()).contains(&written), "{written} B");
}

#[test]
fn a_closed_port_refuses_connections() {
    let listener = bind("127.0.0.1").expect("loopback");
    let address = listener.local_addr();
    drop(listener);
    let mut poll = Poll::new().expect("epoll");
    let error = match TcpStream::connect(address.ip(), address) {
        Ok(mut near) => {
            register(&poll, &mut near, 0);
            wait_for(&mut poll, || near.is_connected().err())
        }
        Err(error) => error,
    };
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn only_siblings_share_an_address() {
    let first = bind("127.0.0.1").expect("loopback");
    let second = first.sibling().expect("the address is ours");
    assert_eq!(first.local_addr(), second.local_addr());
    let refused = TcpListener::bind(first.local_addr()).expect_err("it is taken");
    let address = first.local_addr();
    assert!(refused.to_string().starts_with(&format!("tcp:{address} is in use by another process;")), "{refused}");
    drop((first, second));
    TcpListener::bind(address).expect("it is free again");
}
