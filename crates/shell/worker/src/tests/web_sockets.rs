//! WebSockets over loopback, plain and over TLS, with tungstenite as client.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use strowger_foundation::Transport;
use strowger_message::MAX_STREAM_MESSAGE;
use strowger_net::{AllowedOrigins, StreamSocket, WebSocketContext};
use tungstenite::client::IntoClientRequest as _;
use tungstenite::handshake::client::Request;
use tungstenite::http::HeaderValue;
use tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tungstenite::protocol::frame::{CloseFrame, Frame};
use tungstenite::{Error, Message, WebSocket};

use super::line::{self, Line};
use super::support::{bind, with_siblings};
use super::{DEADLINE, ask, config, launch, options, phone, receive, snapshot, spin_until};
use crate::{Fleet, FleetConfig, StreamLimits, TransportCount, WorkerOptions, WorkerStatus};

const PAGE: &str = "https://phone.example.com";

struct Running {
    fleet: Fleet,
    datagrams: SocketAddr,
    connections: SocketAddr,
    is_secure: bool,
}

fn start(is_secure: bool, streams: StreamLimits) -> Running {
    let origins = AllowedOrigins::new([PAGE]).expect("an origin");
    let limit = u32::try_from(MAX_STREAM_MESSAGE).expect("short");
    let context = Arc::new(WebSocketContext::new(origins, limit));
    let listener = StreamSocket::bind_web_socket(([127, 0, 0, 1], 0).into(), is_secure.then(line::context), context);
    let sockets = with_siblings(vec![bind(), listener.expect("loopback has a free port").into()], 3);
    let [datagrams, connections] = [0, 1].map(|listener: usize| sockets[0][listener].local_addr());
    let snapshot = snapshot(&sockets[0]);
    let options = WorkerOptions { min_workers: 3, ..WorkerOptions::default() };
    let fleet = launch(FleetConfig { streams, options, ..config(sockets, snapshot) }).expect("threads");
    Running { fleet, datagrams, connections, is_secure }
}

/// A request as a browser on `origin` makes it.
fn request(origin: &str) -> Request {
    let mut request = "ws://127.0.0.1/sip".into_client_request().expect("a URI");
    let headers = request.headers_mut();
    headers.insert("Sec-WebSocket-Protocol", HeaderValue::from_static("sip"));
    headers.insert("Origin", HeaderValue::from_str(origin).expect("text"));
    request
}

impl Running {
    fn line(&self) -> Line {
        let stream = TcpStream::connect(self.connections).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a sound socket");
        stream.set_nodelay(true).expect("a sound socket");
        if self.is_secure { Line::secure(stream) } else { Line::plain(stream) }
    }

    fn open(&self) -> WebSocket<Line> {
        let (web_socket, response) = tungstenite::client(request(PAGE), self.line()).expect("it opens");
        assert_eq!(response.headers()["Sec-WebSocket-Protocol"], "sip");
        web_socket
    }

    /// Returns the status with which a request is refused, and what the server says.
    fn refusal(&self, request: Request) -> (u16, String) {
        match tungstenite::client(request, self.line()) {
            Err(tungstenite::HandshakeError::Failure(Error::Http(response))) => {
                (response.status().as_u16(), String::from_utf8(response.into_body().unwrap_or_default()).expect("text"))
            }
            Err(other) => panic!("not refused: {other}"),
            Ok(_) => panic!("it opens"),
        }
    }

    fn wait_for(&self, mut is_right: impl FnMut(&WorkerStatus) -> bool) -> WorkerStatus {
        spin_until(|| is_right(&self.fleet.status().total));
        self.fleet.status().total
    }
}

#[track_caller]
fn expect_text(web_socket: &mut WebSocket<Line>, expected: &str) {
    match web_socket.read() {
        Ok(Message::Text(text)) => assert_eq!(text.as_str(), expected),
        other => panic!("{other:?} instead of {expected}"),
    }
}

/// Waits for the closing frame and the end of the connection.
#[track_caller]
fn expect_close(web_socket: &mut WebSocket<Line>) -> Option<u16> {
    let mut code = None;
    loop {
        match web_socket.read() {
            Ok(Message::Close(frame)) => code = frame.map(|frame| frame.code.into()),
            Ok(other) => panic!("{other:?} instead of the end"),
            Err(Error::ConnectionClosed | Error::AlreadyClosed | Error::Protocol(_)) => return code,
            Err(Error::Io(error)) if error.kind() != ErrorKind::WouldBlock => return code,
            Err(error) => panic!("it is not closed: {error}"),
        }
    }
}

/// A request as a browser sends it, without Content-Length.
fn browsers_options(call_id: &str) -> String {
    let text = String::from_utf8(options(call_id)).expect("text");
    let text = text.replace("Content-Length: 0\r\n", "");
    text.replace("SIP/2.0/UDP 127.0.0.1:5060", "SIP/2.0/WS df7jal23ls0d.invalid")
}

//= rfc7118#4.2:text-and-binary
//= rfc7118#5:one-message
#[test]
fn messages_pass_in_both_directions() {
    for is_secure in [false, true] {
        let running = start(is_secure, StreamLimits::default());
        let mut web_socket = running.open();
        for shard in 0..6 {
            let message = browsers_options(&format!("{shard}-hello"));
            let message = if shard % 2 == 0 { Message::text(message) } else { Message::binary(message.into_bytes()) };
            web_socket.send(message).expect("loopback takes it");
            expect_text(&mut web_socket, &format!("{shard}-hello shard {shard} life 0 count 1"));
        }
        // Many at once keep their order, and none is lost.
        for number in 0..100 {
            web_socket.write(Message::text(browsers_options(&format!("5-{number}")))).expect("a buffer");
        }
        web_socket.flush().expect("loopback takes it");
        for number in 0..100 {
            expect_text(&mut web_socket, &format!("5-{number} shard 5 life 0 count {}", 2 + number));
        }
        let total = running.wait_for(|total| total.streams.messages_in == 106);
        let streams = total.streams;
        assert_eq!((streams.ws_opened, streams.ws_refused, streams.messages_out), (1, 0, 106));
        assert_eq!(streams.tls_handshakes, u64::from(is_secure));
        web_socket.close(Some(CloseFrame { code: CloseCode::Away, reason: "".into() })).expect("loopback takes it");
        assert_eq!(expect_close(&mut web_socket), Some(1001), "it is confirmed");
        let total = running.wait_for(|total| total.connections == 0 && total.streams.closed_by_peer == 1);
        assert_eq!(total.streams.closed_malformed, 0);
    }
}

//= rfc6455#5.4:fragments
//= rfc6455#5.5.2:pong
#[test]
fn fragments_pings_and_keep_alives_are_handled() {
    let running = start(false, StreamLimits::default());
    let mut web_socket = running.open();
    let message = browsers_options("4-hello").into_bytes();
    let (start, end) = message.split_at(100);
    let frame =
        |data: &[u8], code, is_final| Message::Frame(Frame::message(data.to_vec(), OpCode::Data(code), is_final));
    web_socket.send(frame(start, Data::Text, false)).expect("loopback takes it");
    web_socket.send(Message::Ping(b"now".to_vec().into())).expect("loopback takes it");
    assert_eq!(web_socket.read().expect("a pong"), Message::Pong(b"now".to_vec().into()));
    web_socket.send(frame(end, Data::Continue, true)).expect("loopback takes it");
    expect_text(&mut web_socket, "4-hello shard 4 life 0 count 1");
    web_socket.send(Message::text("\r\n\r\n")).expect("loopback takes it");
    expect_text(&mut web_socket, "\r\n");
    // A lone line end is a pong, and bytes that are not SIP concern nobody.
    web_socket.send(Message::text("\r\n")).expect("loopback takes it");
    web_socket.send(Message::text("hello")).expect("loopback takes it");
    web_socket.send(Message::text(browsers_options("4-more"))).expect("loopback takes it");
    expect_text(&mut web_socket, "4-more shard 4 life 0 count 2");
    let total = running.wait_for(|total| total.streams.messages_in == 3);
    assert_eq!((total.streams.pings, total.worker.keep_alives), (2, 3));
}

#[test]
fn a_message_in_single_bytes_is_read() {
    let running = start(true, StreamLimits::default());
    let mut sent = Vec::new();
    let key = [1, 2, 3, 4];
    let message = browsers_options("2-slow").into_bytes();
    sent.extend_from_slice(&[0x82, 0x80 | 126]);
    sent.extend_from_slice(&u16::try_from(message.len()).expect("short").to_be_bytes());
    sent.extend_from_slice(&key);
    sent.extend(message.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
    let mut web_socket = running.open();
    for byte in sent {
        web_socket.get_mut().write_all(&[byte]).expect("loopback takes it");
        web_socket.get_mut().flush().expect("loopback takes it");
    }
    expect_text(&mut web_socket, "2-slow shard 2 life 0 count 1");
}

//= rfc6455#4.2.1:malformed
//= rfc6455#4.2.2:origin
#[test]
fn wrong_requests_are_refused_with_a_reason() {
    let running = start(false, StreamLimits::default());
    let (status, text) = running.refusal(request("https://evil.example"));
    assert_eq!(status, 403, "{text}");
    let mut without_sip = request(PAGE);
    without_sip.headers_mut().insert("Sec-WebSocket-Protocol", HeaderValue::from_static("xmpp"));
    assert_eq!(running.refusal(without_sip).0, 400);
    let refused = |bytes: &[u8]| {
        let mut line = running.line();
        line.write_all(bytes).expect("loopback takes it");
        let mut text = String::new();
        line.read_to_string(&mut text).expect("an end");
        text
    };
    let text = refused(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 426 ") && text.contains("This is a SIP server"), "{text}");
    assert!(refused(&options("0-hello")).starts_with("HTTP/1.1 405 "));
    assert!(refused(format!("GET /{}", "x".repeat(9000)).as_bytes()).starts_with("HTTP/1.1 431 "));
    let total = running.wait_for(|total| total.connections == 0 && total.streams.ws_refused == 5);
    assert_eq!((total.streams.ws_opened, total.streams.messages_in), (0, 0));
    // A program that is no browser sends no origin.
    let mut program = request(PAGE);
    program.headers_mut().remove("Origin");
    tungstenite::client(program, running.line()).expect("it opens");
}

#[test]
fn a_peer_that_breaks_the_protocol_is_closed_with_a_code() {
    let running = start(false, StreamLimits::default());
    let too_long = u32::try_from(MAX_STREAM_MESSAGE + 1).expect("short").to_be_bytes();
    let mut oversized = vec![0x82, 0x80 | 127, 0, 0, 0, 0];
    oversized.extend_from_slice(&too_long);
    oversized.extend_from_slice(&[0; 4]);
    let cases: [(&[u8], u16); 3] = [(b"\x82\x05hello", 1002), (&oversized, 1009), (b"\x83\x80\0\0\0\0", 1002)];
    for (number, (bytes, code)) in cases.into_iter().enumerate() {
        let mut web_socket = running.open();
        web_socket.get_mut().write_all(bytes).expect("loopback takes it");
        assert_eq!(expect_close(&mut web_socket), Some(code));
        running.wait_for(|total| (total.connections, total.streams.closed_malformed) == (0, number as u64 + 1));
    }
}

#[test]
fn a_slow_request_ends_in_time_and_delays_nobody() {
    for is_secure in [false, true] {
        let limits = StreamLimits { connect_timeout: Duration::from_millis(300), ..StreamLimits::default() };
        let running = start(is_secure, limits);
        let mut slow = running.line();
        slow.write_all(b"GET / HTTP/1.1\r\n").expect("loopback takes it");
        running.wait_for(|total| total.connections == 1);
        let mut web_socket = running.open();
        web_socket.send(Message::text(browsers_options("0-hello"))).expect("loopback takes it");
        expect_text(&mut web_socket, "0-hello shard 0 life 0 count 1");
        let mut rest = Vec::new();
        slow.read_to_end(&mut rest).expect("an end in time");
        let total = running.wait_for(|total| total.connections == 1 && total.streams.ws_timeouts == 1);
        assert_eq!((total.streams.ws_opened, total.streams.tls_timeouts), (1, 0));
    }
}

#[test]
fn upgrades_in_progress_are_limited_per_source() {
    let limits = StreamLimits { handshakes: 3, handshakes_per_source: 2, ..StreamLimits::default() };
    let running = start(false, limits);
    let waiting = [running.line(), running.line()];
    running.wait_for(|total| total.connections == 2);
    assert_eq!(running.line().read(&mut [0; 64]).expect("it is closed at once"), 0);
    running.wait_for(|total| total.streams.ws_refused_source == 1);
    drop(waiting);
    running.wait_for(|total| total.connections == 0);
    // Those that are open count no more.
    let _open = [running.open(), running.open(), running.open()];
    running.wait_for(|total| (total.connections, total.streams.ws_opened) == (3, 3));
}

//= rfc7118#6
#[test]
fn a_silent_peer_is_pinged_and_a_dead_one_closed() {
    let limits = StreamLimits { ping: Duration::from_millis(200), ..StreamLimits::default() };
    let running = start(false, limits);
    let mut dead = running.open();
    let mut alive = running.open();
    for _ in 0..5 {
        assert!(alive.read().expect("a ping").is_ping());
        // Sends the pong.
        alive.flush().expect("loopback takes it");
    }
    let total = running.wait_for(|total| total.connections == 1 && total.streams.ws_unanswered == 1);
    assert_eq!(total.streams.closed_idle, 0);
    assert!(dead.read().expect("a ping").is_ping());
    assert_eq!(expect_close(&mut dead), None);
}

#[test]
fn an_idle_peer_is_told_so() {
    let limits = StreamLimits { ping: Duration::ZERO, idle: Duration::from_millis(200), ..StreamLimits::default() };
    let running = start(true, limits);
    assert_eq!(expect_close(&mut running.open()), Some(1001));
    running.wait_for(|total| (total.connections, total.streams.closed_idle) == (0, 1));
}

#[test]
fn the_server_opens_no_web_socket() {
    let running = start(false, StreamLimits::default());
    let watcher = phone(running.datagrams);
    ask(&watcher, "0-watch");
    let peer = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    peer.set_nonblocking(true).expect("a sound socket");
    let port = peer.local_addr().expect("bound").port();
    ask(&phone(running.datagrams), &format!("0-call-{port}"));
    assert_eq!(receive(&watcher), format!("unconnected {port}"));
    assert_eq!(peer.accept().expect_err("nobody calls").kind(), ErrorKind::WouldBlock);
    let total = running.wait_for(|total| total.streams.connect_failures == 1);
    assert_eq!((total.connections, total.streams.opened), (0, 0));
}

#[test]
fn ten_thousand_damaged_frames_leave_nothing_behind() {
    let limits = StreamLimits { connections: 64, ..StreamLimits::default() };
    let running = start(false, limits);
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let message = browsers_options("1-fuzz").into_bytes();
    for _ in 0..100 {
        let mut web_socket = running.open();
        let line = web_socket.get_mut();
        for _ in 0..100 {
            let mut frame = vec![0x81, 0x80 | 126];
            frame.extend_from_slice(&u16::try_from(message.len()).expect("short").to_be_bytes());
            frame.extend_from_slice(&[0; 4]);
            frame.extend_from_slice(&message);
            let (at, mask) = (next() as usize % frame.len(), next() as u8);
            frame[at] ^= mask;
            if line.write_all(&frame).is_err() {
                break;
            }
        }
        drop(web_socket);
    }
    let total = running.wait_for(|total| total.connections == 0 && total.streams.ws_opened == 100);
    assert_eq!(total.worker.panics, 0);
    let mut web_socket = running.open();
    web_socket.send(Message::text(browsers_options("0-hello"))).expect("loopback takes it");
    expect_text(&mut web_socket, "0-hello shard 0 life 0 count 1");
}

#[test]
fn web_sockets_have_a_limit_and_counters_of_their_own() {
    let running = start(true, StreamLimits { web_sockets: 2, tls: 0, ..StreamLimits::default() });
    let mut open = [running.open(), running.open()];
    let stream = TcpStream::connect(running.connections).expect("it listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a sound socket");
    assert_eq!((&stream).read(&mut [0; 64]).expect("it is closed at once"), 0);
    open[0].send(Message::text(browsers_options("0-hello"))).expect("loopback takes it");
    expect_text(&mut open[0], "0-hello shard 0 life 0 count 1");
    let counts = TransportCount { open: 2, accepted: 2, messages_in: 1, messages_out: 1 };
    // Each worker publishes its own.
    let total =
        running.wait_for(|total| (total.transports.of(Transport::Wss), total.streams.refused_transport) == (counts, 1));
    assert_eq!(total.transports.of(Transport::Tls), TransportCount::default());
    drop(open);
    running.wait_for(|total| total.transports.of(Transport::Wss).open == 0);
    running.open();
}
