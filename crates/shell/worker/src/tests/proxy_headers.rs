//! Connections through a balancer that tells the client's address.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use strowger_auth::Network;
use strowger_net::{AllowedOrigins, StreamSocket, WebSocketContext};
use tungstenite::Message;
use tungstenite::client::IntoClientRequest as _;
use tungstenite::http::HeaderValue;

use super::line::{self, Line, expect};
use super::support::{bind, listen, with_siblings};
use super::{DEADLINE, ask, config, launch, options, phone, receive, snapshot, spin_until};
use crate::{Fleet, FleetConfig, Socket, StreamLimits, WorkerOptions, WorkerStatus};

/// What the balancer writes for a client at 192.0.2.7, in both versions.
fn header(is_binary: bool, port: u16) -> Vec<u8> {
    if !is_binary {
        return format!("PROXY TCP4 192.0.2.7 192.0.2.1 {port} 5061\r\n").into_bytes();
    }
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\xc0\0\x02\x01".to_vec();
    header.extend_from_slice(&port.to_be_bytes());
    header.extend_from_slice(&5061_u16.to_be_bytes());
    header
}

/// A header of version 2 by which the balancer speaks for itself.
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

struct Running {
    fleet: Fleet,
    datagrams: SocketAddr,
    connections: SocketAddr,
}

fn start(listener: Socket, streams: StreamLimits, balancer: IpAddr) -> Running {
    let sockets = with_siblings(vec![bind(), listener], 2);
    let [datagrams, connections] = [0, 1].map(|listener: usize| sockets[0][listener].local_addr());
    let snapshot = snapshot(&sockets[0]);
    let options = WorkerOptions { min_workers: 2, ..WorkerOptions::default() };
    let balancers = vec![Network { address: balancer, prefix: 32 }];
    let fleet = launch(FleetConfig { streams, balancers, options, ..config(sockets, snapshot) }).expect("threads");
    Running { fleet, datagrams, connections }
}

fn behind_a_balancer(listener: Socket, streams: StreamLimits) -> Running {
    start(listener, streams, [127, 0, 0, 1].into())
}

impl Running {
    fn stream(&self) -> TcpStream {
        let stream = TcpStream::connect(self.connections).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a sound socket");
        stream.set_nodelay(true).expect("a sound socket");
        stream
    }

    /// Connects as the balancer and writes this first.
    fn stream_after(&self, first: &[u8]) -> TcpStream {
        let mut stream = self.stream();
        stream.write_all(first).expect("loopback takes it");
        stream
    }

    fn wait_for(&self, mut is_right: impl FnMut(&WorkerStatus) -> bool) -> WorkerStatus {
        spin_until(|| is_right(&self.fleet.status().total));
        self.fleet.status().total
    }
}

#[track_caller]
fn expect_end(mut stream: TcpStream) {
    let mut rest = Vec::new();
    // A reset is an end, too.
    if stream.read_to_end(&mut rest).is_ok() {
        assert_eq!(rest, b"");
    }
}

#[test]
fn the_clients_address_replaces_the_balancers() {
    let running = behind_a_balancer(listen(), StreamLimits::default());
    let watcher = phone(running.datagrams);
    ask(&watcher, "0-watch");
    for (number, is_binary) in [false, true].into_iter().enumerate() {
        let port = 40_000 + u16::try_from(number).expect("small");
        // With the first message in one segment, and then each byte for itself.
        let whole = [&header(is_binary, port)[..], &options("0-hello")].concat();
        let mut line = Line::plain(running.stream_after(&whole));
        expect(&mut line, &format!("0-hello shard 0 life 0 count {}", 2 + 2 * number));
        drop(line);
        assert_eq!(receive(&watcher), format!("closed {port}"));
        let mut stream = running.stream();
        for byte in header(is_binary, port + 10) {
            stream.write_all(&[byte]).expect("loopback takes it");
        }
        stream.write_all(&options("0-slow")).expect("loopback takes it");
        let mut line = Line::plain(stream);
        expect(&mut line, &format!("0-slow shard 0 life 0 count {}", 3 + 2 * number));
        drop(line);
        assert_eq!(receive(&watcher), format!("closed {}", port + 10));
    }
    let mut health_check = Line::plain(running.stream_after(LOCAL));
    health_check.write_all(b"\r\n\r\n").expect("loopback takes it");
    expect(&mut health_check, "\r\n");
    let total = running.wait_for(|total| total.connections == 1 && total.streams.proxied == 5);
    assert_eq!(total.streams.proxy_header_failures, 0);
}

#[test]
fn a_balancer_must_send_a_header_in_time() {
    let limits = StreamLimits { connect_timeout: Duration::from_millis(300), ..StreamLimits::default() };
    let running = behind_a_balancer(listen(), limits);
    expect_end(running.stream_after(&options("0-hello")));
    expect_end(running.stream_after(b"PROXY TCP4 192.0.2.7"));
    expect_end(running.stream_after(b"PROXY TCP4 somewhere\r\n"));
    // A check that only connects is no fault.
    drop(running.stream());
    let total = running.wait_for(|total| total.connections == 0 && total.streams.proxy_header_failures == 3);
    assert_eq!((total.streams.messages_in, total.streams.proxied, total.streams.tls_timeouts), (0, 0, 0));
}

#[test]
fn nobody_else_may_send_a_header() {
    for is_binary in [false, true] {
        let running = start(listen(), StreamLimits::default(), [192, 0, 2, 1].into());
        let mut stream = running.stream_after(&header(is_binary, 40_000));
        stream.write_all(&options("0-hello")).expect("loopback takes it");
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty() || rest == b"\r\n", "the line ends of version 2 are a keep-alive");
        let total = running.wait_for(|total| total.connections == 0 && total.streams.closed_malformed == 1);
        assert_eq!((total.streams.messages_in, total.streams.proxied), (0, 0));
    }
}

#[test]
fn clients_of_a_balancer_are_limited_one_by_one() {
    let limits = StreamLimits { per_source: 2, handshakes_per_source: 1, ..StreamLimits::default() };
    let running = behind_a_balancer(listen(), limits);
    let one = || Line::plain(running.stream_after(&header(true, 40_000)));
    // One after the other: a client has one handshake at a time, which includes its header.
    let lines = [(); 2].map(|()| {
        let mut line = one();
        line.write_all(b"\r\n\r\n").expect("loopback takes it");
        expect(&mut line, "\r\n");
        line
    });
    expect_end(running.stream_after(&header(true, 40_002)));
    running.wait_for(|total| total.connections == 2 && total.streams.refused_source == 1);
    // The balancer itself and other clients are not affected.
    let other = String::from_utf8(header(false, 40_003)).expect("text").replace("192.0.2.7", "192.0.2.8");
    let mut others = [LOCAL, LOCAL, LOCAL, other.as_bytes()].map(|first| Line::plain(running.stream_after(first)));
    for line in &mut others {
        line.write_all(b"\r\n\r\n").expect("loopback takes it");
        expect(line, "\r\n");
    }
    drop(lines);
    running.wait_for(|total| total.connections == 4);
    let mut line = one();
    line.write_all(b"\r\n\r\n").expect("loopback takes it");
    expect(&mut line, "\r\n");
}

#[test]
fn the_header_precedes_tls_and_websocket() {
    let context = || Arc::new(WebSocketContext::new(AllowedOrigins::any(), 65_536));
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let tls = StreamSocket::bind_tls(local, line::context()).expect("a free port");
    let running = behind_a_balancer(tls.into(), StreamLimits::default());
    let mut secure = Line::secure(running.stream_after(&header(true, 40_000)));
    secure.write_all(&options("0-hello")).expect("loopback takes it");
    expect(&mut secure, "0-hello shard 0 life 0 count 1");
    for is_secure in [false, true] {
        let listener = StreamSocket::bind_web_socket(local, is_secure.then(line::context), context());
        // A client has one handshake at a time, from its TLS to its WebSocket.
        let limits = StreamLimits { handshakes_per_source: 1, ..StreamLimits::default() };
        let running = behind_a_balancer(listener.expect("a free port").into(), limits);
        for port in 40_000..40_003 {
            let stream = running.stream_after(&header(true, port));
            let line = if is_secure { Line::secure(stream) } else { Line::plain(stream) };
            let mut request = "ws://127.0.0.1/".into_client_request().expect("a URI");
            request.headers_mut().insert("Sec-WebSocket-Protocol", HeaderValue::from_static("sip"));
            let (mut web_socket, _) = tungstenite::client(request, line).expect("it opens");
            let message = String::from_utf8(options("0-hello")).expect("text");
            web_socket.send(Message::text(message)).expect("loopback takes it");
            assert!(web_socket.read().expect("a response").is_text());
        }
        let total = running.wait_for(|total| total.connections == 0 && total.streams.proxied == 3);
        assert_eq!((total.streams.ws_opened, total.streams.tls_handshakes), (3, 3 * u64::from(is_secure)));
    }
}
