//! Connections over loopback, plain and over TLS, with cooperative, slow, silent, non-reading and vanished peers.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener as Peer, TcpStream, UdpSocket as Phone};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket as Raw, Type};
use strowger_locate::{CandidateList, LocateQuery};

use super::line::{self, Line, expect};
use super::{
    DEADLINE, ask, config, launch, options, phone, receive, snapshot, sockets_and_listener, sockets_and_tls, spin_until,
};
use crate::{Fleet, FleetConfig, Reply, Resolve, StreamLimits, WorkerOptions, WorkerStatus};

/// Whether this is the copy of the module whose connections use TLS.
fn is_secure() -> bool {
    module_path!().contains("tls")
}

/// A fleet with listener 0 for datagrams and listener 1 for connections.
pub(super) struct Running {
    pub(super) fleet: Fleet,
    datagrams: SocketAddr,
    connections: SocketAddr,
}

pub(super) fn start(workers: usize, streams: StreamLimits) -> Running {
    start_with(workers, streams, None)
}

fn start_with(workers: usize, streams: StreamLimits, resolver: Option<Arc<dyn Resolve>>) -> Running {
    let sockets = if is_secure() { sockets_and_tls(workers, line::context()) } else { sockets_and_listener(workers) };
    let [datagrams, connections] = [0, 1].map(|listener: usize| sockets[0][listener].local_addr());
    let snapshot = snapshot(&sockets[0]);
    let options = WorkerOptions { min_workers: workers, ..WorkerOptions::default() };
    let fleet = launch(FleetConfig { streams, resolver, options, ..config(sockets, snapshot) }).expect("threads");
    Running { fleet, datagrams, connections }
}

impl Running {
    pub(super) fn line(&self) -> Line {
        let stream = TcpStream::connect(self.connections).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a sound socket");
        stream.set_nodelay(true).expect("a sound socket");
        if is_secure() { Line::secure(stream) } else { Line::plain(stream) }
    }

    /// Opens a connection whose end can be called: over TLS, it has a certificate with its address.
    fn callable_line(&self) -> Line {
        if !is_secure() {
            return self.line();
        }
        let stream = TcpStream::connect(self.connections).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a sound socket");
        let config = line::client_config(Some(&line::CERTIFICATES.own));
        Line::client(stream, &Arc::new(config), "127.0.0.1")
    }

    pub(super) fn phone(&self) -> Phone {
        phone(self.datagrams)
    }

    /// Creates a phone that receives connection notifications of the shard.
    fn watcher(&self, shard: u16) -> Phone {
        let phone = self.phone();
        let answer = ask(&phone, &format!("{shard}-watch"));
        assert!(answer.starts_with(&format!("{shard}-watch shard {shard}")), "{answer}");
        phone
    }

    fn wait_for(&self, mut is_right: impl FnMut(&WorkerStatus) -> bool) -> WorkerStatus {
        spin_until(|| is_right(&self.fleet.status().total));
        self.fleet.status().total
    }
}

/// Waits until the far end closes the connection; returns what it sent before.
#[track_caller]
fn expect_end(line: &mut Line) -> String {
    let mut rest = Vec::new();
    match line.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof) => {}
        Err(error) => panic!("it is not closed: {error}"),
    }
    String::from_utf8(rest).expect("text")
}

fn accept(peer: &Peer) -> Line {
    let (stream, _) = peer.accept().expect("somebody comes");
    stream.set_read_timeout(Some(DEADLINE)).expect("a sound socket");
    if is_secure() {
        let config = line::server_config(&line::CERTIFICATES.own);
        return Line::accepted(stream, Arc::new(config));
    }
    Line::plain(stream)
}

fn said(call_id: &str, count: u64) -> String {
    let shard = call_id.split('-').next().expect("a number");
    format!("{call_id} shard {shard} life 0 count {count}")
}

//= rfc3261#18:udp-and-tcp
//= rfc3261#18.2.2:same-connection
#[test]
fn fragmented_messages_are_read_and_answered_on_their_connection() {
    let running = start(3, StreamLimits::default());
    let mut line = running.line();
    for shard in 0..6 {
        let message = options(&format!("{shard}-hello"));
        let (start, end) = message.split_at(100);
        line.write_all(start).expect("loopback takes it");
        // Each piece is received before the rest follows.
        running.wait_for(|total| total.streams.bytes_in as usize >= shard * message.len() + 100);
        line.write_all(end).expect("loopback takes it");
        expect(&mut line, &said(&format!("{shard}-hello"), 1));
    }
    for byte in options("4-slow") {
        line.write_all(&[byte]).expect("loopback takes it");
    }
    expect(&mut line, &said("4-slow", 2));
    // A hundred per segment, all for one shard: order is preserved.
    let many: Vec<u8> = (0..100).flat_map(|number| options(&format!("5-{number}"))).collect();
    line.write_all(&many).expect("loopback takes it");
    for number in 0..100 {
        expect(&mut line, &said(&format!("5-{number}"), 2 + number));
    }
    let total = running.wait_for(|total| total.streams.messages_in == 107 && total.streams.messages_out == 107);
    assert_eq!((total.connections, total.streams.accepted, total.worker.handover_drops), (1, 1, 0));
}

//= rfc5626#5.4:crlf
#[test]
fn a_ping_is_answered_and_other_line_ends_are_skipped() {
    let running = start(1, StreamLimits::default());
    let mut line = running.line();
    line.write_all(b"\r\n\r\n").expect("loopback takes it");
    expect(&mut line, "\r\n");
    let message = [b"\r\n".as_slice(), &options("0-a"), b"\r\n", &options("0-b"), b"\r\n\r\n"].concat();
    line.write_all(&message).expect("loopback takes it");
    expect(&mut line, &format!("{}{}\r\n", said("0-a", 1), said("0-b", 2)));
    let total = running.wait_for(|total| total.streams.pings == 2);
    assert_eq!(total.worker.malformed, 0);
}

//= rfc3261#18.3:content-length
#[test]
fn a_message_of_unknown_length_is_refused_and_closes_its_connection() {
    let running = start(1, StreamLimits::default());
    let mut good = running.line();
    let text = String::from_utf8(options("0-bad")).expect("text");
    for (length, answer) in [
        ("", "SIP/2.0 400 Missing Content-Length Header\r\n"),
        ("Content-Length: -1\r\n", "SIP/2.0 400 "),
        ("Content-Length: 5\r\nl: 5\r\n", "SIP/2.0 400 "),
        ("Content-Length: 67108864\r\n", "SIP/2.0 513 "),
    ] {
        let mut line = running.line();
        let bad = text.replace("Content-Length: 0\r\n", length) + "12345" + &text;
        line.write_all(bad.as_bytes()).expect("loopback takes it");
        let said = expect_end(&mut line);
        assert!(said.starts_with(answer), "{length}: {said}");
        assert!(said.contains("\r\nCall-ID: 0-bad\r\n") && said.ends_with("\r\n\r\n"), "{said}");
    }
    let mut line = running.line();
    line.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("loopback takes it");
    expect_end(&mut line);
    let total = running.wait_for(|total| total.streams.closed_malformed == 5 && total.connections == 1);
    assert_eq!(total.shard.requests, 0, "nothing behind such a length is a message");
    good.write_all(&options("0-good")).expect("loopback takes it");
    expect(&mut good, &said("0-good", 1));
}

#[test]
fn input_after_a_refusal_is_read_and_discarded() {
    let running = start(1, StreamLimits::default());
    let mut line = running.line();
    // More messages than one turn handles, so that the malformed one is found in the backlog.
    let mut bytes: Vec<u8> = (0..40).flat_map(|number| options(&format!("0-{number}"))).collect();
    let bad = String::from_utf8(options("0-bad")).expect("text").replace("Content-Length: 0\r\n", "");
    bytes.extend_from_slice(bad.as_bytes());
    line.write_all(&bytes).expect("loopback takes it");
    let said = expect_end(&mut line);
    assert!(said.contains("400 Missing Content-Length Header"), "{said}");
    line.write_all(&bytes).expect("its receiver is still there");
    running.wait_for(|total| total.streams.bytes_in as usize == 2 * bytes.len());
    drop(line);
    let total = running.wait_for(|total| total.connections == 0);
    assert_eq!((total.shard.requests, total.streams.closed_malformed, total.streams.closed_idle), (40, 1, 0));
}

#[test]
fn slow_messages_and_idle_connections_are_closed() {
    let message_timeout = Duration::from_millis(150);
    let running =
        start(1, StreamLimits { message_timeout, idle: Duration::from_millis(600), ..StreamLimits::default() });
    let (mut slow, mut silent) = (running.line(), running.line());
    slow.write_all(&options("0-whole")).expect("loopback takes it");
    slow.write_all(b"OPTIONS sip:").expect("loopback takes it");
    assert_eq!(expect_end(&mut slow), said("0-whole", 1));
    assert_eq!(running.wait_for(|total| total.streams.closed_slow == 1).streams.closed_idle, 0);
    assert_eq!(expect_end(&mut silent), "");
    running.wait_for(|total| total.streams.closed_idle == 1 && total.connections == 0);
}

//= rfc3261#18:keep-open
//= rfc5626#7:closed
#[test]
fn every_shard_hears_of_a_connection_closed_by_the_server() {
    let running = start(2, StreamLimits { idle: Duration::from_millis(200), ..StreamLimits::default() });
    let watchers = [0, 31].map(|shard| running.watcher(shard));
    let mut silent = running.line();
    let port = silent.local_addr().expect("bound").port();
    silent.write_all(&options("3-once")).expect("loopback takes it");
    assert_eq!(expect_end(&mut silent), said("3-once", 1));
    for watcher in &watchers {
        assert_eq!(receive(watcher), format!("closed {port}"));
    }
}

//= rfc3261#18:keep-open
#[test]
fn an_idle_connection_outlives_a_transaction() {
    let longest = Duration::from_secs(32);
    assert!(StreamLimits::default().idle > longest, "64 times T1");
}

#[test]
fn excess_connections_are_closed_at_once() {
    let running = start(2, StreamLimits { connections: 3, per_source: 2, ..StreamLimits::default() });
    let mut lines = [running.line(), running.line()];
    running.wait_for(|total| total.connections == 2);
    assert_eq!(expect_end(&mut running.line()), "");
    running.wait_for(|total| total.streams.refused_source == 1);
    for line in &mut lines {
        line.write_all(b"\r\n\r\n").expect("loopback takes it");
        expect(line, "\r\n");
    }
    // One more connection may be opened; a second one is refused.
    let watcher = running.watcher(0);
    let peers = [(); 2].map(|()| Peer::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"));
    let ports = peers.each_ref().map(|peer| peer.local_addr().expect("bound").port());
    ask(&running.phone(), &format!("0-call-{}", ports[0]));
    let mut line = accept(&peers[0]);
    expect(&mut line, "hello from 0");
    ask(&running.phone(), &format!("0-call-{}", ports[1]));
    assert_eq!(receive(&watcher), format!("unconnected {}", ports[1]));
    drop((lines, line));
    if is_secure() {
        assert_eq!(receive(&watcher), format!("unconnected {}", ports[0]), "the way of requests to the peer");
    }
    assert_eq!(receive(&watcher), format!("closed {}", ports[0]));
    running.wait_for(|total| total.streams.closed_by_peer >= 2 && total.connections == 0);
}

//= rfc3261#18.1.1:response-on-connection
//= rfc3261#18.1.1:open-connection
#[test]
fn all_shards_share_one_connection_to_a_peer() {
    let running = start(3, StreamLimits::default());
    let peer = Peer::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = peer.local_addr().expect("bound").port();
    let phone = running.phone();
    for shard in 0..6 {
        ask(&phone, &format!("{shard}-call-{port}-10"));
    }
    let mut line = accept(&peer);
    assert_eq!(line.peer_addr().expect("connected").ip(), running.connections.ip());
    let mut read = [0; 60 * 12];
    line.read_exact(&mut read).expect("all sixty");
    let text = String::from_utf8(read.to_vec()).expect("text");
    for shard in 0..6 {
        assert_eq!(text.matches(&format!("hello from {shard}")).count(), 10, "{text}");
    }
    let total = running.wait_for(|total| total.streams.messages_out == 60);
    assert_eq!((total.connections, total.streams.accepted), (1, 0));
    assert!(peer.set_nonblocking(true).is_ok() && peer.accept().is_err(), "there is no other");
    // In reverse: requests of the peer on this connection reach the shards, and the responses leave on it.
    line.write_all(&options("5-back")).expect("loopback takes it");
    expect(&mut line, &said("5-back", 2));
}

//= rfc3261#18.1.1:open-connection
#[test]
fn an_incoming_connection_is_used_to_reach_its_peer() {
    let running = start(2, StreamLimits::default());
    let mut line = running.callable_line();
    line.write_all(b"\r\n\r\n").expect("loopback takes it");
    expect(&mut line, "\r\n");
    let port = line.local_addr().expect("bound").port();
    for shard in [0, 1] {
        ask(&running.phone(), &format!("{shard}-call-{port}"));
        expect(&mut line, &format!("hello from {shard}"));
    }
    assert_eq!(running.wait_for(|total| total.streams.messages_out == 2).streams.opened, 0);
}

//= rfc3261#18.4:connection
#[test]
fn senders_are_told_of_an_unreachable_peer() {
    let limits = StreamLimits { connect_timeout: Duration::from_millis(200), ..StreamLimits::default() };
    let running = start(2, limits);
    let watchers = [running.watcher(0), running.watcher(1)];
    // A port that refuses connections: bound, but not listening.
    let closed = Raw::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).expect("a socket");
    closed.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a port");
    let port = closed.local_addr().expect("bound").as_socket().expect("an address").port();
    // The second shard sends on a connection that the first one may still be opening.
    for shard in [0, 1] {
        ask(&running.phone(), &format!("{shard}-call-{port}-3"));
    }
    for watcher in &watchers {
        assert_eq!(receive(watcher), format!("unconnected {port}"));
    }
    // A port that does not answer: its accept queue is full.
    closed.listen(0).expect("it is bound");
    let _fill: Vec<_> = (0..2)
        .map(|_| {
            let socket = Raw::new(Domain::IPV4, Type::STREAM.nonblocking(), Some(Protocol::TCP)).expect("a socket");
            let _ = socket.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into());
            socket
        })
        .collect();
    let before = running.fleet.status().total.streams;
    ask(&running.phone(), &format!("0-call-{port}"));
    while receive(&watchers[0]) != format!("unconnected {port}") {}
    running.wait_for(|total| total.streams.connect_timeouts > before.connect_timeouts && total.connections == 0);
}

#[test]
fn every_shard_hears_of_a_closed_connection_and_its_flow_ends() {
    let running = start(2, StreamLimits::default());
    let watchers = [0, 1, 30, 31].map(|shard| running.watcher(shard));
    let mut line = running.line();
    let port = line.local_addr().expect("bound").port();
    line.write_all(&options("3-keep")).expect("loopback takes it");
    expect(&mut line, &said("3-keep", 1));
    let phone = running.phone();
    ask(&phone, "3-again");
    expect(&mut line, "again");
    let watcher = running.watcher(3);
    drop(line);
    for watcher in watchers.iter().chain([&watcher]) {
        assert_eq!(receive(watcher), format!("closed {port}"));
    }
    ask(&phone, "3-again");
    assert_eq!(receive(&watcher), format!("unconnected {port}"), "no other connection takes its place");
    running.wait_for(|total| total.streams.closed_by_peer == 1 && total.connections == 0);
}

#[test]
fn a_connection_close_is_reported_after_all_its_messages() {
    let running = start(2, StreamLimits::default());
    let watchers = [running.watcher(0), running.watcher(1)];
    // Far more for the other worker than it takes per round.
    let many: Vec<u8> = (0..600).flat_map(|number| options(&format!("{}-x", number % 2))).collect();
    for _ in 0..10 {
        let mut line = running.line();
        let port = line.local_addr().expect("bound").port();
        line.write_all(&many).expect("loopback takes it");
        line.shutdown(Shutdown::Write).expect("connected");
        watchers.iter().for_each(|watcher| wait_for_word(watcher, &format!("closed {port}")));
    }
    for (shard, watcher) in watchers.iter().enumerate() {
        watcher.send(&options(&format!("{shard}-end"))).expect("loopback takes it");
        wait_for_word(watcher, &said(&format!("{shard}-end"), 3002));
    }
}

/// Waits until the watcher receives `expected`; other notifications are ignored.
#[track_caller]
fn wait_for_word(watcher: &Phone, expected: &str) {
    loop {
        match receive(watcher) {
            word if word == expected => return,
            word => assert!(word.starts_with("unconnected "), "{word} instead of {expected}"),
        }
    }
}

//= rfc3261#18.2.2:reopen
#[test]
fn a_new_connection_replaces_a_closed_one_where_allowed() {
    for shard in [0, 1] {
        let running = start(2, StreamLimits::default());
        let peer = Peer::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = peer.local_addr().expect("bound").port();
        ask(&running.phone(), &format!("0-call-{port}"));
        let mut line = accept(&peer);
        expect(&mut line, "hello from 0");
        line.write_all(&options(&format!("{shard}-keep"))).expect("loopback takes it");
        expect(&mut line, &said(&format!("{shard}-keep"), if shard == 0 { 2 } else { 1 }));
        drop(line);
        running.wait_for(|total| total.streams.closed_by_peer == 1);
        ask(&running.phone(), &format!("{shard}-again-reopen"));
        expect(&mut accept(&peer), "again");
    }
}

#[test]
fn a_peer_that_does_not_read_is_closed_without_affecting_others() {
    let running = start(2, StreamLimits::default());
    let deaf = Raw::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).expect("a socket");
    deaf.set_recv_buffer_size(4096).expect("a sound socket");
    deaf.set_tcp_nodelay(true).expect("a sound socket");
    deaf.connect(&running.connections.into()).expect("it listens");
    let deaf = TcpStream::from(deaf);
    let mut deaf = if is_secure() { Line::secure(deaf) } else { Line::plain(deaf) };
    let mut other = running.line();
    // At a time, as much as may wait between two workers; in total, far more than any buffer holds.
    for round in 1..=400 {
        // It may already be closed.
        let _ = deaf.write_all(&options("1-flood-2000"));
        other.write_all(&options("3-x")).expect("loopback takes it");
        expect(&mut other, &said("3-x", round));
        if running.fleet.status().total.streams.send_overflow > 0 {
            break;
        }
    }
    let total = running.wait_for(|total| total.streams.send_overflow == 1 && total.connections == 1);
    assert_eq!(total.unsent, 0);
}

/// A resolver that answers on its own thread, or never.
struct Oracle {
    is_mute: bool,
}

impl Resolve for Oracle {
    fn resolve(&self, question: LocateQuery, reply: Reply) {
        assert_eq!(question.host.as_slice(), b"example.com");
        let is_mute = self.is_mute;
        thread::spawn(move || if is_mute { drop(reply) } else { reply.send(Ok(Arc::new(CandidateList::default()))) });
    }
}

#[test]
fn a_query_is_answered_by_the_resolver_or_fails() {
    let oracle = |is_mute| Some(Arc::new(Oracle { is_mute }) as Arc<dyn Resolve>);
    for (resolver, answer) in [(oracle(false), true), (oracle(true), false), (None, false)] {
        let running = start_with(2, StreamLimits::default(), resolver);
        let watcher = running.watcher(1);
        ask(&running.phone(), "1-ask");
        assert_eq!(receive(&watcher), format!("resolved 7 {answer}"));
    }
}
