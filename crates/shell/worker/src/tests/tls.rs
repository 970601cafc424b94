//! Handshakes: slow, too many, refused, resumed.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener as Peer, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::HandshakeKind;
use strowger_net::{CertificateFiles, ClientCertificates, TlsContext, TlsSettings};

use super::line::{CERTIFICATES, Line, client_config, context, expect, server_config, settings};
use super::{DEADLINE, ask, config, launch, options, phone, receive, snapshot, sockets_and_tls, spin_until};
use crate::{Fleet, FleetConfig, StreamLimits, WorkerOptions, WorkerStatus};

struct Running {
    fleet: Fleet,
    datagrams: SocketAddr,
    connections: SocketAddr,
}

fn start(tls: Arc<TlsContext>, streams: StreamLimits) -> Running {
    let sockets = sockets_and_tls(2, tls);
    let [datagrams, connections] = [0, 1].map(|listener: usize| sockets[0][listener].local_addr());
    let snapshot = snapshot(&sockets[0]);
    let options = WorkerOptions { min_workers: 2, ..WorkerOptions::default() };
    let fleet = launch(FleetConfig { streams, options, ..config(sockets, snapshot) }).expect("threads");
    Running { fleet, datagrams, connections }
}

impl Running {
    fn stream(&self) -> TcpStream {
        let stream = TcpStream::connect(self.connections).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a sound socket");
        stream.set_nodelay(true).expect("a sound socket");
        stream
    }

    fn wait_for(&self, mut is_right: impl FnMut(&WorkerStatus) -> bool) -> WorkerStatus {
        spin_until(|| is_right(&self.fleet.status().total));
        self.fleet.status().total
    }
}

#[track_caller]
fn expect_end(line: &mut Line) {
    let mut rest = Vec::new();
    match line.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("it is not closed"),
        Err(_) => {}
    }
    assert_eq!(rest, b"");
}

#[test]
fn both_versions_are_spoken_and_sessions_resumed() {
    let running = start(context(), StreamLimits::default());
    for (number, version) in [&rustls::version::TLS13, &rustls::version::TLS12].into_iter().enumerate() {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]);
        let mut config = builder.expect("versions").with_root_certificates(roots()).with_no_client_auth();
        config.resumption = rustls::client::Resumption::in_memory_sessions(4);
        let config = Arc::new(config);
        for (turn, kind) in [HandshakeKind::Full, HandshakeKind::Resumed].into_iter().enumerate() {
            let mut line = Line::client(running.stream(), &config, "example.com");
            line.write_all(&options("0-hello")).expect("loopback takes it");
            expect(&mut line, &format!("0-hello shard 0 life 0 count {}", 2 * number + turn + 1));
            assert_eq!(line.tls().protocol_version(), Some(version.version));
            assert_eq!(line.tls().handshake_kind(), Some(kind), "{version:?}");
        }
    }
    let total = running.wait_for(|total| total.connections == 0 && total.streams.tls_handshakes == 4);
    assert_eq!((total.streams.tls_resumed, total.streams.tls_failures), (2, 0));
}

fn roots() -> rustls::RootCertStore {
    use rustls::pki_types::pem::PemObject as _;
    let ca = std::fs::read(&CERTIFICATES.authority.lock().expect("no panic").ca).expect("a file");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rustls::pki_types::CertificateDer::from_pem_slice(&ca).expect("PEM")).expect("an authority");
    roots
}

#[test]
fn a_slow_handshake_ends_in_time_and_delays_nobody() {
    let limits = StreamLimits { connect_timeout: Duration::from_millis(300), ..StreamLimits::default() };
    let running = start(context(), limits);
    // The first bytes of a record that never ends.
    let mut slow = running.stream();
    slow.write_all(&[22, 3, 1, 1]).expect("loopback takes it");
    running.wait_for(|total| total.connections == 1);
    let mut line = Line::secure(running.stream());
    line.write_all(&options("0-hello")).expect("loopback takes it");
    expect(&mut line, "0-hello shard 0 life 0 count 1");
    assert_eq!(running.fleet.status().total.streams.tls_timeouts, 0, "the other one still waits");
    slow.read_to_end(&mut Vec::new()).expect("an end in time");
    let total = running.wait_for(|total| total.connections == 1 && total.streams.tls_timeouts == 1);
    assert_eq!((total.streams.tls_failures, total.streams.tls_handshakes), (0, 1));
}

#[test]
fn handshakes_in_progress_are_limited_per_source() {
    let limits = StreamLimits { handshakes: 3, handshakes_per_source: 2, ..StreamLimits::default() };
    let running = start(context(), limits);
    let mut waiting = [running.stream(), running.stream()];
    running.wait_for(|total| total.connections == 2);
    assert_eq!(running.stream().read(&mut [0; 64]).expect("it is closed at once"), 0);
    running.wait_for(|total| total.streams.tls_refused_source == 1);
    // A handshake that has ended makes room for another.
    waiting[0].write_all(b"OPTIONS sip:example.com SIP/2.0\r\n\r\n").expect("loopback takes it");
    let total = running.wait_for(|total| total.connections == 1);
    assert_eq!(total.streams.tls_failures, 1, "this is not TLS");
    let mut line = Line::secure(running.stream());
    line.write_all(b"\r\n\r\n").expect("loopback takes it");
    expect(&mut line, "\r\n");
    // One that is open counts no more.
    let _further = running.stream();
    running.wait_for(|total| total.connections == 3);
    assert_eq!(running.stream().read(&mut [0; 64]).expect("it is closed at once"), 0);
    assert_eq!(running.wait_for(|total| total.streams.tls_refused_source == 2).streams.tls_refused_total, 0);
}

/// Connects from one of many addresses, so that neither ports nor limits per source run out.
fn connect_from(number: u32, to: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    let host = Ipv4Addr::from_bits(Ipv4Addr::new(127, 0, 1, 1).to_bits() + number % 200);
    socket.bind(&SocketAddr::from((host, 0)).into()).expect("a port");
    socket.connect(&to.into()).expect("it listens");
    socket.set_read_timeout(Some(DEADLINE)).expect("a sound socket");
    socket.into()
}

#[test]
fn ten_thousand_malformed_handshakes_leave_nothing_behind() {
    let running = start(context(), StreamLimits::default());
    let name = rustls::pki_types::ServerName::try_from("example.com").expect("a name");
    let mut client = rustls::ClientConnection::new(Arc::new(client_config(None)), name).expect("a session");
    let mut hello = Vec::new();
    client.write_tls(&mut hello).expect("memory");
    // The same every time: Marsaglia's xorshift.
    let mut random = 0x9E37_79B9_u32;
    let mut below = |limit: usize| {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        random as usize % limit
    };
    for number in 0..10_000 {
        let mut bytes = hello.clone();
        for _ in 0..below(8) {
            let at = below(bytes.len());
            bytes[at] = u8::try_from(below(256)).expect("small");
        }
        match below(4) {
            0 => bytes.truncate(below(bytes.len())),
            1 => bytes.extend_from_slice(&hello[..below(hello.len())]),
            2 => bytes.insert(below(bytes.len()), 0),
            _ => {}
        }
        let mut stream = connect_from(number, running.connections);
        // It may be closed before all has been written.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let total = running.wait_for(|total| total.connections == 0 && total.streams.accepted == 10_000);
    assert_eq!((total.worker.panics, total.streams.tls_handshakes, total.streams.tls_refused_total), (0, 0, 0));
    let mut line = Line::secure(running.stream());
    line.write_all(&options("0-hello")).expect("loopback takes it");
    expect(&mut line, "0-hello shard 0 life 0 count 1");
}

/// Opens a connection with this certificate, whose first request asks for an alias at `alias`.
fn with_certificate(running: &Running, own: Option<&CertificateFiles>, shard: usize, alias: u16) -> Line {
    let config = Arc::new(client_config(own));
    let mut line = Line::client(running.stream(), &config, "127.0.0.1");
    let text = String::from_utf8(options(&format!("{shard}-hello"))).expect("text");
    let text = text.replace("UDP 127.0.0.1:5060;", &format!("TLS 127.0.0.1:{alias};alias;"));
    line.write_all(text.as_bytes()).expect("loopback takes it");
    expect(&mut line, &format!("{shard}-hello shard {shard} life 0 count 1"));
    line
}

/// Returns a port of this machine at which nobody listens.
fn closed_port() -> (socket2::Socket, u16) {
    let closed = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    closed.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a port");
    let port = closed.local_addr().expect("bound").as_socket().expect("an address").port();
    (closed, port)
}

//= rfc5922#7.3
//= rfc5923#8.2
#[test]
fn only_a_certificate_makes_an_accepted_connection_one_to_its_peer() {
    let running = start(context(), StreamLimits::default());
    let other = CERTIFICATES.authority.lock().expect("no panic").issue(&["example.com", "192.0.2.1"]);
    let (_closed, alias) = closed_port();
    for (shard, own) in [None, Some(&other), Some(&CERTIFICATES.own)].into_iter().enumerate() {
        let mut line = with_certificate(&running, own, shard + 1, alias);
        let source = line.local_addr().expect("bound").port();
        for port in [source, alias] {
            let watcher = phone(running.datagrams);
            ask(&watcher, "0-watch");
            ask(&phone(running.datagrams), &format!("0-call-{port}"));
            if own == Some(&CERTIFICATES.own) {
                expect(&mut line, "hello from 0");
            } else {
                // It may still hear of the connection of the round before.
                let said = std::iter::repeat_with(|| receive(&watcher)).find(|said| !said.starts_with("closed "));
                assert_eq!(said, Some(format!("unconnected {port}")), "{own:?}");
            }
        }
        drop(line);
        running.wait_for(|total| total.connections == 0);
    }
}

#[test]
fn a_record_that_never_ends_is_closed_in_time() {
    let message_timeout = Duration::from_millis(150);
    let running = start(context(), StreamLimits { message_timeout, ..StreamLimits::default() });
    let mut slow = Line::secure(running.stream());
    slow.write_all(&options("0-whole")).expect("loopback takes it");
    expect(&mut slow, "0-whole shard 0 life 0 count 1");
    slow.write_partly(&options("0-part"));
    expect_end(&mut slow);
    running.wait_for(|total| total.streams.closed_slow == 1 && total.connections == 0);
}

#[test]
fn the_end_after_an_incomplete_record_closes_the_connection() {
    let running = start(context(), StreamLimits::default());
    for round in 1..=20 {
        let mut line = Line::secure(running.stream());
        line.write_partly(&options("0-part"));
        line.shutdown(std::net::Shutdown::Write).expect("connected");
        running.wait_for(|total| total.streams.closed_by_peer == round && total.connections == 0);
    }
}

/// Lets the server call a peer with this certificate; returns whether it sent its message.
fn calls(settings: &TlsSettings, far: &CertificateFiles) -> bool {
    let running = start(Arc::new(TlsContext::new(settings).expect("sound files")), StreamLimits::default());
    let watcher = phone(running.datagrams);
    ask(&watcher, "0-watch");
    let peer = Peer::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = peer.local_addr().expect("bound").port();
    let caller = phone(running.datagrams);
    ask(&caller, &format!("0-call-{port}"));
    let (stream, _) = peer.accept().expect("the server calls");
    stream.set_read_timeout(Some(DEADLINE)).expect("a sound socket");
    let mut line = Line::accepted(stream, Arc::new(server_config(far)));
    let mut read = [0; 12];
    let is_served = line.read_exact(&mut read).is_ok();
    if is_served {
        assert_eq!(&read, b"hello from 0");
    } else {
        assert_eq!(receive(&watcher), format!("unconnected {port}"));
    }
    let wanted = if is_served { (1, 1, 0) } else { (0, 0, 1) };
    running.wait_for(|total| (total.connections, total.streams.tls_handshakes, total.streams.tls_failures) == wanted);
    is_served
}

//= rfc5922#7.3
#[test]
fn only_a_valid_certificate_of_the_peer_gets_a_message() {
    let issue = |make: fn(&mut super::line::authority::Authority) -> CertificateFiles| {
        make(&mut CERTIFICATES.authority.lock().expect("no panic"))
    };
    let trusting = settings();
    assert!(calls(&trusting, &CERTIFICATES.own));
    assert!(!calls(&trusting, &issue(|authority| authority.issue(&["example.com"]))), "another name");
    assert!(!calls(&trusting, &issue(|authority| authority.issue_expired(&["127.0.0.1"]))));
    assert!(!calls(&trusting, &issue(|authority| authority.self_signed(&["127.0.0.1"]))));
    let crl = Some(CERTIFICATES.authority.lock().expect("no panic").revoke(&[1]));
    assert!(!calls(&TlsSettings { crl, ..trusting.clone() }, &CERTIFICATES.own), "it is revoked");
    let stranger = super::line::authority::Authority::new();
    assert!(!calls(&TlsSettings { ca: Some(stranger.ca.clone()), ..trusting }, &CERTIFICATES.own));
}

#[test]
fn clients_without_a_certificate_are_refused_if_it_is_required() {
    let required = TlsSettings { client_certificates: ClientCertificates::Required, ..settings() };
    let running = start(Arc::new(TlsContext::new(&required).expect("sound files")), StreamLimits::default());
    expect_end(&mut Line::secure(running.stream()));
    running.wait_for(|total| total.streams.tls_failures == 1);
    let own = CERTIFICATES.authority.lock().expect("no panic").issue(&["sip:trunk.example.com"]);
    let config = Arc::new(client_config(Some(&own)));
    let mut line = Line::client(running.stream(), &config, "example.com");
    line.write_all(&options("0-hello")).expect("loopback takes it");
    expect(&mut line, "0-hello shard 0 life 0 count 1");
    let expired = CERTIFICATES.authority.lock().expect("no panic").issue_expired(&["sip:trunk.example.com"]);
    let config = Arc::new(client_config(Some(&expired)));
    let mut line = Line::client(running.stream(), &config, "example.com");
    let _ = line.write_all(&options("0-hello"));
    expect_end(&mut line);
    running.wait_for(|total| total.streams.tls_failures == 2 && total.streams.tls_handshakes == 1);
}
