//! What a client cannot do to the listener.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use strowger_http::axum::Router;
use strowger_http::axum::extract::ConnectInfo;
use strowger_http::axum::routing::get;
use strowger_http::{HttpCounters, HttpLimits, HttpServer};

/// Far above the limits of these tests.
const PATIENCE: Duration = Duration::from_secs(20);

fn start(limits: HttpLimits) -> (HttpServer, Arc<HttpCounters>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let who = |ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { format!("hello {}", peer.ip()) };
    let large = || async { "x".repeat(64 << 20) };
    let router = Router::new().route("/", get(who)).route("/large", get(large)).route("/niceness", get(niceness_text));
    let counters = Arc::<HttpCounters>::default();
    let server = HttpServer::start(listener, None, router, limits, Arc::clone(&counters)).expect("it starts");
    (server, counters)
}

/// Returns the niceness of this thread, proc_pid_stat(5).
fn niceness() -> i32 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("Linux");
    let fields = stat.rsplit(')').next().unwrap_or_default();
    fields.split_whitespace().nth(16).and_then(|niceness| niceness.parse().ok()).expect("a number")
}

/// Of the thread of the listener, and of one for work that blocks.
async fn niceness_text() -> String {
    let blocking = tokio::task::spawn_blocking(niceness).await.expect("it ends");
    format!("{} {blocking}", niceness())
}

fn connect(server: &HttpServer) -> TcpStream {
    let stream = TcpStream::connect(server.address()).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("settable");
    stream
}

fn request(stream: &mut TcpStream, text: &str) -> String {
    stream.write_all(text.as_bytes()).expect("it is open");
    read(stream)
}

/// Reads until the connection ends.
fn read(stream: &mut TcpStream) -> String {
    let mut response = Vec::new();
    match stream.read_to_end(&mut response) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error} after {} bytes", response.len()),
    }
    String::from_utf8(response).expect("text")
}

#[test]
fn a_request_is_answered_and_its_source_known() {
    let (server, counters) = start(HttpLimits::default());
    let response = request(&mut connect(&server), "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("\r\n\r\nhello 127.0.0.1"), "{response}");
    let response = request(&mut connect(&server), "GET /none HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(response.starts_with("HTTP/1.1 404 "), "{response}");
    assert_eq!((counters.accepted(), counters.refused()), (2, 0));
}

#[test]
fn the_listener_yields_to_calls() {
    let (server, _) = start(HttpLimits::default());
    let response = request(&mut connect(&server), "GET /niceness HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let expected = (niceness() + 15).min(19);
    assert!(response.ends_with(&format!("\r\n\r\n{expected} {expected}")), "{response}");
}

#[test]
fn a_slow_head_ends_the_connection() {
    let limits = HttpLimits { head: Duration::from_millis(200), ..HttpLimits::default() };
    let (server, _) = start(limits);
    for sent in ["", "GET / HTTP/1.1\r\nHost: ", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let mut stream = connect(&server);
        let began = Instant::now();
        request(&mut stream, sent);
        assert!(began.elapsed() < PATIENCE / 2, "{sent:?}: the connection was open for {:?}", began.elapsed());
    }
}

#[test]
fn a_client_that_does_not_read_loses_its_connection() {
    let limits = HttpLimits {
        connections: 1,
        connection: Duration::from_millis(200),
        closing: Duration::from_millis(100),
        ..HttpLimits::default()
    };
    let (server, counters) = start(limits);
    let mut slow = connect(&server);
    slow.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is open");
    // Its place becomes free while it still reads nothing.
    let began = Instant::now();
    loop {
        let mut next = connect(&server);
        // A refused connection may be reset before this is written.
        drop(next.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        if read(&mut next).starts_with("HTTP/1.1 200 ") {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{counters:?}");
    }
    assert!(counters.refused() > 0, "there was one place");
    assert!(read(&mut slow).len() < 64 << 20);
}

#[test]
fn heads_and_connections_are_limited() {
    let (server, counters) = start(HttpLimits { connections: 2, ..HttpLimits::default() });
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(64 * 1024));
    let mut stream = connect(&server);
    // The connection may be reset before everything is written.
    drop(stream.write_all(long.as_bytes()));
    let response = read(&mut stream);
    assert!(response.is_empty() || response.starts_with("HTTP/1.1 431 "), "{response}");
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(100));
    let response = request(&mut connect(&server), &many);
    assert!(response.starts_with("HTTP/1.1 431 "), "{response}");
    drop(stream);
    let began = Instant::now();
    while counters.refused() == 0 {
        let open: Vec<_> = (0..3).map(|_| connect(&server)).collect();
        assert!(began.elapsed() < PATIENCE, "{counters:?} of {} connections", open.len());
    }
}

#[test]
fn a_stopped_listener_is_gone() {
    let (server, _) = start(HttpLimits::default());
    let (address, mut open) = (server.address(), connect(&server));
    drop(server);
    assert_eq!(read(&mut open), "");
    assert!(TcpStream::connect(address).is_err());
}

/// A request that lasts until `gate` opens.
fn gated() -> (Router, Arc<tokio::sync::Notify>, Arc<tokio::sync::Notify>) {
    let (begun, gate) = (Arc::<tokio::sync::Notify>::default(), Arc::<tokio::sync::Notify>::default());
    let (tell, wait) = (Arc::clone(&begun), Arc::clone(&gate));
    let slow = move || async move {
        tell.notify_one();
        wait.notified().await;
        "at last"
    };
    (Router::new().route("/slow", get(slow)).route("/", get(|| async { "old" })), begun, gate)
}

fn start_gated() -> (HttpServer, Arc<tokio::sync::Notify>, Arc<tokio::sync::Notify>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let (router, begun, gate) = gated();
    let server = HttpServer::start(listener, None, router, HttpLimits::default(), Arc::default()).expect("it starts");
    (server, begun, gate)
}

/// Begins a request that is being answered when this returns.
fn begin_slow(server: &HttpServer, begun: &tokio::sync::Notify) -> TcpStream {
    let mut slow = connect(server);
    slow.write_all(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is open");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(begun.notified());
    slow
}

#[test]
fn an_exchange_lets_old_connections_finish_and_new_ones_have_the_new_service() {
    let (server, begun, gate) = start_gated();
    let mut slow = begin_slow(&server, &begun);
    let mut idle = connect(&server);
    idle.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is open");
    idle.read_exact(&mut [0; 12]).expect("an answer");
    server.exchange(None, Router::new().route("/", get(|| async { "new" })));
    let response = request(&mut connect(&server), "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(response.ends_with("\r\n\r\nnew"), "{response}");
    gate.notify_one();
    let response = read(&mut slow);
    assert!(response.ends_with("\r\n\r\nat last"), "{response}");
    // The connection would otherwise stay open for further requests.
    let response = read(&mut idle);
    assert!(response.ends_with("\r\n\r\nold"), "{response}");
}

#[test]
fn a_retired_listener_answers_what_it_has_begun() {
    let (server, begun, gate) = start_gated();
    let mut slow = begin_slow(&server, &begun);
    let address = server.address();
    server.retire();
    let began = Instant::now();
    while TcpStream::connect(address).is_ok() {
        assert!(began.elapsed() < PATIENCE, "it still listens");
    }
    assert!(TcpListener::bind(address).is_ok(), "the address is free");
    gate.notify_one();
    let response = read(&mut slow);
    assert!(response.ends_with("\r\n\r\nat last"), "{response}");
}
