//! Connections over TLS, the names that their peers have proven, and what ends with them.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as Peer, TcpStream};
use std::sync::Arc;

use strowger_locate::LocateQuery;
use strowger_net::CertificateFiles;
use strowger_shard::{Action, Route, RouteTarget, Snapshot, TargetAddress};
use strowger_trunk::Trunk;

use super::line::{CERTIFICATES, Line, client_config, context, expect, server_config};
use super::{DEADLINE, ask, config, launch, options, phone, receive, snapshot, sockets_and_tls, spin_until};
use crate::{Fleet, FleetConfig, WorkerOptions};

struct Running {
    fleet: Fleet,
    snapshot: Arc<Snapshot>,
    datagrams: SocketAddr,
    connections: SocketAddr,
}

fn start() -> Running {
    let sockets = sockets_and_tls(2, context());
    let [datagrams, connections] = [0, 1].map(|listener: usize| sockets[0][listener].local_addr());
    let snapshot = snapshot(&sockets[0]);
    let options = WorkerOptions { min_workers: 2, ..WorkerOptions::default() };
    let fleet = launch(FleetConfig { options, ..config(sockets, Arc::clone(&snapshot)) }).expect("threads");
    Running { fleet, snapshot, datagrams, connections }
}

impl Running {
    /// Opens a connection with this certificate, whose first request, to a shard, asks for an alias at `alias`.
    fn connect(&self, own: &CertificateFiles, shard: usize, alias: u16) -> Line {
        let stream = TcpStream::connect(self.connections).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a sound socket");
        let mut line = Line::client(stream, &Arc::new(client_config(Some(own))), "127.0.0.1");
        let text = String::from_utf8(options(&format!("{shard}-hello"))).expect("text");
        let text = text.replace("UDP 127.0.0.1:5060;", &format!("TLS 127.0.0.1:{alias};alias;"));
        line.write_all(text.as_bytes()).expect("loopback takes it");
        expect(&mut line, &format!("{shard}-hello shard {shard} life 0 count 1"));
        line
    }

    /// Changes the configuration and waits until the workers have it.
    fn configure(&self, edit: impl FnOnce(&mut Snapshot)) {
        let mut changed = Snapshot::clone(&self.snapshot);
        edit(&mut changed);
        self.fleet.publish(Arc::new(changed));
        spin_until(|| self.fleet.status().total.version == 1);
    }
}

fn issue(names: &[&str]) -> CertificateFiles {
    CERTIFICATES.authority.lock().expect("no panic").issue(names)
}

/// Returns a port of this machine at which nobody listens.
fn closed_port() -> (socket2::Socket, u16) {
    let closed = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    closed.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a port");
    let port = closed.local_addr().expect("bound").as_socket().expect("an address").port();
    (closed, port)
}

//= rfc5923#8.2
#[test]
fn requests_by_an_alias_end_with_its_connection() {
    let running = start();
    let (_closed, alias) = closed_port();
    let mut line = running.connect(&CERTIFICATES.own, 1, alias);
    let source = line.local_addr().expect("bound").port();
    let watcher = phone(running.datagrams);
    ask(&watcher, "0-watch");
    ask(&phone(running.datagrams), &format!("0-call-{alias}"));
    expect(&mut line, "hello from 0");
    drop(line);
    let mut told = [receive(&watcher), receive(&watcher), receive(&watcher)];
    assert_eq!(told[2], format!("closed {source}"), "the connection comes last");
    told.sort();
    let mut wanted = [format!("unconnected {alias}"), format!("unconnected {source}"), format!("closed {source}")];
    wanted.sort();
    assert_eq!(told, wanted);
}

//= rfc5923#8.2
#[test]
fn only_the_connection_that_served_an_alias_ends_its_requests() {
    let running = start();
    let (_closed, alias) = closed_port();
    let mut first = running.connect(&CERTIFICATES.own, 1, alias);
    let stream = running.connect(&CERTIFICATES.own, 2, alias);
    let source = stream.local_addr().expect("bound").port();
    let watcher = phone(running.datagrams);
    ask(&watcher, "0-watch");
    drop(stream);
    assert_eq!(receive(&watcher), format!("unconnected {source}"));
    assert_eq!(receive(&watcher), format!("closed {source}"));
    ask(&phone(running.datagrams), &format!("0-call-{alias}"));
    expect(&mut first, "hello from 0");
}

/// Adds a trunk with a target by name, known by its certificate.
fn with_carrier(snapshot: &mut Snapshot) {
    let question = LocateQuery::new(b"carrier.example", None, None, true);
    let address = TargetAddress::Name(question);
    let target = RouteTarget { uri: b"sips:carrier.example"[..].into(), address, priority: 1, weight: 1 };
    snapshot.routes = vec![Route::of_domain(b"*", Action::proxy(vec![target], snapshot.proxy.stateless))];
    snapshot.trunks = vec![Arc::new(Trunk {
        name: "carrier".into(),
        credentials: None,
        sources: Vec::new(),
        domains: vec!["carrier.example".into()],
        account: None,
    })];
}

//= rfc5923#8.2
#[test]
fn a_connection_serves_a_name_that_is_configured_later() {
    let running = start();
    let (_closed, alias) = closed_port();
    let mut line = running.connect(&issue(&["carrier.example"]), 1, alias);
    let source = line.local_addr().expect("bound").port();
    running.configure(with_carrier);
    for port in [source, alias] {
        // It is the first name that has a number.
        ask(&phone(running.datagrams), &format!("0-named-1-{port}"));
        expect(&mut line, "hello from 0");
    }
}

//= rfc5922#7.4
#[test]
fn a_trunk_is_known_on_a_connection_that_the_server_has_opened() {
    let running = start();
    running.configure(with_carrier);
    let peer = Peer::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = peer.local_addr().expect("bound").port();
    let peers = [(&["127.0.0.1", "carrier.example"][..], 1), (&["127.0.0.1", "other.example"], 0)];
    for (ended, (names, trunk)) in (1..).zip(peers) {
        ask(&phone(running.datagrams), &format!("0-call-{port}"));
        let (stream, _) = peer.accept().expect("the server calls");
        stream.set_read_timeout(Some(DEADLINE)).expect("a sound socket");
        let mut line = Line::accepted(stream, Arc::new(server_config(&issue(names))));
        expect(&mut line, "hello from 0");
        line.write_all(&options("0-who")).expect("loopback takes it");
        expect(&mut line, &format!("trunk {trunk}"));
        drop(line);
        spin_until(|| running.fleet.status().total.streams.closed_by_peer == ended);
    }
}
